"""A text that a model translates for training: the same file whatever happens, and line by line what the model says."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from transduce.bulk import BulkTask
from transduce.bundle import Bundle, save_bundle
from transduce.config import RunConfig
from transduce.errors import CorpusError, RunError
from transduce.text import read_lines
from transduce.training import train
from transduce.training.synthetic import translation
from transduce.training.synthetic.translation import SyntheticText
from transduce.translation import TranslationOptions, Translator

LINES = ["sun moon", "", "river stone bird", "tree", "wind salt road", "\u3000", "lamp fish door"]
SENTENCES = [line for line in LINES if line.strip()]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "mono.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8", newline="\n")
    return path


@pytest.fixture
def model(copier: Any) -> Bundle:
    return Bundle.open(copier.result.folder / "best")


@pytest.fixture
def tagged_model(make_config: Callable[..., RunConfig]) -> Bundle:
    """A model that knows the tag >>xx<<, and has learned next to nothing."""
    corpora = ({"pairs": "train.tsv", "tag": ">>xx<<"},)
    settings = {"training__updates": 2, "search__min_length": 2}
    return Bundle.open(train(make_config(data__pairs=None, data__corpora=corpora, **settings)).folder / "best")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def make_synthetic(text: Path, model: Bundle, options: TranslationOptions, is_target: bool) -> SyntheticText:
    return SyntheticText(text.name, partial(read_lines, text), lambda: [model], options, is_target)


def ignore(_: str) -> None:
    pass


@pytest.mark.parametrize("is_target", [True, False])
def test_the_other_side_is_what_the_model_says(text: Path, model: Bundle, tmp_path: Path, *, is_target: bool) -> None:
    path = make_synthetic(text, model, TranslationOptions(), is_target).translate(tmp_path, "cpu", 1, ignore)
    given, made = ("target", "source") if is_target else ("source", "target")
    pairs = read(path)
    assert [pair[given] for pair in pairs] == SENTENCES
    assert [pair[made] for pair in pairs] == Translator.load(model.folder).translate(SENTENCES)
    assert [pair["line"] for pair in pairs] == [1, 3, 4, 5, 7]


@pytest.mark.parametrize("sampling", [{}, {"num_samples": 1}])
def test_a_stopped_translation_goes_on_with_the_same_result(
    text: Path, model: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: dict[str, int]
) -> None:
    monkeypatch.setattr(translation, "BulkTask", partial(BulkTask, block_lines=2))
    synthetic = make_synthetic(text, model, TranslationOptions(**sampling), is_target=True)
    (tmp_path / "whole").mkdir()
    whole = synthetic.translate(tmp_path / "whole", "cpu", 1, ignore).read_bytes()
    assert whole.startswith(b'{"line": 1, "source": "')

    class StoppedError(Exception):
        pass

    def stop(message: str) -> None:
        if "% done" in message:
            raise StoppedError(message)

    monkeypatch.setattr(translation, "REPORT_EVERY_SECONDS", 0.0)
    with pytest.raises(StoppedError, match=r"translating mono\.txt: \d+\.\d% done, \d+ minutes left"):
        synthetic.translate(tmp_path, "cpu", 2, stop)
    (unfinished,) = tmp_path.glob("*-unfinished")
    assert len(list(unfinished.rglob("00000000?"))) == 1
    path = synthetic.translate(tmp_path, "cpu", 2, ignore)
    assert path.read_bytes() == whole
    assert not unfinished.exists()


def test_what_another_version_began_is_done_again(
    text: Path, model: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic = make_synthetic(text, model, TranslationOptions(), is_target=True)
    (tmp_path / "whole").mkdir()
    whole = synthetic.translate(tmp_path / "whole", "cpu", 1, ignore).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(translation, "_read_pairs", lambda _: 1 / 0)  # killed after the translation
        with pytest.raises(ZeroDivisionError):
            synthetic.translate(tmp_path, "cpu", 1, ignore)
    (plan,) = tmp_path.glob("*-unfinished/translated/*/plan.json")
    known = json.loads(plan.read_text(encoding="utf-8"))
    plan.write_text(json.dumps(known | {"transduce": "0.0.1"}), encoding="utf-8")
    messages: list[str] = []
    assert synthetic.translate(tmp_path, "auto", 1, messages.append).read_bytes() == whole
    assert messages[0] == f"translating mono.txt by {model.folder}"
    assert messages[1].startswith("translating mono.txt from its beginning: ")
    assert messages[-1] == "mono.txt: of 7 lines, 2 are blank or have a blank translation: left out"
    assert not list(tmp_path.glob("*-unfinished"))


def test_what_is_done_is_found_again_and_never_taken_for_another(text: Path, model: Bundle, tmp_path: Path) -> None:
    synthetic = make_synthetic(text, model, TranslationOptions(), is_target=True)
    path = synthetic.translate(tmp_path, "cpu", 1, ignore)
    path.write_text("kept", encoding="utf-8")
    messages: list[str] = []
    assert synthetic.translate(tmp_path, "cpu", 1, messages.append).read_text(encoding="utf-8") == "kept"
    assert str(path) in messages[0]
    others = [
        make_synthetic(text, model, TranslationOptions(), is_target=False),
        make_synthetic(text, model, TranslationOptions(beam=1), is_target=True),
        replace(synthetic, tag=">>xx<<"),
    ]
    assert len({path, *(one.translate(tmp_path, "cpu", 1, ignore) for one in others)}) == 4
    search = model.description.search.model_copy(update={"length_penalty": 2.0})
    description = model.description.model_copy(update={"search": search})
    save_bundle(tmp_path / "model", model.load_model(), model.load_tokenizer(), description)
    later = replace(synthetic, open_models=lambda: [Bundle.open(tmp_path / "model")])
    assert later.translate(tmp_path, "cpu", 1, ignore) != path
    joined = replace(synthetic, read=lambda: iter(["sun", "moon\nriver"]))
    divided = replace(synthetic, read=lambda: iter(["sun\nmoon", "river"]))
    assert len({one.translate(tmp_path, "cpu", 1, ignore) for one in (joined, divided)}) == 2
    text.write_text("sun\n", encoding="utf-8")
    with pytest.raises(RunError, match=r"mono\.txt: since the run was trained on its translations, the text, a"):
        synthetic.translate(tmp_path, "cpu", 1, ignore, [path.name])
    assert synthetic.translate(tmp_path, "cpu", 1, ignore) != path


def test_a_run_that_was_trained_on_it_needs_no_model(text: Path, model: Bundle, tmp_path: Path) -> None:
    path = make_synthetic(text, model, TranslationOptions(), is_target=True).translate(tmp_path, "cpu", 1, ignore)

    def refuse() -> list[Bundle]:
        raise AssertionError("the model has gone")

    synthetic = SyntheticText(text.name, partial(read_lines, text), refuse, TranslationOptions(), is_target=True)
    known = ["train.tsv", path.name]
    assert synthetic.translate(tmp_path, "cpu", 1, ignore, known) == path
    path.unlink()
    with pytest.raises(AssertionError, match="has gone"):
        synthetic.translate(tmp_path, "cpu", 1, ignore, known)


def test_a_tag_is_read_by_a_model_that_knows_it_and_not_in_the_pairs(
    text: Path, model: Bundle, tagged_model: Bundle, tmp_path: Path
) -> None:
    for one, prefix in ((model, ""), (tagged_model, ">>xx<< ")):
        synthetic = replace(make_synthetic(text, one, TranslationOptions(), is_target=False), tag=">>xx<<")
        pairs = read(synthetic.translate(tmp_path, "cpu", 1, ignore))
        assert [pair["source"] for pair in pairs] == SENTENCES
        expected = Translator.load(one.folder).translate([prefix + sentence for sentence in SENTENCES])
        assert [pair["target"] for pair in pairs] == expected
        assert [pair["line"] for pair in pairs] == [1, 3, 4, 5, 7]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_text_without_sentences_is_refused(text: Path, model: Bundle, tmp_path: Path, content: str) -> None:
    text.write_text(content, encoding="utf-8")
    with pytest.raises(CorpusError, match=r"mono\.txt: .* translates no line of it"):
        make_synthetic(text, model, TranslationOptions(), is_target=True).translate(tmp_path, "cpu", 1, ignore)
    assert list(tmp_path.iterdir()) == [text]
