"""Algorithms that networks learn from examples: operations on binary numbers of any length."""
