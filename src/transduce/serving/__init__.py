"""HTTP: dialects, batching of concurrent requests, limits, metrics, and the page that looks inside."""

__all__: list[str] = []
