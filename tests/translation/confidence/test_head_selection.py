import gzip
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.config import SearchConfig
from transduce.errors import CorpusError, UserError
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation import (
    AlignmentHead,
    ForcedDecoder,
    GoldAlignment,
    align_pairs,
    choose_head,
    measure_heads,
    read_gold_alignments,
)
from transduce.translation.confidence import head_selection as head_selection_module
from transduce.translation.confidence.head_selection import NULL, LexicalModel

Pairs = list[tuple[str, str]]
KINDS = ("right", "first", "last", "frequent", "even", "random")


def diagonal(pairs: Pairs) -> list[GoldAlignment]:
    links = [frozenset((number, number) for number in range(len(target.split()))) for _, target in pairs]
    return [GoldAlignment(one, one) for one in links]


@pytest.fixture
def copies(make_sentences: Callable[..., list[str]]) -> Pairs:
    return [(line, line) for line in make_sentences(200, seed=41)]


@pytest.fixture
def decoder(copier: Transformer, tokenizer: Tokenizer) -> ForcedDecoder:
    return ForcedDecoder(copier, tokenizer, SearchConfig(batch_tokens=500))


def test_every_head_and_mean_is_measured_at_either_offset(random_model: Transformer, tokenizer: Tokenizer) -> None:
    decoder = ForcedDecoder(random_model, tokenizer, SearchConfig())
    measured = measure_heads(decoder, [("sun moon", "moon sun")])
    assert list(map(str, measured)) == [
        *("1.1", "1.2", "1.3", "1.4", "1", "1.1+1", "1.2+1", "1.3+1", "1.4+1", "1+1"),
        *("2.1", "2.2", "2.3", "2.4", "2", "2.1+1", "2.2+1", "2.3+1", "2.4+1", "2+1"),
    ]


def test_with_gold_it_is_the_error_rate(decoder: ForcedDecoder, copies: Pairs) -> None:
    """1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), A found, S sure, P possible, over all pairs."""
    gold = diagonal(copies)
    for number in range(0, len(gold), 3):
        gold[number] = GoldAlignment(frozenset({(0, 0)}), gold[number].possible)
    for head, quality in measure_heads(decoder, copies, gold).items():
        alignments = align_pairs(decoder, copies, head)
        right = total = 0
        for alignment, expected in zip(alignments, gold, strict=True):
            found = {link[:2] for link in alignment.links}
            right += len(found & expected.sure) + len(found & expected.possible)
            total += len(found) + len(expected.sure)
        assert quality == pytest.approx(right / total)


def test_words_alone_choose_the_head_that_gold_alignments_choose(decoder: ForcedDecoder, copies: Pairs) -> None:
    by_words, by_gold = measure_heads(decoder, copies), measure_heads(decoder, copies, diagonal(copies))
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

    monkeypatch.setattr(head_selection_module, "cross_attention_weights", fake)
    decoder = ForcedDecoder(make_model(num_heads=len(KINDS), d_k=4, d_v=4), tokenizer, SearchConfig())
    measured = measure_heads(decoder, pairs, diagonal(pairs) if with_gold else None)
    assert choose_head(measured) == AlignmentHead(0, KINDS.index("right"))
    of_kind = {kind: measured[AlignmentHead(0, head)] for head, kind in enumerate(KINDS)}
    margin = 0.3 if with_gold else 1.0
    assert all(of_kind["right"] > quality + margin for kind, quality in of_kind.items() if kind != "right")


def test_the_first_of_equals_is_chosen() -> None:
    measured = {AlignmentHead(0, 1): 0.5, AlignmentHead(1, 0): 0.7, AlignmentHead(1): 0.7}
    assert choose_head(measured) == AlignmentHead(1, 0)


def test_the_first_pairs_of_a_stream_are_enough(
    decoder: ForcedDecoder, copies: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_selection_module, "NUM_PAIRS", 50)
    expected = measure_heads(decoder, copies[:50])

    def endless() -> Iterator[tuple[str, str]]:
        while True:
            yield from copies

    assert measure_heads(decoder, endless()) == expected
    assert measure_heads(decoder, copies, diagonal(copies)) == measure_heads(
        decoder, copies[:50], diagonal(copies[:50])
    )


def test_blank_lines_count_for_nothing(decoder: ForcedDecoder, copies: Pairs) -> None:
    blank = [("", ""), ("sun", ""), ("", "sun"), ("\u200b", "\u200b")]
    gold = GoldAlignment(frozenset(), frozenset())
    some = [one for pair in copies[:30] for one in (pair, blank[len(pair[0]) % 3])]
    golds = [one for pair in diagonal(copies[:30]) for one in (pair, gold)]
    for head, quality in measure_heads(decoder, some, golds).items():
        assert quality == pytest.approx(measure_heads(decoder, copies[:30], diagonal(copies[:30]))[head])
    with pytest.raises(CorpusError, match="none of 3 pairs has words on both sides: choose"):
        measure_heads(decoder, blank[:3])
    with pytest.raises(CorpusError, match="none of 0 pairs"):
        measure_heads(decoder, [])


