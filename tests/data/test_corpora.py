from collections.abc import Callable
from typing import Any

import pytest

from transduce.errors import CorpusError

Corpus = list[tuple[str, str]]
A, B = {"source": "a.source", "target": "a.target"}, {"source": "b.source", "target": "b.target", "weight": 0.5}


@pytest.fixture
def two(make_corpus: Callable[..., Corpus], write_corpus: Callable[..., None]) -> tuple[Corpus, Corpus]:
    """Two corpora with 20 pairs in common; the second has ten of its own twice."""
    first, second = make_corpus(100, "a", seed=1), make_corpus(80, "b", seed=2)
    second += [*first[:20], *second[:10]]
    write_corpus(second, "b")
    return first, second


def prepare(preparation: Any, *corpora: dict[str, Any], **data: Any) -> Any:
    return preparation(source=None, corpora=list(corpora), **data)


def test_together_they_are_what_one_corpus_with_all_their_text_is(
    preparation: Any, two: tuple[Corpus, Corpus], write_corpus: Callable[..., None]
) -> None:
    first, second = two
    write_corpus([*first, *second])
    one, several = preparation(), prepare(preparation, A, B)
    assert one.folder != several.folder
    assert several.cleaning == one.cleaning
    assert several.validation == one.validation
    for name in ("tokenizer.model", "train/ids.bin", "train/offsets.bin"):
        assert (several.folder / name).read_bytes() == (one.folder / name).read_bytes()


def test_each_has_its_own_counts_and_the_first_keeps_what_both_have(
    preparation: Any, two: tuple[Corpus, Corpus]
) -> None:
    prepared = prepare(preparation, A, B, held_out=1)
    (first, second), (held_out,) = prepared.corpora, prepared.validation
    assert [(corpus.name, corpus.weight) for corpus in prepared.corpora] == [
        ("a.source a.target", 1.0),
        ("b.source b.target", 0.5),
    ]
    num_held_out = [corpus.count(held_out) for corpus in two]
    left_out = [[corpus.cleaning[rule] for rule in ("held_out", "like_held_out")] for corpus in prepared.corpora]
    assert list(map(sum, left_out)) == num_held_out
    assert sum(first for first, _ in left_out) == 1
    assert first.cleaning["kept"] == 100 - num_held_out[0]
    assert second.cleaning["kept"] + second.cleaning["duplicate"] == 110 - num_held_out[1]
    kept = preparation.texts(prepared)
    assert kept[: first.cleaning["kept"]] == [pair for pair in two[0] if pair != held_out]
    assert len(kept) == len(set(kept))


def test_held_out_pairs_share_no_sentence_with_any_corpus(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    prepared = prepare(preparation, A, B)
    assert len(prepared.validation) == 21
    assert set(prepared.validation) & set(two[0])
    assert set(prepared.validation) & set(two[1])
    kept = preparation.texts(prepared)
    for side in (0, 1):
        assert not {pair[side] for pair in prepared.validation} & {pair[side] for pair in kept}


def test_one_of_weight_one_is_the_corpus_without_a_list(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    assert prepare(preparation, A).folder == preparation(**A).folder


def test_other_weights_need_no_other_ids_and_another_order_does(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    before = prepare(preparation, A, B)
    after = prepare(preparation, A, {**B, "weight": 3.0})
    assert after.folder == before.folder
    assert [corpus.weight for corpus in after.corpora] == [1.0, 3.0]
    assert prepare(preparation, B, A).folder != before.folder


def test_columns_may_be_those_of_one_corpus(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    lines = "".join(f"{number}\t{target}\t{source}\n" for number, (source, target) in enumerate(two[1]))
    (preparation.folder / "b.tsv").write_text(lines, encoding="utf-8")
    (preparation.folder / "a.tsv").write_bytes(preparation.as_tsv(two[0]))
    prepared = prepare(preparation, {"pairs": "a.tsv"}, {"pairs": "b.tsv", "columns": ["3", "2"]})
    assert preparation.texts(prepared) == preparation.texts(prepare(preparation, A, B))
    swapped = prepare(preparation, {"pairs": "a.tsv"}, {"pairs": "b.tsv", "columns": ["2", "3"]})
    assert swapped.folder != prepared.folder


def test_a_mistake_names_the_corpus_and_writes_nothing(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    (preparation.folder / "b.target").write_text("", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"b\.source has 110 lines and .*b\.target has 0"):
        prepare(preparation, A, B)
    (preparation.folder / "b.source").write_text("", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"b\.source and .*b\.target: empty"):
        prepare(preparation, A, B)
    assert not preparation.cache.exists()
