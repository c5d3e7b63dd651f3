"""The command line: one short module per command; only these modules print or exit."""

from transduce.cli.app import app, main

__all__ = ["app", "main"]
