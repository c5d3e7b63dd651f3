"""Whatever is there and was not written by the same kind of command stays: each command that writes, by each target."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle, find_bundle
from transduce.interop import export_bundle

INSPECT = ("inspect", "model", "ku do", "--quick", "--beam", "1")
TEXT = ("--source", "valid.source", "--target", "valid.target")


@dataclass(frozen=True)
class Writer:
    """A command that writes.

    Args:
        arguments: all but the place; `model` and `run` are copies of a good bundle and run, `ct2` is an export.
        computing: the function, by its module, that must not be called before the place has proved to be good.
        name: of what it writes in the working directory.
        is_folder: whether that is a folder.
        is_in_bundle: whether it is a file of a bundle, and the command is told the bundle.
    """

    arguments: tuple[str, ...]
    computing: tuple[str, str]
    name: str = "out"
    is_folder: bool = True
    is_in_bundle: bool = False

    def call(self, transduce: Callable, place: Path | str, *options: str) -> Any:
        """Run it, to write to `place`."""
        if self.is_in_bundle:
            return transduce(self.arguments[0], Path(place).parent, *self.arguments[1:], *options)
        return transduce(*self.arguments, "--output", place, *options)


WRITERS = {
    "inspect": Writer(INSPECT, ("transduce.cli.inspect", "_make_document"), "page.html", is_folder=False),
    "calibrate": Writer(
        ("calibrate", *TEXT),
        ("transduce.cli.score", "measure_confidence"),
        "calibration.json",
        is_folder=False,
        is_in_bundle=True,
    ),
    "scorecard": Writer(
        ("scorecard", "--source", "valid.source"),
        ("transduce.cli.scorecard", "measure_scorecard"),
        "scorecard.json",
        is_folder=False,
        is_in_bundle=True,
    ),
    "scorecard, a page": Writer(
        ("scorecard", "model", "--source", "valid.source", "--print-only"),
        ("transduce.cli.scorecard", "measure_scorecard"),
        "card.html",
        is_folder=False,
    ),
    "doctor": Writer(("doctor", *TEXT), ("transduce.cli.doctor", "examine_corpus"), "page.html", is_folder=False),
    "compare": Writer(
        ("compare", "model", "run", "--source", "valid.source", "--reference", "valid.target"),
        ("transduce.cli.evaluate", "_translate"),
        "page.html",
        is_folder=False,
    ),
    "export, a file": Writer(
        ("export", "model", "--to", "argos", "--probe", "valid.source"),
        ("transduce.interop.export_import", "make_probe"),
        "out.argosmodel",
        is_folder=False,
    ),
    "export": Writer(
        ("export", "model", "--to", "ctranslate2", "--probe", "valid.source"),
        ("transduce.interop.export_import", "make_probe"),
    ),
    "import": Writer(
        ("import", "ct2", "--probe", "valid.source"), ("transduce.interop.export_import", "find_import_format")
    ),
    "average": Writer(
        ("average", "run", "--last", "2"),
        ("transduce.training.model_selection.checkpoint_averaging", "average_checkpoints"),
    ),
    "train": Writer(("train", "tiny.toml"), ("transduce.training.run", "prepare_screened")),
    "demo": Writer(("demo", "--updates", "4"), ("transduce.demo", "generate_training_pairs")),
}


@pytest.fixture(scope="session")
def exported(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("ctranslate2")
    folder = tmp_path_factory.mktemp("exported") / "ct2"
    export_bundle(Bundle.open(find_bundle(run_folder)), "ctranslate2", folder, num_sentences=2)
    return folder


@pytest.fixture
def good(workspace: Path, run_folder: Path, exported: Path) -> Path:
    """The working directory, with a model that can be exported to every format, its run, and an export of it."""
    shutil.copytree(run_folder, workspace / "run")
    shutil.copytree(exported, workspace / "ct2")
    for place in ("run/best", "run/last"):
        path = workspace / place / "bundle.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        content["languages"] = {"source": "en", "target": "de"}
        path.write_text(json.dumps(content), encoding="utf-8")
    shutil.copytree(workspace / "run" / "best", workspace / "model")
    return workspace


def make_text(place: Path) -> None:
    place.write_text("years of work", encoding="utf-8")


def make_thesis(place: Path) -> None:
    place.mkdir()
    make_text(place / "thesis.txt")


def make_link_to_text(place: Path) -> None:
    make_text(place.with_name("thesis.txt"))
    place.symlink_to(place.with_name("thesis.txt"))


def make_link_to_thesis(place: Path) -> None:
    make_thesis(place.with_name("thesis"))
    place.symlink_to(place.with_name("thesis"))


def make_own_model(place: Path) -> None:
    shutil.copytree("model", place)


def make_own_weights(place: Path) -> None:
    shutil.copy("model/weights.safetensors", place)


def make_run(place: Path) -> None:
    shutil.copytree("run", place)


def make_foreign_model(place: Path) -> None:
    place.mkdir()
    (place / "config.json").write_text('{"model_type": "marian"}', encoding="utf-8")
    (place / "pytorch_model.bin").write_bytes(b"weeks of training")


TARGETS: Mapping[str, Callable[[Path], None]] = {
    "a text": make_text,
    "a folder of something else": make_thesis,
    "a link to a text": make_link_to_text,
    "a link to a folder": make_link_to_thesis,
    "a link to a device": lambda place: place.symlink_to("/dev/null"),
    "a pipe": os.mkfifo,
    "a model": make_own_model,
    "the weights of a model": make_own_weights,
    "a run": make_run,
    "a model of another program": make_foreign_model,
}


def inventory(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything in a folder, to be compared: kind and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        link = str(path.readlink()).encode() if path.is_symlink() else b""
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = path.lstat().st_mode, link + content
    return found


def place_for(writer: Writer, good: Path) -> Path:
    """Where it is to write: a file of a bundle, into one of its own."""
    if not writer.is_in_bundle:
        return good / writer.name
    shutil.copytree(good / "model", good / "measured")
    return good / "measured" / writer.name


def forbid(monkeypatch: pytest.MonkeyPatch, writer: Writer) -> None:
    module, name = writer.computing

    def compute(*_: object, **__: object) -> None:
        pytest.fail(f"{name} was called before the place was looked at")

    monkeypatch.setattr(import_module(module), name, compute)


ACCEPTED = {
    # Devices and pipes are written to.
    *(("inspect", "a pipe"), ("inspect", "a link to a device"), ("calibrate", "a link to a device")),
    *(("scorecard, a page", "a pipe"), ("scorecard, a page", "a link to a device")),
    *(("doctor", "a pipe"), ("doctor", "a link to a device")),
    *(("compare", "a pipe"), ("compare", "a link to a device")),
    ("scorecard", "a link to a device"),
    # A pipe in the place of a bundle's own file is read by whoever opens the bundle.
    *(("calibrate", "a pipe"), ("scorecard", "a pipe")),
    # These go on with a run, or refuse its settings; see below.
    *(("train", "a run"), ("demo", "a run")),
}


def choose_cases() -> Iterator[Any]:
    """Every command before every kind of target; without the exhaustive ones, each of both a few times."""
    for row, command in enumerate(WRITERS):
        for column, target in enumerate(TARGETS):
            if (command, target) not in ACCEPTED:
                yield pytest.param(command, target, marks=[pytest.mark.exhaustive] if (row + column) % 3 else [])


@pytest.mark.parametrize(("command", "target"), list(choose_cases()))
def test_nothing_is_replaced_unasked(
    good: Path, transduce: Callable, monkeypatch: pytest.MonkeyPatch, command: str, target: str
) -> None:
    writer = WRITERS[command]
    place = place_for(writer, good)
    TARGETS[target](place)
    before = inventory(good)
    forbid(monkeypatch, writer)
    answer = writer.call(transduce, place)
    assert (answer.exit_code, answer.output) == (2, b""), answer.messages
    assert str(place) in answer.messages
    assert re.search("choose|give|must be", answer.messages)
    assert inventory(good) == before


@pytest.mark.parametrize(
    ("command", "words"),
    [("train", "contains a run with other settings"), ("demo", "its config.toml is not that of a demonstration")],
)
def test_a_run_of_other_settings_is_not_replaced(good: Path, transduce: Callable, command: str, words: str) -> None:
    before = inventory(good)
    answer = transduce(command, *(["tiny.toml"] if command == "train" else []), "--output", good / "run")
    assert answer.exit_code == 2
    assert words in answer.messages
    assert inventory(good) == before


@pytest.mark.parametrize("command", WRITERS)
def test_a_place_that_cannot_be_written_is_found_before_anything_is_computed(
    good: Path, transduce: Callable, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    writer = WRITERS[command]
    # Nobody can make a file in /proc, not even root. For a bundle, the answer is read-only.
    place = place_for(writer, good) if writer.is_in_bundle else Path("/proc") / writer.name
    if writer.is_in_bundle:
        monkeypatch.setattr("transduce.storage.writing.TemporaryFile", read_only)
    before = inventory(good)
    forbid(monkeypatch, writer)
    answer = writer.call(transduce, place)
    assert answer.exit_code == 2, answer.messages
    assert "cannot be written" in answer.messages
    assert "choose another" in answer.messages
    assert inventory(good) == before


@pytest.mark.parametrize("command", ["inspect", "scorecard, a page", "compare"])
def test_a_missing_folder_is_found_before_anything_is_computed(
    good: Path, transduce: Callable, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    writer = WRITERS[command]
    forbid(monkeypatch, writer)
    answer = writer.call(transduce, "none/page.html")
    assert answer.exit_code == 2, answer.messages
    assert "none/page.html: must be a file in a folder that exists: make none" in answer.messages
    assert not (good / "none").exists()


def read_only(dir: Path) -> None:  # noqa: A002 - as tempfile has it
    raise OSError(30, "Read-only file system", str(dir))


FORCED = [
    ("inspect", "a text"),
    ("inspect", "the weights of a model"),
    ("inspect", "a link to a text"),
    ("calibrate", "a text"),
    ("scorecard", "a text"),
    ("scorecard, a page", "a text"),
    ("scorecard, a page", "a link to a text"),
    ("doctor", "a text"),
    ("compare", "a text"),
    ("export, a file", "a text"),
    ("export, a file", "a link to a text"),
    ("export", "a model"),
    ("import", "a model"),
    ("average", "a model"),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("command", "target"), FORCED)
def test_what_is_asked_for_is_replaced(good: Path, transduce: Callable, command: str, target: str) -> None:
    writer = WRITERS[command]
    place = place_for(writer, good)
    TARGETS[target](place)
    before, was_link = inventory(good), place.is_symlink()
    answer = writer.call(transduce, place, "--force")
    assert answer.exit_code == 0, answer.messages
    assert place.is_symlink() == was_link
    after = inventory(good)
    changed = {Path(name).parts[0] for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    own = {place.relative_to(good).parts[0], f"{place.name}.parity.json"}
    assert changed <= (own | {"thesis.txt", "thesis.txt.parity.json"} if was_link else own)
    assert changed
    # By its own kind, it is renewed unasked; but a model is somebody's.
    assert writer.call(transduce, place).exit_code == (2 if command in {"import", "average"} else 0)


@pytest.mark.parametrize("target", ["a folder of something else", "a run", "a model of another program", "a text"])
@pytest.mark.parametrize("command", ["export", "import", "average"])
def test_some_folders_are_never_replaced(good: Path, transduce: Callable, command: str, target: str) -> None:
    TARGETS[target](good / "out")
    before = inventory(good)
    assert WRITERS[command].call(transduce, good / "out", "--force").exit_code == 2
    assert inventory(good) == before


@pytest.mark.parametrize("command", ["export", "import", "average"])
def test_a_file_of_the_user_in_a_model_is_not_lost(good: Path, transduce: Callable, command: str) -> None:
    make_own_model(good / "out")
    make_text(good / "out" / "notes.txt")
    before = inventory(good)
    answer = WRITERS[command].call(transduce, good / "out", "--force")
    assert answer.exit_code == 2
    assert "notes.txt: is not a bundle file and would be lost" in answer.messages
    assert inventory(good) == before


def test_a_proof_of_somebodys_own_is_not_replaced(good: Path, transduce: Callable) -> None:
    make_text(good / "out.argosmodel.parity.json")
    answer = WRITERS["export, a file"].call(transduce, "out.argosmodel")
    assert answer.exit_code == 2
    assert "is not a proof of an export" in answer.messages


def test_a_proof_of_another_file_is_none(good: Path, transduce: Callable) -> None:
    writer = WRITERS["export, a file"]
    assert writer.call(transduce, "out.argosmodel").exit_code == 0
    make_text(good / "out.argosmodel")
    assert writer.call(transduce, "out.argosmodel").exit_code == 2
    assert (good / "out.argosmodel").read_text(encoding="utf-8") == "years of work"


def test_an_empty_file_holds_nothing_to_lose(good: Path, transduce: Callable) -> None:
    (good / "page.html").touch()
    assert WRITERS["inspect"].call(transduce, "page.html").exit_code == 0
    assert (good / "page.html").read_bytes().startswith(b"<!doctype html>")


def test_a_device_is_written_to(good: Path, transduce: Callable) -> None:
    writer = WRITERS["inspect"]
    assert writer.call(transduce, "page.html").exit_code == 0
    before = Path("/dev/null").lstat()
    assert writer.call(transduce, "/dev/null").exit_code == 0
    assert (Path("/dev/null").lstat().st_mode, Path("/dev/null").lstat().st_ino) == (before.st_mode, before.st_ino)
    assert not list(Path("/dev").glob("*transduce*"))
    answer = writer.call(transduce, "/dev/stdout")
    assert answer.exit_code == 0
    assert answer.output.startswith(b"<!doctype html>")
    assert len(answer.output) == (good / "page.html").stat().st_size


@pytest.mark.exhaustive
def test_what_standard_output_was_sent_to_the_end_of_stays(good: Path, process: Callable) -> None:
    make_text(good / "log")
    with (good / "log").open("ab") as log:
        assert process(*INSPECT, "--output", "/dev/stdout", stdout=log).exit_code == 0
    assert (good / "log").read_bytes().startswith(b"years of work<!doctype html>")


@pytest.mark.parametrize(
    ("command", "options"),
    [("compare", ["--json"]), ("compare", []), ("scorecard, a page", ["--json"]), ("doctor", ["--json"])],
)
def test_a_file_is_not_mixed_with_what_is_printed(
    good: Path, transduce: Callable, monkeypatch: pytest.MonkeyPatch, command: str, options: list[str]
) -> None:
    writer = WRITERS[command]
    forbid(monkeypatch, writer)
    (good / "page.html").symlink_to("/dev/stdout")
    answer = writer.call(transduce, "page.html", *options)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "page.html: is standard output, where the" in answer.messages
    assert "give the name of another file" in answer.messages


def test_translations_and_reports_are_not_mixed_with_what_is_printed(good: Path, transduce: Callable) -> None:
    (good / "out").mkdir()
    (good / "out" / "valid.model.txt").symlink_to("/dev/stdout")
    test_set = ("--source", "valid.source", "--reference", "valid.target")
    for arguments in (
        ("evaluate", "model", *test_set, "--output", "out"),
        ("lab", "report", "run", "--output", "out/valid.model.txt"),
    ):
        answer = transduce(*arguments)
        assert (answer.exit_code, answer.output) == (2, b"")
        assert "valid.model.txt: is standard output, where the" in answer.messages


def test_a_pipe_is_written_to(good: Path, transduce: Callable) -> None:
    os.mkfifo(good / "pipe")
    with ThreadPool(1) as pool:
        page = pool.apply_async((good / "pipe").read_bytes)
        assert transduce(*INSPECT, "--output", "pipe").exit_code == 0
        assert page.get(60).startswith(b"<!doctype html>")
    assert (good / "pipe").is_fifo()


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "command",
    ["inspect", "calibrate", "scorecard", "scorecard, a page", "export, a file", "export", "import", "average"],
)
def test_a_full_disk_leaves_what_was_there(
    good: Path, transduce: Callable, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    writer = WRITERS[command]
    place = place_for(writer, good)
    before = inventory(good)
    monkeypatch.setattr("os.fsync", full)  # what every way of writing does last
    answer = writer.call(transduce, place)
    assert answer.exit_code == 1, answer.messages
    named = place.parent if writer.is_in_bundle else place
    assert str(named) in answer.messages
    assert "could not be written; nothing was changed: No space left on device; free some space" in answer.messages
    assert inventory(good) == before


ON_A_FULL_DISK = """
import subprocess, sys
from pathlib import Path
from transduce.cli import main
def mount(*options):
    subprocess.run(["mount", *options, disk], check=True)
