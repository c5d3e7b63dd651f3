"""Ctrl-C and SIGTERM as a wish that is granted at the next safe moment."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

MOMENT = 1.0
"""Seconds in which most wishes are granted; after that, it is said that this one was heard."""


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
def stop_wish(say: Callable[[str], None] = lambda _: None) -> Iterator[StopWish]:
    """Within, SIGINT and SIGTERM set a wish instead of ending the process; in another thread, nothing changes.

    `say` is told, by a thread of its own, that the wish was heard, if it is not granted soon.
    """
    wish = StopWish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    is_over = threading.Event()
    # It looks by itself: a handler of signals may touch no lock, and to start a thread or to write takes some.
    threading.Thread(target=_announce, args=(wish, is_over, say), daemon=True).start()
    before = {number: signal.signal(number, wish.wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        is_over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(wish: StopWish, is_over: threading.Event, say: Callable[[str], None]) -> None:
    while not is_over.wait(MOMENT):
        if wish.wished:
            say("stopping after this update, or before if it is computed in parts; once more ends it at once")
            return
