"""Optimised operations, independent of models, files and settings; each has a plain reference and a test."""

__all__: list[str] = []