@pytest.mark.parametrize("link", [(2, 0), (0, 2)])
def test_gold_of_words_that_are_not_there_is_named(decoder: ForcedDecoder, link: tuple[int, int]) -> None:
    gold = [GoldAlignment(frozenset(), frozenset()), GoldAlignment(frozenset({link}), frozenset({link}))]
    with pytest.raises(CorpusError, match=f"line 2: {link[0]}-{link[1]} must be .* with 2 and 2 words"):
        measure_heads(decoder, [("sun", "moon"), ("sun moon", "moon sun")], gold)


def test_there_must_be_gold_for_each_pair(decoder: ForcedDecoder, copies: Pairs) -> None:
    for gold in ([], diagonal(copies[:3]), diagonal(copies[:5])):
        with pytest.raises(CorpusError, match=f"4 pairs and {len(gold)} gold alignments: there must be"):
            measure_heads(decoder, copies[:4], gold)


def test_too_long_pairs_are_named(make_model: Callable[..., Transformer], tokenizer: Tokenizer) -> None:
    decoder = ForcedDecoder(make_model(positions="learned", max_positions=6), tokenizer, SearchConfig())
    with pytest.raises(UserError, match="line 2: the source has 7 tokens"):
        measure_heads(decoder, [("sun", "moon"), ("moon moon moon moon moon moon", "moon")])


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


WordPairs = list[tuple[list[str], list[str]]]
HOUSE: WordPairs = [
    (["the", "house"], ["das", "haus"]),
    (["the", "book"], ["das", "buch"]),
    (["a", "book"], ["ein", "buch"]),
]


def probability(model: LexicalModel, target: str, source: str) -> float:
    return model.probabilities.get((source, target), 0.0)


def log_likelihood(pairs: WordPairs, model: LexicalModel) -> float:
    """Brown et al. 1993, eq. 6, with the number of target words given: every source word may be meant, or none."""
    return sum(
        math.log(sum(probability(model, word, source) for source in (NULL, *sources)) / (len(sources) + 1))
        for sources, targets in pairs
        for word in targets
    )


def by_hand(pairs: WordPairs, iterations: int) -> dict[tuple[str, str], float]:
    """EM as the paper writes it, count by count (Brown et al. 1993, eq. 11 to 15)."""
    t: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        totals: dict[str, float] = defaultdict(float)
        for sources, targets in pairs:
            for target in targets:
                everything = sum(t[source, target] for source in (NULL, *sources))
                for source in (NULL, *sources):
                    counts[source, target] += t[source, target] / everything
                    totals[source] += t[source, target] / everything
        t = defaultdict(float, {entry: count / totals[entry[0]] for entry, count in counts.items()})
    return t


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_it_is_em_count_by_count(iterations: int) -> None:
    pairs = [*HOUSE, (["the", "the", "house"], ["haus"]), ([], ["buch"]), (["book"], []), ([], [])]
    expected = by_hand(pairs, iterations)
    found = LexicalModel.fit(pairs, iterations)
    assert set(found.probabilities) == set(expected)
    for (source, target), value in expected.items():
        assert probability(found, target, source) == pytest.approx(value)


def test_probabilities_of_a_source_word_sum_to_one() -> None:
    totals: dict[str, float] = defaultdict(float)
    for (source, _), value in LexicalModel.fit(HOUSE).probabilities.items():
        totals[source] += value
    assert set(totals) == {NULL, "the", "house", "book", "a"}
    assert list(totals.values()) == pytest.approx([1.0] * 5)


def test_no_iteration_lowers_the_likelihood() -> None:
    likelihoods = [log_likelihood(HOUSE, LexicalModel.fit(HOUSE, iterations)) for iterations in range(1, 12)]
    assert likelihoods == sorted(likelihoods)
    assert likelihoods[-1] > likelihoods[0] + 0.5


def test_words_that_go_together_are_found() -> None:
    model = LexicalModel.fit(HOUSE, 20)
    for source, target in [("the", "das"), ("book", "buch"), ("house", "haus"), ("a", "ein")]:
        best = max(["das", "haus", "buch", "ein"], key=lambda word: probability(model, word, source))
        assert best == target
    table = model.table(["the", "a", "never"], ["haus", "das"])
    assert table.shape == (3, 2)
    assert table[0].tolist() == [probability(model, "haus", "the"), probability(model, "das", "the")]
    assert table[1:].tolist() == [[0, 0], [0, 0]]  # words that were never in one pair
    assert model.table([], ["haus"]).shape == (0, 1)
    assert model.table(["the"], []).shape == (1, 0)


def test_nothing_teaches_nothing() -> None:
    assert LexicalModel.fit([]).probabilities == {}
    assert LexicalModel.fit([(["a"], [])]).probabilities == {}
