"""What tests of several rooms need."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

# A shell without job control lets its background processes ignore Ctrl-C, and every process that they start in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def unreadable_file() -> Iterator[Path]:
    """A file that may not be read, by root neither: for the time of the test, root is nobody."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "unreadable.toml"
        path.write_text("", encoding="utf-8")
        path.chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield path
        finally:
            os.seteuid(user)
