"""Checks of a text, each with the findings that it makes."""
