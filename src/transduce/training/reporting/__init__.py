"""What a run shows of itself: metrics.jsonl, progress, report.html with its charts, and trackers."""
