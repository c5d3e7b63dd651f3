import random
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.config import DataConfig, TextConfig
from transduce.data import PreparedData, prepare
from transduce.training.screened_data import prepare_screened

TEXT = TextConfig(vocabulary=320)


def make_pairs(count: int) -> list[tuple[str, str]]:
    chance = random.Random(1)  # noqa: S311 - nothing here is secret
    words = [f"{first}{vowel}{last}" for first in "bdgklmnprst" for vowel in "aeiou" for last in "nrs"]
    pairs = []
    for _ in range(count):
        chosen = chance.choices(words, k=chance.randint(6, 10))
        pairs.append((" ".join(chosen), " ".join(f"{word}um" for word in chosen)))
    return pairs


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[PreparedData, list[str]]]:
    def prepare_pairs(pairs: list[tuple[str, str]], **data: object) -> tuple[PreparedData, list[str]]:
        (tmp_path / "a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8")
        messages: list[str] = []
        config = DataConfig(folder=str(tmp_path), pairs="a.tsv", held_out=50, **data)  # type: ignore[arg-type]
        return prepare_screened(config, TEXT, tmp_path / "cache", report=messages.append), messages

    return prepare_pairs


def test_serious_findings_are_told_before_training(run: Callable[..., tuple[PreparedData, list[str]]]) -> None:
    pairs = make_pairs(1500)
    for row in range(100):
        pairs[row] = pairs[row][0], f"{pairs[row][1]} über".encode().decode("cp1252")
    prepared, messages = run(pairs)
    (told,) = (message for message in messages if message.startswith("warning: "))
    assert "in the training text: 100 pairs (6.7 %)" in told
    assert "What to do: the model would learn to write so" in told
    assert any("`transduce doctor`" in message for message in messages)
    assert prepared.cleaning["kept"] == 1450
    _, again = run(pairs)  # found in the cache
    assert not any(message.startswith("warning: ") for message in again)


def test_filters_leave_pairs_out_and_count_them(run: Callable[..., tuple[PreparedData, list[str]]]) -> None:
    pairs = make_pairs(1500)
    damaged = range(100)
    for row in damaged:
        pairs[row] = pairs[row][0], f"{pairs[row][1]} über".encode().decode("cp1252")
    pairs[200] = f"{pairs[200][0]} 12", f"{pairs[200][1]} 13"
    pairs[0] = f"{pairs[0][0]} 12", f"{pairs[0][1]} 13"
    prepared, messages = run(pairs, filters=["mojibake", "different_numbers"])
    assert not any(message.startswith("warning: ") for message in messages)
    assert {name: prepared.cleaning[name] for name in ("mojibake", "different_numbers")} == {
        "mojibake": 100,  # the first filter that finds a pair counts it
        "different_numbers": 1,
    }
    assert prepared.cleaning["kept"] + prepared.cleaning["held_out"] == 1500 - 101
    assert len(prepared.train) == prepared.cleaning["kept"]
    assert not any("Ã" in target or "12" in source for source, target in prepared.validation)


def test_other_filters_are_other_data(run: Callable[..., tuple[PreparedData, list[str]]]) -> None:
    pairs = make_pairs(300)
    pairs[7] = pairs[7][0], pairs[7][0]
    plain, _ = run(pairs)
    unexamined, _ = run(pairs, examine=False)
    filtered, _ = run(pairs, filters=["copies"], examine=False)
    assert plain.digests == unexamined.digests
    assert plain.digests["all"] != filtered.digests["all"]
    assert filtered.cleaning["copies"] == 1


def test_filters_apply_to_real_pairs_of_several_corpora(tmp_path: Path) -> None:
    pairs = make_pairs(600)
    pairs[450] = pairs[450][0], pairs[450][0]
    for name, part in {"a": pairs[:400], "b": pairs[400:], "c": [(pairs[0][0], pairs[0][0])]}.items():
        (tmp_path / f"{name}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in part), encoding="utf-8")
    corpora = [
        {"pairs": "a.tsv"},
        {"pairs": "b.tsv", "tag": ">>b<<"},
        {"pairs": "c.tsv", "tag": ">>bt<<", "synthetic": True},
    ]
    data = DataConfig(folder=str(tmp_path), corpora=corpora, held_out=20, filters=["copies"])  # type: ignore[arg-type]
    text = TEXT.model_copy(update={"drop_copies": False})
    prepared = prepare_screened(data, text, tmp_path / "cache", report=lambda _: None)
    assert [corpus.cleaning["copies"] for corpus in prepared.corpora] == [0, 1, 0]


def test_filters_need_a_screen(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in make_pairs(30)), encoding="utf-8")
    data = DataConfig(folder=str(tmp_path), pairs="a.tsv", filters=["copies"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="need a screen"):
        prepare(data, TEXT, tmp_path / "cache", report=lambda _: None)
