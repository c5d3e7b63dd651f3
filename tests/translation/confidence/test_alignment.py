import itertools
from collections.abc import Callable
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from transduce.config import SearchConfig
from transduce.data import Batch
from transduce.errors import ConfigError, UserError
from transduce.model import Transformer, cross_attention_weights
from transduce.text import Tokenizer
from transduce.translation import Alignment, AlignmentHead, ForcedDecoder, align_pairs, align_stream
from transduce.translation.confidence import scoring as scoring_module
from transduce.translation.confidence.alignment import Link, Words, divide_lines, sum_by_words

Pairs = list[tuple[str, str]]
HEADS = [AlignmentHead(0, 0), AlignmentHead(1, 3), AlignmentHead(1, 2, 1), AlignmentHead(0), AlignmentHead(1, None, 1)]
SEARCH = SearchConfig(batch_tokens=60)


@pytest.fixture(scope="module")
def one_headed(
    make_model: Callable[..., Transformer], tokenizer: Tokenizer, make_sentences: Callable[..., list[str]]
) -> ForcedDecoder:
    """Copies nearly every word, with the one head that it has: where it looks is what it copies."""
    model = make_model(dropout=0.0, num_heads=1).train()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for number in range(1, 301):
        ids = [[*line, tokenizer.end_id] for line in tokenizer.encode_all(make_sentences(40, seed=number))]
        batch = Batch.from_ids(ids, ids, tokenizer.pad_id)
        logits = model(batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
        loss = F.cross_entropy(logits[batch.target_mask], batch.target_ids[batch.target_mask])
        optimizer.param_groups[0]["lr"] = 1e-2 * min(number / 30, (30 / number) ** 0.5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return ForcedDecoder(model.eval(), tokenizer, SEARCH)


@pytest.fixture
def decoder(random_model: Transformer, tokenizer: Tokenizer) -> ForcedDecoder:
    return ForcedDecoder(random_model, tokenizer, SEARCH)


@pytest.fixture
def pairs(make_sentences: Callable[..., list[str]]) -> Pairs:
    plain = zip(make_sentences(15, seed=31), make_sentences(15, seed=32, most_words=9), strict=True)
    return [*plain, ("", "sun"), ("sun", "  "), ("", ""), (" \u3000 ", "\u200b"), ("語 ½ \u200b", "\u200b moon ▁ a")]


def test_what_is_copied_is_aligned_with_itself(
    one_headed: ForcedDecoder, make_sentences: Callable[..., list[str]]
) -> None:
    lines = make_sentences(300, seed=999)
    alignments = align_pairs(one_headed, [(line, line) for line in lines], AlignmentHead(0, 0))
    links = list(chain(*(alignment.links for alignment in alignments)))
    assert len(links) == sum(len(line.split()) for line in lines)
    assert np.mean([link.source == link.target for link in links]) >= 0.95


def test_a_word_is_aligned_with_the_one_that_most_of_its_attention_is_on(decoder: ForcedDecoder, pairs: Pairs) -> None:
    """Pair by pair, piece by piece, without batches and matrices."""
    tokenizer = decoder.tokenizer
    for head in HEADS:
        for (source, target), alignment in zip(pairs, align_pairs(decoder, pairs, head), strict=True):
            sides = [[tokenizer.encode(word) for word in side.split()] for side in (source, target)]
            ids = [torch.tensor([[*chain(*side), tokenizer.end_id]]) for side in sides]
            with torch.no_grad():
                masked = ids[0], ids[0] >= 0, ids[1], ids[1] >= 0
                weights = list(cross_attention_weights(decoder.model, *masked))[head.layer][0]
            attention = weights.mean(dim=0) if head.head is None else weights[head.head]
            of_source, of_target = ([word for word, pieces in enumerate(side) for _ in pieces] for side in sides)
            expected = []
            for word in sorted(set(of_target)):
                rows = [row + head.offset for row, owner in enumerate(of_target) if owner == word]
                sums = [0.0] * len(sides[0])
                for column, owner in enumerate(of_source):
                    sums[owner] += float(attention[rows, column].sum())
                if of_source:
                    expected.append((int(np.argmax(sums)), word, pytest.approx(max(sums) / len(rows), abs=1e-5)))
            assert list(alignment.links) == expected


def test_line_n_in_is_line_n_out(decoder: ForcedDecoder, pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    found = align_pairs(decoder, pairs, AlignmentHead(1, 2))
    assert [(alignment.source, alignment.target) for alignment in found] == [
        (tuple(source.split()), tuple(target.split())) for source, target in pairs
    ]
    assert [str(alignment) for alignment in found[15:19]] == [""] * 4
    assert [link.target for link in found[19].links] == [1, 3]  # of "\u200b" and "▁" there are no pieces
    assert all(link.source in {0, 1} for link in found[19].links)
    monkeypatch.setattr(scoring_module, "_PAIRS_AT_A_TIME", 4)
    assert list(map(str, align_stream(decoder, iter(pairs), AlignmentHead(1, 2)))) == list(map(str, found))


def test_a_batch_is_each_alone_in_any_order(decoder: ForcedDecoder, pairs: Pairs) -> None:
    head = AlignmentHead(1, 1)
    together = list(map(str, align_pairs(decoder, pairs, head)))
    assert [str(align_pairs(decoder, [pair], head)[0]) for pair in pairs] == together
    assert list(map(str, align_pairs(decoder, pairs[::-1], head)[::-1])) == together


def test_heads_differ_and_shares_are_shares(decoder: ForcedDecoder, pairs: Pairs) -> None:
    found = [align_pairs(decoder, pairs, head) for head in HEADS]
    assert len({tuple(map(str, alignments)) for alignments in found}) == len(HEADS)
    weights = [link.weight for alignments in found for alignment in alignments for link in alignment.links]
    assert min(weights) > 0
    assert max(weights) <= 1 + 1e-6


def test_how_an_alignment_is_written() -> None:
    alignment = Alignment(("a", "dog"), ("Hund", "ein"), (Link(1, 0, 0.5), Link(0, 1, 1.0)))
    assert str(alignment) == "1-0 0-1"
    assert alignment.as_json() == {
        "source": ("a", "dog"),
        "target": ("Hund", "ein"),
        "alignment": [{"source": 1, "target": 0, "weight": 0.5}, {"source": 0, "target": 1, "weight": 1.0}],
    }


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("2.1", AlignmentHead(1, 0)),
        ("1.1+1", AlignmentHead(0, 0, 1)),
        ("3", AlignmentHead(2)),
        ("3+1", AlignmentHead(2, None, 1)),
    ],
)
def test_a_head_is_read_as_it_is_written(text: str, head: AlignmentHead) -> None:
    assert AlignmentHead.parse(text) == head
    assert str(head) == text


@pytest.mark.parametrize(
    "text", ["", "a", "1.", ".1", "-1", "1.-1", "1.1+2", "1.1.1", "1 .1", "٣", "1.1+1\n", "99999", "0", "1.0"]
)
def test_what_is_no_head_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be LAYER\.HEAD") as refused:
        AlignmentHead.parse(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    "head", [AlignmentHead(2, 0), AlignmentHead(0, 4), AlignmentHead(2), AlignmentHead(-1), AlignmentHead(0, 0, 2)]
)
def test_a_head_that_the_model_has_not(decoder: ForcedDecoder, head: AlignmentHead) -> None:
    with pytest.raises(ConfigError, match="layers 1 to 2, in each of them heads 1 to 4") as refused:
        align_pairs(decoder, [("sun", "moon")], head)
    assert repr(str(head)) in str(refused.value)


def test_what_learned_positions_do_not_reach_is_named_by_line(
    make_model: Callable[..., Transformer], tokenizer: Tokenizer
) -> None:
    decoder = ForcedDecoder(make_model(positions="learned", max_positions=6), tokenizer, SearchConfig())
    pairs = [("moon", "moon"), ("moon", "moon moon moon moon moon moon")]
    with pytest.raises(UserError, match=r"line 2: the target has 7 tokens, .* up to 6 .* split"):
        align_pairs(decoder, pairs, AlignmentHead(0, 0))


ODD = [
    "",
    " \t ",
    "  many   spaces  between\twords ",
    "one\u3000wide space",
    "zero\u200bwidth",
    "\u200b alone",
    "語 の 語",
    "a\u2028b\u0085c\x1cd",
    "½ ﷺ ™ ´",
    "▁ under_lined ▁▁a",
    "</s> <pad>",
    "🙂 👩‍👩‍👧",
    "a\u0301 \u0301b",
]


@given(st.lists(st.text(max_size=20), max_size=4))
@settings(max_examples=200, deadline=None)
def test_words_are_those_of_split(tokenizer: Tokenizer, lines: list[str]) -> None:
    for line, words in zip(lines, divide_lines(tokenizer.encode_all, lines), strict=True):
        assert words.words == tuple(line.split())
        assert len(words.pieces) == len(words.words)


@pytest.mark.parametrize("line", ODD)
def test_pieces_of_odd_words(tokenizer: Tokenizer, line: str) -> None:
    (words,) = divide_lines(tokenizer.encode_all, [line])
    assert words.words == tuple(line.split())
    for word, pieces in zip(words.words, words.pieces, strict=True):
        assert list(pieces) == tokenizer.encode(word)
    assert words.ids == [index for pieces in words.pieces for index in pieces]


def test_a_line_has_the_pieces_that_translation_gives_it(
    tokenizer: Tokenizer, make_sentences: Callable[..., list[str]]
) -> None:
    lines = [*make_sentences(50, seed=30), *ODD[:6], *ODD[6:7], *ODD[8:12], "A man, in a hat (red) — isn't he?"]
    for line, words in zip(lines, divide_lines(tokenizer.encode_all, lines), strict=True):
        assert words.ids == tokenizer.encode(line)


def made(*sizes: int) -> Words:
    """A line of words with so many pieces each."""
    return Words(tuple("w" for _ in sizes), tuple((5,) * size for size in sizes))


@pytest.mark.parametrize("offset", [0, 1])
def test_attention_between_words_is_the_sum_over_their_pieces(offset: int) -> None:
    torch.manual_seed(0)
    sources, targets = [made(2, 1, 0, 3), made(1), made()], [made(1, 2), made(2, 0, 1), made(1)]
    weights = torch.rand(3, 2, 4, 7)
    found = sum_by_words(weights, sources, targets, offset)
    assert found.shape == (3, 2, 3, 4)
    expected = torch.zeros(3, 2, 3, 4)
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        of_source, of_target = (
            [number for number, pieces in enumerate(side.pieces) for _ in pieces] for side in (source, target)
        )
        for (t, target_word), (s, source_word) in itertools.product(enumerate(of_target), enumerate(of_source)):
            expected[row, :, target_word, source_word] += weights[row, :, t + offset, s]
    torch.testing.assert_close(found, expected)
