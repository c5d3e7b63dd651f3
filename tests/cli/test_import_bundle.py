from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("ctranslate2")


@pytest.fixture(scope="session")
def exported(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's model as a CTranslate2 folder; not to be changed."""
    from transduce.bundle import Bundle, find_bundle
    from transduce.interop import export_bundle

    folder = tmp_path_factory.mktemp("exported") / "ct2"
    export_bundle(Bundle.open(find_bundle(run_folder)), "ctranslate2", folder, num_sentences=2)
    return folder


def test_what_was_exported_comes_back(exported: Path, run_folder: Path, workspace: Path, transduce: Callable) -> None:
    arguments = ["--output", "back", "--probe", "valid.source", "--source-language", "xx"]
    answer = transduce("import", exported, *arguments)
    assert (answer.exit_code, answer.output) == (0, b"")
    for words in ("a model of the format ctranslate2", "10 of 10 lines of valid.source", "back written in"):
        assert words in answer.messages
    best = run_folder / "best"
    for name in ("weights.safetensors", "tokenizer.model"):
        assert (workspace / "back" / name).read_bytes() == (best / name).read_bytes()
    ours, theirs = (transduce("translate", model, standard_input=b"ba do\n") for model in ("back", best))
    assert (ours.exit_code, ours.output) == (0, theirs.output)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere: there is no such file or folder"),
        (["train.source"], "is no model that can be imported"),
    ],
)
def test_mistakes_are_said(workspace: Path, transduce: Callable, arguments: list[str], words: str) -> None:
    answer = transduce("import", *arguments, "--output", "back")
    assert answer.exit_code == 2
    assert words in answer.messages
    assert not (workspace / "back").exists()
