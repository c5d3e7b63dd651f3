"""What rich draws on a terminal: a line that is written over and over, and the pages of `--help`.

Rich takes a tenth of a second to load, so that this module is imported where it is used.
"""

from typing import Any

from cyclopts.help import DefaultFormatter, HelpPanel
from rich.console import Console, ConsoleOptions
from rich.live import Live
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


class LiveLine:
    """A live line on a terminal, and plain lines above it or elsewhere; what nobody reads is lost, and stops nothing.

    Args:
        stream: standard error.
        refresh_per_second: how often the line is drawn; 0: when it is updated.
    """

    def __init__(self, stream: Any, refresh_per_second: int = 0) -> None:  # noqa: ANN401 - what takes the place of one
        self._console = Console(file=stream, stderr=True, highlight=False, soft_wrap=True)
        self._live = Live(
            console=self._console,
            transient=True,
            auto_refresh=bool(refresh_per_second),
            refresh_per_second=refresh_per_second or 1,
        )
        self._is_refreshed = not refresh_per_second

    @property
    def is_terminal(self) -> bool:
        """Whether standard error is a terminal; only there is a live line."""
        return bool(self._console.is_terminal)

    def start(self) -> None:
        """Show the line, if it is not shown yet."""
        self._live.start()

    def update(self, line: str) -> None:
        """Renew the line, which is cut where the terminal ends."""
        self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=self._is_refreshed)

    def stop(self) -> None:
        """Remove the line."""
        self._live.stop()

    def print_above(self, line: str) -> None:
        """Print a plain line, above the live one if there is one."""
        self._console.print(Text(line))
