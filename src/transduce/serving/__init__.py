"""HTTP: dialects, batching of concurrent requests, limits, metrics, and the inspection page."""

__all__: list[str] = []
