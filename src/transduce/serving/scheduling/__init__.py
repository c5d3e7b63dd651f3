"""Concurrent requests: their queue, and the batches that are computed of it."""
