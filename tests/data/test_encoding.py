import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from transduce.config import TextConfig
from transduce.errors import CorpusError

Corpus = list[tuple[str, str]]


def test_cleaning_is_counted_rule_by_rule(
    preparation: Any, make_corpus: Callable[..., Corpus], write_corpus: Callable[..., None]
) -> None:
    pairs = make_corpus(100)
    make_corpus(5, "valid", seed=1)
    valid = {"validation_source": "valid.source", "validation_target": "valid.target"}
    clean = preparation(**valid).cleaning
    write_corpus([*pairs, ("", "ba"), ("do", " "), pairs[3], pairs[4]])
    dirty = preparation(**valid).cleaning
    difference = {rule: dirty[rule] - clean[rule] for rule in dirty if dirty[rule] != clean[rule]}
    assert sorted(difference.values()) == [2, 2]
    assert dirty["kept"] == clean["kept"] == 100


def test_nothing_kept_is_an_error_with_the_counts(
    preparation: Any, write_corpus: Callable[..., None], make_corpus: Callable[..., Corpus]
) -> None:
    write_corpus([("ba", "do")] * 3 + [("", "fi")] * 7)
    make_corpus(50, "other")
    tokenizer = preparation(source="other.source", target="other.target").folder / "tokenizer.model"
    preparation.cache = preparation.folder / "elsewhere"
    with pytest.raises(CorpusError, match=r"none of the 10 pairs .*held_out 1, like_held_out 2.*kept 0"):
        preparation(TextConfig(tokenizer=str(tokenizer)))
    assert not preparation.cache.exists()


def test_kept_text_is_stored_only_for_bpe_dropout(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    corpus = make_corpus(100)
    assert (preparation().folder / "kept.jsonl").read_bytes() == b""
    prepared = preparation(TextConfig(vocabulary=320, bpe_dropout=0.1))
    lines = (prepared.folder / "kept.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    kept = [tuple(json.loads(line)) for line in lines]
    assert kept == preparation.texts(prepared)
    assert Counter(kept) + Counter(prepared.validation) == Counter(corpus)
