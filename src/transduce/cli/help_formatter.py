"""How the pages of `--help` look; loads rich, which takes a tenth of a second."""

from cyclopts.help import DefaultFormatter, HelpPanel
from rich.console import Console, ConsoleOptions
from rich.text import Text


class HelpFormatter(DefaultFormatter):
    """Prints a panel of help; descriptions break at the width of the terminal alone, not where their docstrings do."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print `panel`; what cyclopts calls for each panel of a help page."""
        for entry in panel.entries:
            description = getattr(entry.description, "primary_renderable", None)
            if isinstance(description, Text):
                description.plain = " ".join(description.plain.split())
        super().__call__(console, options, panel)
