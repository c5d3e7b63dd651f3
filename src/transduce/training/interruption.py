"""Ctrl-C and SIGTERM as a wish that is granted at the next safe moment."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopWish:
    """Whether somebody has asked for an end."""

    def __init__(self) -> None:
        self.wished = False

    def wish(self, _number: int, _frame: FrameType | None) -> None:
        """Ask; a second time is answered at once with KeyboardInterrupt."""
        if self.wished:
            raise KeyboardInterrupt
        self.wished = True


@contextmanager
def stop_wish() -> Iterator[StopWish]:
    """Within, SIGINT and SIGTERM set a wish instead of ending the process; in another thread, nothing changes."""
    wish = StopWish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.signal(number, wish.wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
