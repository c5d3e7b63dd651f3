import os
import queue
import signal
import threading

import pytest

from transduce.training import interruption, stop_wish

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_becomes_a_wish(number: signal.Signals) -> None:
    with stop_wish() as stop:
        assert not stop.wished
        os.kill(os.getpid(), number)
        assert stop.wished


def test_a_wish_that_takes_a_while_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "MOMENT", 0.001)
    said: queue.Queue[str] = queue.Queue()
    with stop_wish(said.put):
        os.kill(os.getpid(), signal.SIGINT)
        assert (
            said.get(timeout=60)
            == "stopping after this update, or before if it is computed in parts; once more ends it at once"
        )
    with stop_wish(said.put):
        pass
    assert said.empty()


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
