"""A line on standard error that is written over and over on a terminal; loads rich, which takes a tenth of a second."""

from rich.console import Console
from rich.live import Live
from rich.text import Text

from transduce.cli.standard_streams import get_lossy_stderr


class LiveLine:
    """A live line on a terminal, and plain lines above it or elsewhere; what nobody reads is lost, and stops nothing.

    Args:
        refresh_per_second: how often the line is drawn; 0: when it is updated.
    """

    def __init__(self, refresh_per_second: int = 0) -> None:
        self._console = Console(file=get_lossy_stderr(), stderr=True, highlight=False, soft_wrap=True)
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
