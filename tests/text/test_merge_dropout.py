import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.errors import ConfigError
from transduce.text import Tokenizer

TEXTS = st.lists(st.one_of(st.text(st.characters(codec=None)), st.text("badofikulemo <>/日😀", max_size=60)))


@settings(deadline=None, max_examples=200)
@given(texts=TEXTS)
def test_without_dropout_it_is_what_sentencepiece_does(tokenizer: Tokenizer, texts: list[str]) -> None:
    assert tokenizer.encode_sampled(texts, 0.0, 1) == tokenizer.encode_all(texts)


@settings(deadline=None, max_examples=200)
@given(texts=TEXTS, dropout=st.floats(0.0, 0.99), seed=st.integers(0, 2**64))
def test_only_the_spelling_changes(tokenizer: Tokenizer, texts: list[str], dropout: float, seed: int) -> None:
    sampled = tokenizer.encode_sampled(texts, dropout, seed)
    assert list(map(tokenizer.decode, sampled)) == list(map(tokenizer.decode, tokenizer.encode_all(texts)))
    assert not {0, 1, tokenizer.pad_id} & {index for ids in sampled for index in ids}


def test_real_words_are_segmented_as_sentencepiece_does(corpus: list[str]) -> None:
    for vocabulary in (300, 500, 700):
        tokenizer = Tokenizer.train(corpus, vocabulary, "bpe")
        assert tokenizer.encode_sampled(corpus, 0.0, 1) == tokenizer.encode_all(corpus)


def test_seeds_decide_and_nothing_else(tokenizer: Tokenizer, corpus: list[str]) -> None:
    corpus = corpus[:100]
    first = tokenizer.encode_sampled(corpus, 0.1, 1)
    other = tokenizer.encode_sampled(corpus, 0.1, 2)
    assert first != other
    assert tokenizer.encode_sampled(iter(corpus), 0.1, 1) == first
    assert Tokenizer.from_bytes(tokenizer.model_bytes, "fresh").encode_sampled(corpus, 0.1, 1) == first
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda seed: tokenizer.encode_sampled(corpus, 0.1, seed), [1, 2, 1, 2]))
    assert found == [first, other, first, other]


def test_every_process_samples_the_same(tokenizer: Tokenizer, corpus: list[str]) -> None:
    program = (
        "import ast, sys; from transduce.text import Tokenizer; "
        "model, corpus = ast.literal_eval(sys.stdin.read()); "
        "print(Tokenizer.from_bytes(model, 'given').encode_sampled(corpus, 0.3, 7))"
    )
    there = subprocess.run(
        [sys.executable, "-c", program],
        input=ascii((tokenizer.model_bytes, corpus)).encode(),
        capture_output=True,
        check=True,
    )
    assert there.stdout.decode().strip() == str(tokenizer.encode_sampled(corpus, 0.3, 7))


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_the_share_of_skipped_merges_is_the_one_asked_for(dropout: float) -> None:
    # One merge makes this word: it is skipped in so many of ten thousand words.
    tokenizer = Tokenizer.train(["a a a a"], 262, "bpe", shrink=True)
    [plain] = tokenizer.encode_all(["a"])
    assert len(plain) == 1
    sampled = tokenizer.encode_sampled(["a"] * 10_000, dropout, 3)
    assert sum(ids != plain for ids in sampled) / 10_000 == pytest.approx(dropout, abs=0.02)


def test_it_samples_like_sentencepiece(tokenizer: Tokenizer, corpus: list[str]) -> None:
    sampled = tokenizer.encode_sampled(corpus, 0.2, 1)
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes)
    theirs = processor.encode(corpus, enable_sampling=True, alpha=0.2, nbest_size=-1)
    assert sum(map(len, sampled)) == pytest.approx(sum(map(len, theirs)), rel=0.03)


@pytest.mark.parametrize("options", [{"model_type": "unigram"}, {"split_by_whitespace": False, "vocab_size": 700}])
def test_models_without_merges_within_words_are_refused(
    foreign_model: Callable[..., bytes], corpus: list[str], options: dict[str, Any]
) -> None:
    model = foreign_model(**options)
    with pytest.raises(ConfigError, match=r"text\.bpe_dropout = 0\.1: .*not made of merges.*bpe_dropout to 0"):
        Tokenizer.from_bytes(model, "given").encode_sampled(corpus, 0.1, 1)
