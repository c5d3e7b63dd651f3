import gzip
import itertools
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from transduce.config import SearchConfig
from transduce.data import Batch
from transduce.errors import ConfigError, CorpusError
from transduce.model import Transformer, cross_attention_weights
from transduce.text import Tokenizer
from transduce.text.glossary import is_border
from transduce.translation import (
    Alignment,
    AlignmentHead,
    ForcedDecoder,
    GoldAlignment,
    align_pairs,
    align_stream,
    choose_head,
    measure_heads,
    read_gold_alignments,
)
from transduce.translation.confidence import alignment as alignment_module
from transduce.translation.confidence import scoring as scoring_module
from transduce.translation.confidence.alignment import (
    Link,
    Words,
    divide_lines,
    divide_lines_by_pieces,
    sum_by_words,
)

Pairs = list[tuple[str, str]]
HEADS = [AlignmentHead(0, 0), AlignmentHead(1, 3), AlignmentHead(1, 2, 1), AlignmentHead(0), AlignmentHead(1, None, 1)]
SEARCH = SearchConfig(batch_tokens=60)


@pytest.fixture(scope="module")
def one_headed(
    make_model: Callable[..., Transformer],
    tokenizer: Tokenizer,
    make_sentences: Callable[..., list[str]],
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
    plain = zip(make_sentences(15, seed=31), make_sentences(15, seed=32, max_words=9), strict=True)
    return [*plain, ("", "sun"), ("sun", "  "), ("", ""), (" \u3000 ", "\u200b"), ("語 ½ \u200b", "\u200b moon ▁ a")]


def test_what_is_copied_is_aligned_with_itself(
    one_headed: ForcedDecoder, make_sentences: Callable[..., list[str]]
) -> None:
    lines = make_sentences(300, seed=999)
    alignments = align_pairs(one_headed, [(line, line) for line in lines], AlignmentHead(0, 0))
    links = list(chain(*(alignment.links for alignment in alignments)))
    assert len(links) == sum(len(line.split()) for line in lines)
    assert np.mean([link.source == link.target for link in links]) >= 0.95


@pytest.mark.exhaustive
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
    with pytest.raises(ConfigError, match="layers 1 to 2, each with heads 1 to 4") as refused:
        align_pairs(decoder, [("sun", "moon")], head)
    assert repr(str(head)) in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "search"),
    [({"positions": "learned", "max_positions": 6}, SearchConfig()), ({}, SearchConfig(max_pieces=10))],
    ids=["learned positions", "max_pieces"],
)
def test_a_pair_that_is_not_read_as_a_whole_has_no_links(
    make_model: Callable[..., Transformer], tokenizer: Tokenizer, settings: dict[str, Any], search: SearchConfig
) -> None:
    decoder = ForcedDecoder(make_model(**settings), tokenizer, search)
    long = " ".join(["moon"] * 12)
    short, *others = align_pairs(decoder, [("moon", "sun"), ("moon", long), (long, "moon")], AlignmentHead(0, 0))
    assert short.links
    assert not short.is_long
    assert all(one.is_long and not one.links for one in others)
    assert [one.target for one in others] == [("moon",) * 12, ("moon",)]


def test_a_stream_has_longer_pairs_than_the_model_usually_reads(
    make_model: Callable[..., Transformer], tokenizer: Tokenizer
) -> None:
    decoder = ForcedDecoder(make_model(), tokenizer, SearchConfig(max_pieces=10))
    long = " ".join(["moon"] * 12)
    aligned, too_long = align_stream(
        decoder, [(long, long), ("moon " * scoring_module.MAX_TOKENS, "moon")], AlignmentHead(0, 0)
    )
    assert (len(aligned.links), aligned.is_long) == (12, False)
    assert too_long.is_long


def test_words_of_scripts_without_spaces_are_divided_by_pieces() -> None:
    texts = ["他们在学校看见了三只狗。", "老师在家看见了狗，走了。", "สุนัขวิ่งเร็วมาก", "see the dog"] * 20
    tokenizer = Tokenizer.train(texts, 340, "bpe", shrink=True)
    lines = ["他们 看见了iPhone。", "老师，走了", "ที่สุนัข", "see the dog", "狗㐀狗", "", "dog 狗 ﬁ狗"]
    divided = divide_lines_by_pieces(tokenizer, tokenizer.encode_all, lines)
    whole = divide_lines(tokenizer.encode_all, lines)
    for line, found, words in zip(lines, divided, whole, strict=True):
        assert found.ids == words.ids
        assert "".join(found.words) == "".join(words.words)
        place = 0
        for word in found.words:
            place = line.index(word, place)
            assert is_border(line, place)
            place += len(word)
    assert len(divided[0].words) > len(whole[0].words)
    assert "iPhone" in divided[0].words
    assert divided[3] == whole[3]
    assert divided[4].words == ("狗", "㐀", "狗")  # a character spelled in bytes


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


