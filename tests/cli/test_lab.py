"""`transduce lab`: lists, runs and reports experiments."""

import json
from pathlib import Path
from typing import Any

import pytest

from transduce.lab import EXPERIMENTS, Measurement, MeasurementLog


def write_measurements(folder: Path, name: str = "scaling") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log = MeasurementLog(folder / "measurements.jsonl")
    log.begin({"name": name, "budget": "10m", "text": "generated"})
    for d_k in (4, 16, 64, 256, 1024):
        values = {"mean": 0.01, "variance": d_k * 1.01, "scaled variance": 1.01}
        gradients = {"gradient": 0.8 / d_k, "scaled gradient": 0.9}
        log.append(Measurement({"d_k": d_k}, 1, values | gradients, 1.0))


def test_every_experiment_is_listed(transduce: Any) -> None:
    answer = transduce("lab", "list")
    assert (answer.exit_code, answer.messages) == (0, "")
    assert [line.split()[0] for line in answer.lines] == list(EXPERIMENTS)
    assert all(what in line for what, line in zip(EXPERIMENTS.values(), answer.lines, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scalling"], 'Invalid value "scalling" for NAME. Choose from: "addition"'),
        (["scaling", "--budget", "soon"], '--budget: "soon" must be a duration such as "90s"'),
        (["scaling", "--seeds", "0"], "--seeds 0 --first-seed 1: at least one seed"),
        (["scaling", "--first-seed", "-1"], "--first-seed"),
        (["scaling", "--first-seed", "99999999999999999999"], "all seeds must be below 2,147,483,648"),
        (["scaling", "--first-seed", "2147483647", "--seeds", "2"], "all seeds must be below 2,147,483,648"),
        (["scaling", "--source", "train.source"], "--source and --target: give both, or none of them"),
        (
            ["scaling", "--source", "train.source", "--target", "train.target"],
            "different pairs that are not blank: an experiment needs at least 4,000",
        ),
        (["scaling", "--source", "none", "--target", "train.target"], "none"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(
    transduce: Any, workspace: Path, arguments: list[str], message: str
) -> None:
    answer = transduce("lab", "run", *arguments)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert message in answer.messages
    assert not (workspace / "lab").exists()


def test_foreign_files_are_left_alone(transduce: Any, workspace: Path) -> None:
    answer = transduce("lab", "run", "scaling", "--output", workspace)
    assert answer.exit_code == 2
    assert "holds something other than an experiment" in answer.messages


def test_reports_are_written_and_compared(transduce: Any, workspace: Path) -> None:
    for name in ("one", "two"):
        write_measurements(workspace / name)
    answer = transduce("lab", "report", "one", "two", "--output", "both.html")
    assert (answer.exit_code, answer.messages) == (0, "")
    assert answer.lines[0] == "| experiment | section | claim | verdict |"
    assert answer.lines[2].startswith("| scaling | 3.2.1, footnote 4 |")
    assert answer.lines[2].endswith("| supported; supported |")
    assert answer.lines[-1].endswith("| not decided; not decided |")
    assert (workspace / "both.html").read_text(encoding="utf-8").count("<h1>") == 2
    assert (workspace / "one" / "report.md").is_file()


def test_a_page_of_someone_else_is_not_replaced(transduce: Any, workspace: Path) -> None:
    write_measurements(workspace / "one")
    page = workspace / "page.html"
    page.write_text("<p>mine</p>", encoding="utf-8")
    answer = transduce("lab", "report", "one", "--output", page)
    assert answer.exit_code == 2
    assert "page.html" in answer.messages
    assert "--force" in answer.messages
    assert page.read_text(encoding="utf-8") == "<p>mine</p>"
    for arguments in (["--force"], []):  # the second time it is a page of this command
        assert transduce("lab", "report", "one", "--output", page, *arguments).exit_code == 0
        assert "<h1>" in page.read_text(encoding="utf-8")


def test_a_folder_without_measurements_has_no_report(transduce: Any, workspace: Path) -> None:
    answer = transduce("lab", "report", workspace)
    assert answer.exit_code == 2
    assert "has no measurements.jsonl: give the --output of `transduce lab run`" in answer.messages


@pytest.mark.exhaustive
def test_an_experiment_is_run_and_goes_on(transduce: Any, workspace: Path) -> None:
    arguments = ["lab", "run", "feed-forward", "--budget", "5s", "--seeds", "1", "--output", "out"]
    answer = transduce(*arguments)
    assert answer.exit_code == 0
    verdicts = [line for line in answer.lines if not line.startswith(" ")]
    assert all(line.startswith(("supported", "not supported", "not decided")) for line in verdicts)
    assert "the report is in out/report.html and out/report.md" in answer.messages
    path = workspace / "out" / "measurements.jsonl"
    before = path.read_bytes()
    assert json.loads(before.splitlines()[0])["experiment"]["name"] == "feed-forward"
    again = transduce(*arguments)
    assert (again.exit_code, again.output) == (0, answer.output)
    assert path.read_bytes() == before
