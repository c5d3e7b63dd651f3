"""Constraints: protected spans, glossaries, required and forbidden words."""