KINDS = ("right", "first", "last", "frequent", "even", "random")


def diagonal(pairs: Pairs) -> list[GoldAlignment]:
    links = [frozenset((number, number) for number in range(len(target.split()))) for _, target in pairs]
    return [GoldAlignment(one, one) for one in links]


@pytest.fixture
def copies(make_sentences: Callable[..., list[str]]) -> Pairs:
    return [(line, line) for line in make_sentences(200, seed=41)]


@pytest.fixture
def forced(copier: Transformer, tokenizer: Tokenizer) -> ForcedDecoder:
    return ForcedDecoder(copier, tokenizer, SearchConfig(batch_tokens=500))


def test_every_head_and_mean_is_measured_at_either_offset(random_model: Transformer, tokenizer: Tokenizer) -> None:
    forced = ForcedDecoder(random_model, tokenizer, SearchConfig())
    measured = measure_heads(forced, [("sun moon", "moon sun")])
    assert list(map(str, measured)) == [
        *("1.1", "1.2", "1.3", "1.4", "1", "1.1+1", "1.2+1", "1.3+1", "1.4+1", "1+1"),
        *("2.1", "2.2", "2.3", "2.4", "2", "2.1+1", "2.2+1", "2.3+1", "2.4+1", "2+1"),
    ]


def test_with_gold_it_is_the_error_rate(forced: ForcedDecoder, copies: Pairs) -> None:
    """1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), A found, S sure, P possible, over all pairs."""
    gold = diagonal(copies)
    for number in range(0, len(gold), 3):
        gold[number] = GoldAlignment(frozenset({(0, 0)}), gold[number].possible)
    for head, quality in measure_heads(forced, copies, gold).items():
        alignments = align_pairs(forced, copies, head)
        right = total = 0
        for alignment, expected in zip(alignments, gold, strict=True):
            found = {link[:2] for link in alignment.links}
            right += len(found & expected.sure) + len(found & expected.possible)
            total += len(found) + len(expected.sure)
        assert quality == pytest.approx(right / total)


def test_words_alone_choose_the_head_that_gold_alignments_choose(forced: ForcedDecoder, copies: Pairs) -> None:
    by_words, by_gold = measure_heads(forced, copies), measure_heads(forced, copies, diagonal(copies))
    assert by_gold[choose_head(by_words)] >= max(by_gold.values()) - 0.02
    assert np.corrcoef(list(by_words.values()), list(by_gold.values()))[0, 1] > 0.9
    assert choose_head(by_words).offset == 0  # the attention that predicts a word is the one that looks for it


def looking(kind: str, source_ids: Tensor, target_ids: Tensor, frequent: int) -> Tensor:
    """The attention of a head that aligns each piece with its own, with the same place or word always, or anyhow."""
    places = source_ids.size(1)
    rows = target_ids.shape
    lengths = (source_ids != source_ids.max()).sum(dim=1)
    where = {
        "right": torch.arange(rows[1]).expand(rows).clamp(max=places - 1),
        "first": torch.zeros(rows).long(),
        "last": (lengths - 2).clamp(min=0)[:, None].expand(rows),
        "frequent": (source_ids == frequent).int().argmax(dim=1)[:, None].expand(rows),
        "random": torch.randint(0, places, rows, generator=torch.Generator().manual_seed(0)),
    }
    if kind == "even":
        return torch.full((*rows, places), 1 / places)
    return F.one_hot(where[kind], places).float()


@pytest.mark.parametrize("with_gold", [False, True])
def test_a_head_that_always_looks_at_one_word_does_not_win(
    make_model: Callable[..., Transformer],
    tokenizer: Tokenizer,
    make_sentences: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    with_gold: bool,
) -> None:
    lines = make_sentences(60, seed=42)
    # "the", which every line has, is what a lazy head would look at: t(word | the) is never very small.
    pairs = [(f"the {line} the end", f"the {line} the end") for line in lines]
    (frequent,) = tokenizer.encode("the")[:1]

    def fake(_model: Transformer, source_ids: Tensor, _mask: Tensor, target_ids: Tensor, _: Tensor) -> Iterator[Tensor]:
        heads = [looking(kind, source_ids, target_ids, frequent) for kind in KINDS]
        yield torch.stack(heads, dim=1)

    monkeypatch.setattr(alignment_module, "cross_attention_weights", fake)
    forced = ForcedDecoder(make_model(num_heads=len(KINDS), d_k=4, d_v=4), tokenizer, SearchConfig())
    measured = measure_heads(forced, pairs, diagonal(pairs) if with_gold else None)
    assert choose_head(measured) == AlignmentHead(0, KINDS.index("right"))
    of_kind = {kind: measured[AlignmentHead(0, head)] for head, kind in enumerate(KINDS)}
    margin = 0.3 if with_gold else 1.0
    assert all(of_kind["right"] > quality + margin for kind, quality in of_kind.items() if kind != "right")


