"""Optimised operations, each with a plain reference in its tests, and what they need to know of the machine.

Independent of models, files and settings.
"""

__all__: list[str] = []
