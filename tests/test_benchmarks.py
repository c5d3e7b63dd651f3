"""The scripts of benchmarks/ run: they use what no other test calls as they do."""

import json
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

import pytest

from transduce.demo import generate_training_pairs

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=300).stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "script",
    [
        "argos.py",
        "batches.py",
        "bulk.py",
        "bulk_kills.py",
        "corpus_scale.py",
        "doctor.py",
        "fuzz.py",
        "illnesses.py",
        "kept.py",
        "kills.py",
        "networks.py",
        "optimizers.py",
        "page.py",
        "parity.py",
        "ranks.py",
        "resume.py",
        "serving.py",
        "soak.py",
        "training.py",
        "translation.py",
    ],
)
def test_they_say_what_they_do(script: str) -> None:
    assert f"usage: {script}" in run(script, "--help")


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_kill_ends_what_has_a_session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    kills, processes = import_module("kills"), import_module("bulk_kills")
    waits = "import time; time.sleep(600)"
    launches = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waits!r}], start_new_session=True)"
    with subprocess.Popen([sys.executable, "-c", launches]) as launcher:
        while not (ranks := processes.find_below(launcher.pid, "sleep")):
            time.sleep(0.01)
        kills.kill(launcher)
    assert launcher.returncode == -9
    assert processes.list_processes().keys().isdisjoint(ranks)


@pytest.mark.exhaustive
def test_fuzzing_leaves_nothing(tmp_path: Path) -> None:
    def find_left() -> set[Path]:
        return {path for place in ("/dev/shm", tempfile.gettempdir()) for path in Path(place).glob("fuzz-*")}  # noqa: S108 - only looked at

    before = find_left()
    arguments = ["--only", "stored glossaries", "--cases", "30", "--failures", str(tmp_path)]
    found = json.loads(run("fuzz.py", *arguments).splitlines()[-1])
    assert found["findings"] == []
    assert found["readers"]["stored glossaries"].keys() == {"cases", "read", "refused"}
    assert find_left() <= before


@pytest.mark.exhaustive
def test_training_beside_a_peer_has_the_same_loss(tmp_path: Path) -> None:
    source, target = (tmp_path / name for name in ("source", "target"))
    for path, side in zip((source, target), zip(*generate_training_pairs(1500, seed=1), strict=True), strict=True):
        path.write_text("".join(f"{text}\n" for text in side), encoding="utf-8", newline="\n")
    small = ["--vocabulary", "500", "--batch-tokens", "2000", "--blocks", "1", "--updates", "1", "--device", "cpu"]
    lines = run("training.py", str(source), str(target), "--peer", "torch", *small).splitlines()
    found = json.loads(lines[-1])
    assert found["ratios"].keys() == {"torch"}
    assert found["largest_loss_difference"]["torch"] < 0.01
    assert all(0 < share < 1 for share in found["share_of_limit"].values())
