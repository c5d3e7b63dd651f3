"""The commands of docs/libretranslate.md, typed one after the other, without a network.

`PYTHON_WITH_ARGOSTRANSLATE` and `PYTHON_WITH_LIBRETRANSLATE` name the Pythons of environments that have these programs;
without them only our own commands are run.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.bundle import Bundle, Languages, save_bundle

pytest.importorskip("ctranslate2")
pytest.importorskip("onnx")


PAGE = (Path(__file__).parents[2] / "docs" / "libretranslate.md").read_text(encoding="utf-8")
NO_NETWORK = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"]
CAN_LEAVE_NETWORK = (
    shutil.which("unshare") is not None
    and subprocess.run([*NO_NETWORK, "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode == 0
)


def commands(section: str) -> list[str]:
    """The blocks of a section, but for what installs the programs: they are there."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```bash\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [re.sub(r"^pip install .*\n", "", block, flags=re.MULTILINE) for block in blocks]


def environment_with(name: str, program: str) -> Path:
    """The folder of programs of the environment whose Python `name` names; skips where it has no `program`."""
    folder = Path(os.environ.get(name, "")).parent
    if name not in os.environ:
        pytest.skip(f"{name} does not name a Python that has {program}")
    assert (folder / program).exists()
    return folder


def typed(script: str, programs: Path, home: Path) -> str:
    """What the commands print, each of which has to succeed."""
    environment = {
        "HOME": str(home),
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONWARNINGS": "ignore",
        "PYTHONUNBUFFERED": "1",
    }
    command = ["bash", "-euo", "pipefail", "-c", script]
    if CAN_LEAVE_NETWORK:
        command = [*NO_NETWORK, *command[:-1], f"ip link set lo up\n{script}"]
    found = subprocess.run(
        command, cwd=home, env=environment, capture_output=True, check=False, encoding="utf-8", timeout=300
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.fixture
def home(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Path:
    """A home with the run of which the page speaks."""
    bundle = make_bundle()
    languages = Languages(source="en", target="de")
    description = bundle.description.model_copy(update={"languages": languages})
    home = tmp_path / "home"
    save_bundle(home / "runs" / "en-de" / "best", bundle.load_model(), bundle.load_tokenizer(), description)
    return home


@pytest.mark.exhaustive
def test_the_package_is_exported(home: Path) -> None:
    (block,) = commands("Export")
    assert block.startswith("transduce export runs/en-de --to argos")
    typed(block, Path(sys.executable).parent, home)
    assert sorted(path.name for path in home.glob("en-de*")) == ["en-de.argosmodel", "en-de.argosmodel.parity.json"]


def test_argos_translate_is_used_so(home: Path) -> None:
    programs = environment_with("PYTHON_WITH_ARGOSTRANSLATE", "argos-translate")
    typed(*commands("Export"), programs, home)
    use, remove = commands("Argos Translate")
    listed, translation = typed(use, programs, home).splitlines()
    assert listed == "translate-en_de"
    assert translation.strip()
    installed = home / ".local/share/argos-translate/packages/translate-en_de-1_0"
    assert installed.is_dir()
    assert typed(remove, programs, home) == "Removed package translate-en_de\n"
    assert not installed.exists()


@pytest.mark.skipif(not CAN_LEAVE_NETWORK, reason="the system does not let us leave the network")
def test_libretranslate_is_used_so(home: Path) -> None:
    programs = environment_with("PYTHON_WITH_LIBRETRANSLATE", "libretranslate")
    typed(*commands("Export"), programs, home)
    install, serve, ask = commands("LibreTranslate")
    typed(install, programs, home)
    wait = f"for _ in $(seq 120); do sleep 1; {ask.strip()} && break; done"
    answer = typed(f"({serve}) > log 2>&1 &\n{wait}\nkill %1", programs, home)
    assert json.loads(answer).keys() == {"translatedText"}
    assert "Cannot update models" in (home / "log").read_text(encoding="utf-8")
