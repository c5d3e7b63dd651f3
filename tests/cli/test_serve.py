"""What the command is told wrongly; what it does is in tests/serving, as a process in `test_server`."""

import importlib.util
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("transduce.serving", "uvicorn", "asyncio")]
    before = [(one.handlers, one.level, one.propagate) for one in loggers]
    yield
    for one, (handlers, level, propagate) in zip(loggers, before, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "nothing"),
        (["{model}", "--source-language", "x\udce9"], "is no language code"),
        (["{model}"], "has no recorded languages"),
        (["{model}", "--port", "70000"], "--port 70000: must be from 0 to 65535"),
        (["{model}", "--host", "no.such.host.invalid"], "cannot listen at 'no.such.host.invalid'"),
        (["{model}", "--requests-per-minute", "-1"], "--requests-per-minute -1: must be at least 1, or 0 for no limit"),
        (
            ["{model}", "--trusted-proxies", "10.0.0.1/8"],
            "--trusted-proxies 10.0.0.1/8: must be an address or a network",
        ),
        (["{model}", "--cors", "example.org"], "--cors example.org: must be an origin"),
        (["{model}", "--max-characters", "0"], "max_characters = 0: must be above 0"),
        (["{model}", "--api-key-file", "missing"], "missing: there is no such file"),
        (["{model}", "--api-key-file", "tiny.toml"], "API key 1: must be at least 16 printable ASCII characters"),
        (["{model}", "--engine", "marian"], "marian"),
        (["{model}", "--engine", "onnx", "--device", "cuda"], "the engine onnx supports only cpu"),
        (["{model}", "--log-format", "xml"], "xml"),
    ],
)
@pytest.mark.usefixtures("workspace")
def test_what_is_wrong_is_said(transduce: Any, run_folder: Path, arguments: list[str], message: str) -> None:
    given = [run_folder if one == "{model}" else one for one in arguments]
    answer = transduce("serve", *given, *([] if "--port" in arguments else ["--port", "0"]))
    assert (answer.exit_code, answer.output) == (2, b"")
    assert message in " ".join(answer.messages.split())


def test_a_port_that_is_taken(transduce: Any, run_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = transduce("serve", run_folder, "--port", taken.getsockname()[1])
    assert answer.exit_code == 2
    assert "choose --host and --port" in answer.messages


@pytest.mark.parametrize(
    "module", ["fastapi", "uvicorn", "httptools", "prometheus_client", "python_multipart", "py3langid"]
)
def test_a_missing_package_is_named(
    transduce: Any, run_folder: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("transduce.cli.serve.find_spec", lambda name: None if name == module else find_spec(name))
    answer = transduce("serve", run_folder)
    assert answer.exit_code == 2
    assert f"'{module.replace('_', '-')}', which is not installed: pip install 'transduce[serve]'" in answer.messages