def listing():
    return sorted(str(path) for path in Path(disk).rglob("*"))
disk, *commands = sys.argv[1:]
mount("-t", "tmpfs", "-o", "size=64k", "none")
for state in ("full", "read-only"):
    before = listing()
    for command in commands:
        try:
            main(command.split(" "))
        except SystemExit as leaving:
            print(leaving.code, listing() == before, flush=True)
    mount("-o", "remount,ro")
"""
UNSHARE = shutil.which("unshare") or "unshare"


def can_mount() -> bool:
    try:
        return subprocess.run([UNSHARE, "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.exhaustive
@pytest.mark.skipif(not can_mount(), reason="needs a system that lets a user mount a file system of their own")
def test_a_real_disk_that_is_full_and_then_read_only(good: Path) -> None:
    disk = good / "disk"
    disk.mkdir()
    commands = [
        "inspect model ku --quick --beam 1 --output disk/page.html",
        "average run --last 2 --output disk/averaged",
        "import ct2 --probe valid.source --output disk/imported",
        "export model --to ctranslate2 --probe valid.source --output disk/exported",
        "export model --to argos --probe valid.source --output disk/out.argosmodel",
    ]
    answer = subprocess.run(
        [UNSHARE, "-rm", sys.executable, "-c", ON_A_FULL_DISK, str(disk), *commands],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert answer.stdout.splitlines() == ["1 True"] * 5 + ["2 True"] * 5, answer.stderr
    assert answer.stderr.count("No space left on device; free some space") == 5
    assert answer.stderr.count("cannot be written (Read-only file system)") == 5
