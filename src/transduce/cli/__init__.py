"""Arguments to function calls: one short module a command, and the only place that prints or exits."""

from transduce.cli.app import app, main

__all__ = ["app", "main"]
