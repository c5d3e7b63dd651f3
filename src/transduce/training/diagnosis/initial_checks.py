"""Checks before the first update: of the settings, and of figures that the text itself gives."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from transduce.data import PreparedData
from transduce.training.diagnosis.history import RunHistory, peak_rate, relative_step

BLOCK = 1000
"""Neighbouring training pairs that are measured together."""

MOST_BLOCKS = 20
MOST_TOKENS = 200
"""Tokens of each side, the most frequent ones, whose co-occurrence is counted."""

FEWEST_SENTENCES = 5
"""Sentences of a block that have to contain a token, and that must not, for it to count."""

LEAST_IN_COMMON = 0.1
"""Share of the trigrams' distribution that sentences of one text have in common with its others; less in tiny texts."""

MOST_SENTENCES = 500
"""Sentences of the validation text that are compared with the training text."""


@dataclass(frozen=True)
class TextFigures:
    """Figures of training and validation text, before the first update."""

    unigram_loss: float
    """Entropy of the training targets' tokens without regard to their order, in nats a token: the loss of a model that
    knows how frequent each token is, and nothing else."""
    num_blocks: int
    """Blocks of neighbouring training pairs that `pair_association` was measured in, spread over the training text."""
    unrelated_blocks: int
    """Number of blocks whose sources and targets are unrelated."""
    first_unrelated: int
    """Training pairs before the first of these; 0 if there is none."""
    pair_association: float | None
    """Of the median block; 1 where sources and targets are unrelated. None if there are too few pairs."""
    source_similarity: float
    """`similarity` of the sources of validation and training, from 0 to about 1."""
    target_similarity: float
    """`similarity` of the targets of validation and training."""
    swapped_similarity: float
    """The lower `similarity` of validation sources and training targets, and of validation targets and training
    sources."""


UNRELATED = 1.3
"""`pair_association` below which the pairs of a block are unrelated. In blocks of 300 or 1,000 pairs of four corpora
it was 0.97 to 1.03 for pairs put together at random, and 2.3 to 12 for translations."""

FEWEST_PAIRS = 200
"""Of a block whose `pair_association` is measured."""


def measure_text(prepared: PreparedData) -> TextFigures:
    """Measure a run's text, in at most `MOST_BLOCKS` blocks of it; takes about a second."""
    blocks = _blocks(len(prepared.train))
    pairs = [[prepared.train.pair(index) for index in block] for block in blocks]
    sources, targets = ([[pair[side].tolist() for pair in block] for block in pairs] for side in (0, 1))
    is_measured = len(blocks[0]) >= FEWEST_PAIRS
    found = [pair_association(*sides) for sides in zip(sources, targets, strict=True)] if is_measured else []
    unrelated = [
        block.start
        for block, association, *sides in zip(blocks, found, sources, targets, strict=False)
        if association < UNRELATED or association < neighbours_association(*sides)
    ]
    return TextFigures(
        unigram_loss=entropy(Counter(token for block in targets for sentence in block for token in sentence)),
        num_blocks=len(found),
        unrelated_blocks=len(unrelated),
        first_unrelated=min(unrelated, default=0),
        pair_association=float(np.median(found)) if found else None,
        **_similarities(prepared, sources, targets),
    )


