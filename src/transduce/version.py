"""The version of Transduce, which the installed package knows; looking it up takes as long as loading a small model."""

from importlib.metadata import version

__version__ = version("transduce")