def test_the_first_of_equals_is_chosen() -> None:
    measured = {AlignmentHead(0, 1): 0.5, AlignmentHead(1, 0): 0.7, AlignmentHead(1): 0.7}
    assert choose_head(measured) == AlignmentHead(1, 0)


def test_the_first_pairs_of_a_stream_are_enough(
    forced: ForcedDecoder, copies: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment_module, "NUM_PAIRS", 50)
    expected = measure_heads(forced, copies[:50])

    def endless() -> Iterator[tuple[str, str]]:
        while True:
            yield from copies

    assert measure_heads(forced, endless()) == expected
    assert measure_heads(forced, copies, diagonal(copies)) == measure_heads(forced, copies[:50], diagonal(copies[:50]))


def test_blank_lines_count_for_nothing(forced: ForcedDecoder, copies: Pairs) -> None:
    blank = [("", ""), ("sun", ""), ("", "sun"), ("\u200b", "\u200b")]
    gold = GoldAlignment(frozenset(), frozenset())
    some = [one for pair in copies[:30] for one in (pair, blank[len(pair[0]) % 3])]
    golds = [one for pair in diagonal(copies[:30]) for one in (pair, gold)]
    for head, quality in measure_heads(forced, some, golds).items():
        assert quality == pytest.approx(measure_heads(forced, copies[:30], diagonal(copies[:30]))[head])
    with pytest.raises(CorpusError, match="none of 3 pairs has words on both sides: use"):
        measure_heads(forced, blank[:3])
    with pytest.raises(CorpusError, match="none of 0 pairs"):
        measure_heads(forced, [])


@pytest.mark.parametrize("link", [(2, 0), (0, 2)])
def test_gold_of_words_that_are_not_there_is_named(forced: ForcedDecoder, link: tuple[int, int]) -> None:
    gold = [GoldAlignment(frozenset(), frozenset()), GoldAlignment(frozenset({link}), frozenset({link}))]
    with pytest.raises(CorpusError, match=f"line 2: {link[0]}-{link[1]} must be .* with 2 and 2 words"):
        measure_heads(forced, [("sun", "moon"), ("sun moon", "moon sun")], gold)


def test_there_must_be_gold_for_each_pair(forced: ForcedDecoder, copies: Pairs) -> None:
    for gold in ([], diagonal(copies[:3]), diagonal(copies[:5])):
        with pytest.raises(CorpusError, match=f"4 pairs and {len(gold)} gold alignments: there must be"):
            measure_heads(forced, copies[:4], gold)


def test_heads_are_measured_without_pairs_that_are_too_long(
    make_model: Callable[..., Transformer], tokenizer: Tokenizer
) -> None:
    forced = ForcedDecoder(make_model(positions="learned", max_positions=6), tokenizer, SearchConfig())
    short, long = [("sun moon", "moon sun"), ("moon", "sun")], ("moon " * 12, "moon")
    mixed = [short[0], long, short[1]]
    assert measure_heads(forced, mixed) == measure_heads(forced, short)
    gold = diagonal(short)
    with_gold = measure_heads(forced, mixed, [gold[0], GoldAlignment(frozenset(), frozenset()), gold[1]])
    assert with_gold == measure_heads(forced, short, gold)
    with pytest.raises(CorpusError, match="none of 1 pairs is short enough"):
        measure_heads(forced, [long])


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_sure_links_are_possible_too(tmp_path: Path) -> None:
    path = write(tmp_path / "gold", "0-0 2?1 10p12\n\n3-3\n")
    assert read_gold_alignments(path, 3) == [
        GoldAlignment(frozenset({(0, 0)}), frozenset({(0, 0), (2, 1), (10, 12)})),
        GoldAlignment(frozenset(), frozenset()),
        GoldAlignment(frozenset({(3, 3)}), frozenset({(3, 3)})),
    ]
    (tmp_path / "gold.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_gold_alignments(tmp_path / "gold.gz", 3) == read_gold_alignments(path, 3)


@pytest.mark.parametrize("link", ["0", "a-b", "0-", "-1-0", "0:0", "0-0-0", "0--1", "٣-٣", "99999999-0"])
def test_what_is_no_link_is_named(tmp_path: Path, link: str) -> None:
    path = write(tmp_path / "gold", f"0-0\n1-1 {link}\n")
    with pytest.raises(CorpusError, match=r"gold, line 2: .* must be") as refused:
        read_gold_alignments(path, 2)
    assert repr(link) in str(refused.value)


def test_there_must_be_one_line_for_each_pair(tmp_path: Path) -> None:
    path = write(tmp_path / "gold", "0-0\n")
    with pytest.raises(CorpusError, match="has 1 lines and its text has 2 pairs"):
        read_gold_alignments(path, 2)
    with pytest.raises(CorpusError, match="no such file"):
        read_gold_alignments(tmp_path / "nothing", 2)