def _similarities(
    prepared: PreparedData, sources: Sequence[Sequence[Sequence[int]]], targets: Sequence[Sequence[Sequence[int]]]
) -> dict[str, float]:
    some = slice(None, None, max(1, len(sources) // 2))
    training = [
        [prepared.tokenizer.decode(sentence) for block in side for sentence in block[some]]
        for side in (sources, targets)
    ]
    validation = [list(side[:MOST_SENTENCES]) for side in zip(*prepared.validation, strict=True)]
    return {
        "source_similarity": similarity(validation[0], training[0]),
        "target_similarity": similarity(validation[1], training[1]),
        "swapped_similarity": min(similarity(validation[0], training[1]), similarity(validation[1], training[0])),
    }


def _blocks(num_pairs: int) -> list[range]:
    """Blocks of `BLOCK` neighbouring pairs, spread evenly; one block of all pairs where there are fewer."""
    if num_pairs <= BLOCK:
        return [range(num_pairs)]
    starts = np.linspace(0, num_pairs - BLOCK, min(MOST_BLOCKS, num_pairs // BLOCK)).astype(int)
    return [range(start, start + BLOCK) for start in starts]


def entropy(counts: Mapping[int, int]) -> float:
    """Entropy of the distribution of these counts, in nats."""
    total = sum(counts.values())
    return -sum(count / total * math.log(count / total) for count in counts.values())


def pair_association(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> float:
    """How much more often tokens of source and target occur together in these pairs than they would by chance.

    For every frequent source token and every frequent target token, it is n times the squared correlation of their
    occurrence in the n pairs (n phi squared, the chi-squared statistic of a two by two table). The mean over all such
    couples is about 1 for unrelated pairs, and grows with n for related ones. 1 where there is too little text.
    """
    source_presence, target_presence = _presence(sources), _presence(targets)
    if not source_presence.size or not target_presence.size:
        return 1.0
    correlation = source_presence.T @ target_presence / len(sources)
    return float(np.square(correlation).mean() * len(sources))


def neighbours_association(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> float:
    """`pair_association` of each source with the target before or after its own, whichever is higher.

    Where neighbouring lines share a topic, pairs that are a line apart are related: in two corpora of news it was 1.4
    to 1.5. For translations it is higher.
    """
    return max(pair_association(sources[1:], targets[:-1]), pair_association(sources[:-1], targets[1:]))


def _presence(sentences: Sequence[Sequence[int]]) -> Float[np.ndarray, "sentences tokens"]:
    """Presence of the most frequent tokens in sentences, normalised to mean 0 and variance 1 in every column."""
    counts = Counter(token for sentence in sentences for token in set(sentence))
    most = len(sentences) - FEWEST_SENTENCES
    chosen = [token for token, count in counts.most_common() if FEWEST_SENTENCES <= count <= most][:MOST_TOKENS]
    columns = {token: column for column, token in enumerate(chosen)}
    presence = np.zeros((len(sentences), len(chosen)), np.float32)
    for row, sentence in enumerate(sentences):
        presence[row, [columns[token] for token in set(sentence) if token in columns]] = 1
    presence -= presence.mean(axis=0)
    presence /= np.sqrt(np.square(presence).mean(axis=0))
    return presence


def similarity(texts: Sequence[str], others: Sequence[str]) -> float:
    """Similarity of the character trigrams of `texts` to those of `others`; about 1 for text of the same kind.

    It is the share that the two distributions have in common, divided by the share that as many sentences of `others`
    have in common with the rest of them, as few sentences never have all trigrams of a language. News and captions of
    pictures had 0.6 to 0.8 in the same language, and texts in two of English, German, Hausa and Igbo at most 0.45. 1
    where `others` are too few.
    """
    step = max(2, len(others) // max(1, len(texts)))
    held_out, rest = others[::step], [text for index, text in enumerate(others) if index % step]
    known = trigrams(rest)
    expected = _in_common(trigrams(held_out), known)
    return _in_common(trigrams(texts), known) / expected if expected > LEAST_IN_COMMON else 1.0


def trigrams(texts: Sequence[str]) -> Counter[str]:
    """Counts of all character trigrams, with a space at both ends of a text."""
    counts: Counter[str] = Counter()
    for text in texts:
        spaced = f" {text} "
        counts.update(spaced[start : start + 3] for start in range(len(spaced) - 2))
    return counts


def _in_common(counts: Counter[str], others: Counter[str]) -> float:
    """Overlap of two distributions: 1 if they are the same, 0 if no trigram is in both."""
    total, other_total = counts.total(), others.total()
    if not total or not other_total:
        return 0.0
    return sum(min(count / total, others[key] / other_total) for key, count in counts.items())


SAME_LANGUAGE = 0.5
"""`similarity` from which two texts count as one language: news and captions, both in English, had 0.6 to 0.8, and
texts in two of English, German, Hausa and Igbo at most 0.45."""

LARGEST_STEP = 0.1
"""`relative_step` from which the learning rate is too high: three times that of the boldest preset. Ten times the rate
of any preset is above it."""

MOST_DROPOUT = 0.5
"""Above, more is lost of every sub-layer's output than is left."""

USUAL_STEP = 0.02
"""The `relative_step` of the rate that is proposed."""


def find_unrelated_pairs(run: RunHistory) -> str | None:
    """Find sources and targets that are no translations of each other: shuffled, sorted, or shifted by a line."""
    blocks, unrelated = run.text.get("num_blocks", 0), run.text.get("unrelated_blocks", 0)
    if not unrelated:
        return None
    where = f", first after pair {run.text['first_unrelated']:,} of those kept" if unrelated < blocks else ""
    return (
        f"in {unrelated} of {blocks} stretches of the training text{where}, words of source and target come together "
        f"no more often than by chance, or less often than those of neighbouring lines: such pairs are no translations "
        f"of each other. The most likely cause is a file that was shuffled or sorted, or has a line more or less than "
        f"the other: compare data.source and data.target line by line"
    )


def find_swapped_validation(run: RunHistory) -> str | None:
    """Find validation text whose sources are in the language of the training targets, and the other way round."""
    if not _is_swapped(run):
        return None
    return (
        "the sides of the validation text are the other way round than those of the training text: swap "
        "data.validation_source and data.validation_target, or the columns of data.validation_pairs"
    )


def find_foreign_validation(run: RunHistory) -> str | None:
    """Find a side of the validation text that is in another language than that side of the training text."""
    if not run.text or _is_swapped(run):
        return None
    foreign = [side for side in ("source", "target") if run.text[f"{side}_similarity"] < SAME_LANGUAGE]
    if not foreign:
        return None
    found = " and ".join(
        f"the {side}s of the validation text ({run.text[f'{side}_similarity']:.2f})" for side in foreign
    )
    return (
        f"{found} hardly resemble those of the training text: text of the same kind has a likeness of about 1, and "
        f"other text in the same language one above {SAME_LANGUAGE}. The most likely cause is another language; scores "
        f"would then not tell which model is best: give other text as "
        f"{' and '.join(f'data.validation_{side}' for side in foreign)}, or leave it out and training text is held out"
    )


def is_foreign(run: RunHistory) -> bool:
    """Whether the validation text is in other languages, so that its figures do not show what the model learns."""
    return find_swapped_validation(run) is not None or find_foreign_validation(run) is not None


def _is_swapped(run: RunHistory) -> bool:
    if not run.text:
        return False
    straight = max(run.text["source_similarity"], run.text["target_similarity"])
    return bool(straight < SAME_LANGUAGE <= run.text["swapped_similarity"])


def find_high_rate(run: RunHistory) -> str | None:
    """Find a learning rate with which every update replaces a good part of the weights."""
    step, training = relative_step(run.config), run.config.training
    if step < LARGEST_STEP:
        return None
    d_model = run.config.model.d_model
    if training.learning_rate is None:
        setting, remedy = f"training.warmup = {training.warmup}", "set it to 4000, as in the paper"
    else:
        setting = f"training.learning_rate = {training.learning_rate:g}"
        remedy = f"set it to about {USUAL_STEP * d_model**-0.5:.1g}"
    return (
        f"{setting} is several times too high: the rate rises to {peak_rate(run.config):.2g}, and an update then "
        f"changes a weight of a network with d_model = {d_model} by up to {step:.0%} of its size, where 1 % to 4 % "
        f"train well. The loss will stop falling early, or rise: {remedy}"
    )


def find_strong_dropout(run: RunHistory) -> str | None:
    """Find dropout that leaves less than half of what a layer computes."""
    dropout = run.config.model.dropout
    if dropout <= MOST_DROPOUT:
        return None
    return (
        f"model.dropout = {dropout:g} is too strong: {dropout:.0%} of what each layer computes is lost, and the "
        f"network learns little more than how frequent each token is. 0.1 to 0.3 train well: set it to one of these"
    )
