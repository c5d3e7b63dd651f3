"""Experiments with the networks of the paper and with others that it compares itself with."""

__all__: list[str] = []
