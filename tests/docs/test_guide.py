"""The commands of the guide, typed one after the other, as somebody does who follows it from first page to last.

Only time and what needs a network differ: training ends within a minute, the test set is small, nothing is installed.
"""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.demo import generate_training_pairs

pytest.importorskip("fastapi")
pytest.importorskip("ctranslate2")

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
INDEX = (GUIDE.parent / "index.md").read_text(encoding="utf-8")
PAGES = re.findall(r"^guide/([\w-]+)$", INDEX, flags=re.MULTILINE)

REPLACED = {
    r"^make demo$": "transduce demo --updates 20",
    r"^(pip install|\. \.venv/bin/activate).*\n": "",
    # The model of most pages has to write words, on a slow and busy machine, too.
    r"--output runs/(mine|seed-\$seed) --time 30m": r"--output runs/\1 --set training.updates=100",
    r"--time 30m": "--time 10s",
    # Inputs of the demonstration differ by one word, which is serious.
    r"^(transduce doctor (?:.*\\\n)*.*)$": r"\1 || [ $? -eq 3 ]",
    r"-n 500 pairs": "-n 50 pairs",
    r"-n \+501": "-n +51",
    r"^(transduce serve .*)$": r"\1 --port $PORT & trap 'kill %1; wait %1' EXIT",
    r"^curl --fail http://127\.0\.0\.1:5000": "curl --silent --retry 60 --retry-connrefused --retry-delay 1 "
    "--fail http://127.0.0.1:$PORT",
}
"""What is typed instead of what a page says, as regular expressions."""


def commands(page: str) -> str:
    """The shell commands of a page of the guide; before those of the first, the demonstration, which is in README."""
    text = (GUIDE / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    script = "".join(["make demo\n" if page == PAGES[0] else "", *blocks])
    for pattern, replacement in REPLACED.items():
        script = re.sub(pattern, replacement, script, flags=re.MULTILINE)
    return script


def test_every_page_is_in_the_table_of_contents() -> None:
    assert sorted(PAGES) == sorted(path.stem for path in GUIDE.glob("*.md"))


@pytest.mark.exhaustive
def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    for side, name in enumerate(("all.en", "all.de")):
        lines = [f"{pair[side]}\n" for pair in generate_training_pairs(2000, seed=1)]
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    more = [f"{target}\n" for _, target in generate_training_pairs(2500, seed=2)[2000:]]
    (tmp_path / "more.de").write_text("".join(more), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PORT": str(port)}
    for page in PAGES:
        typed = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", commands(page)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            check=False,
            encoding="utf-8",
            timeout=600,
        )
        assert typed.returncode == 0, f"{page}: {typed.stderr}"
    assert (tmp_path / "runs" / "longer" / "best").is_dir()
    assert len((tmp_path / "output.txt").read_text(encoding="utf-8").splitlines()) == 50
    assert all((tmp_path / name).stat().st_size > 100_000 for name in ("page.html", "good.html", "bad.html"))
