"""Scheduling of concurrent requests: what is computed for them, and the queue that forms batches of it."""
