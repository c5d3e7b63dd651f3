import os
import signal
import threading

import pytest

from transduce.training import stop_wish

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_becomes_a_wish(number: signal.Signals) -> None:
    with stop_wish() as stop:
        assert not stop.wished
        os.kill(os.getpid(), number)
        assert stop.wished


def test_a_second_signal_ends_at_once() -> None:
    with stop_wish() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.wished


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with stop_wish():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with pytest.raises(ValueError, match="inside"), stop_wish():
        raise ValueError("inside")
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_another_thread_leaves_the_handlers_alone() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    found = []

    def work() -> None:
        with stop_wish() as stop:
            found.append((stop.wished, [signal.getsignal(number) for number in SIGNALS]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(False, before)]
