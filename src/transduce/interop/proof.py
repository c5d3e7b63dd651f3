"""The proof that another program computes the same as a model; every export and every import makes one."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor

from transduce import __version__
from transduce.bundle import model_tensors
from transduce.config import SearchConfig
from transduce.errors import ParityError
from transduce.interop.formats import Runtime
from transduce.interop.parity import TOLERANCES, Bleu, Parity, Tolerance, WorstToken, bound_rounding
from transduce.interop.probe import Probe
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation import ForcedDecoder, NativeEngine, score_ids

Ids = list[list[int]]
Scores = list[list[float]]

_SEED = 1  # of the tokens that stand in for others: the same in every proof


@dataclass(frozen=True)
class Measurement:
    """Results of a model and of another program on the same sentences.

    Rows of ids end with `</s>`; scores are natural log-probabilities of tokens.

    Args:
        sources: ids of the texts.
        greedy: the model's own greedy translations.
        their_greedy: the greedy translations of the other program.
        targets: the scored translations: the model's greedy translations, then the same with some tokens replaced.
        scores: those of every token of the targets by the model.
        their_scores: those of the same tokens by the other program.
        gaps: for each sentence whose greedy translations differ, how much less probable than its own token the model
            finds the first differing token of the other program, in nats.
    """

    sources: Ids
    greedy: Ids
    their_greedy: Ids
    targets: Ids
    scores: Scores
    their_scores: Scores
    gaps: dict[int, float]

    @cached_property
    def differences(self) -> Scores:
        """The differences between the two log-probabilities of each token."""
        rows = zip(self.scores, self.their_scores, strict=True)
        return [[abs(one - other) for one, other in zip(ours, theirs, strict=True)] for ours, theirs in rows]

    @property
    def num_tokens(self) -> int:
        """The number of compared log-probabilities."""
        return sum(map(len, self.differences))

    @property
    def mean(self) -> float:
        """The mean of all differences."""
        return math.fsum(map(math.fsum, self.differences)) / self.num_tokens

    def worst(self) -> tuple[int, int]:
        """Row and position of the largest difference."""
        row = max(range(len(self.differences)), key=lambda row: max(self.differences[row]))
        return row, max(range(len(self.differences[row])), key=self.differences[row].__getitem__)


def measure(decoder: ForcedDecoder, runtime: Runtime, texts: Sequence[str]) -> Measurement:
    """Run greedy search and forced decoding in both programs, the model itself in float32 and on one thread.

    Raises:
        ParityError: the scores of the other program are not finite, or not one for each token.
    """
    tokenizer, model = decoder.tokenizer, decoder.model
    sources = [tokenizer.as_source(ids) for ids in tokenizer.encode_all(texts)]
    limits = [min(len(source) + decoder.search.max_extra_length, model.longest) for source in sources]
    with _limit_to_one_thread():
        greedy = _translate_greedily(decoder, sources)
        # Where there is no more room, we end a translation, and others break it off.
        their_greedy = [
            row if len(row) < limit else [*row[: limit - 1], tokenizer.end_id]
            for row, limit in zip(runtime.greedy(sources, limits), limits, strict=True)
        ]
        targets = [*greedy, *_perturb_targets(greedy, tokenizer)]
        scores = _score_targets(decoder, [*sources, *sources], targets)
        their_scores = runtime.forced_scores([*sources, *sources], targets)
        gaps = {}
        for index, (ours, theirs) in enumerate(zip(greedy, their_greedy, strict=True)):
            if ours != theirs:
                gaps[index] = _measure_gap(decoder, sources[index], ours, theirs)
    for row, (target, found) in enumerate(zip(targets, their_scores, strict=True)):
        if len(found) != len(target) or not all(map(math.isfinite, found)):
            raise ParityError(
                f"{runtime.name} gives {found} as the log-probabilities of the {len(target)} tokens "
                f"{tokenizer.pieces(target)}, a translation of {texts[row % len(texts)]!r}"
            )
    return Measurement(sources, greedy, their_greedy, targets, scores, their_scores, gaps)


@contextmanager
def _limit_to_one_thread() -> Iterator[None]:
    """PyTorch computes on one thread within the block: with several, it sums in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _translate_greedily(decoder: ForcedDecoder, sources: Ids) -> Ids:
    engine = NativeEngine(decoder.model, decoder.tokenizer.end_id, "float32")
    lengths = {name: getattr(decoder.search, name) for name in ("max_extra_length", "batch_tokens")}
    return [best.ids for (best,) in engine.search(sources, SearchConfig(beam=1, **lengths))]


def _score_targets(decoder: ForcedDecoder, sources: Ids, targets: Ids) -> Scores:
    return [found.token_scores for found in score_ids(decoder, sources, targets)]


def _perturb_targets(targets: Ids, tokenizer: Tokenizer) -> Ids:
    """The targets with about every third token replaced by any other token that targets can have."""
    chance = np.random.default_rng(_SEED)
    spelled = tokenizer.encode_targets(tokenizer.pieces(range(2, tokenizer.pad_id)))
    others = sorted({index for row in spelled for index in row})
    return [
        [*(int(chance.choice(others)) if chance.random() < 1 / 3 else index for index in target[:-1]), target[-1]]
        for target in targets
    ]


def _measure_gap(decoder: ForcedDecoder, source: list[int], ours: list[int], theirs: list[int]) -> float:
    """How much more probable the model finds its own first differing token, in nats; inf if one target is a prefix."""
    num_same = next((place for place, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other), None)
    if num_same is None:
        return math.inf
    rows = [ours[: num_same + 1], theirs[: num_same + 1]]
    own, other = (row[-1] for row in _score_targets(decoder, [source, source], rows))
    return own - other


@dataclass(frozen=True)
class Claim:
    """The claim that a proof checks.

    Args:
        target: the format, as in "ctranslate2".
        precision: that of the weights in the format, a key of `TOLERANCES`.
        model: SHA-256 of the weights of the bundle.
        weights: the weights read back from the format, by their names in a bundle; None where that is not possible.
    """

    target: str
    precision: str
    model: str
    weights: Mapping[str, Tensor] | None = None


def prove(decoder: ForcedDecoder, runtime: Runtime, probe: Probe, claim: Claim) -> Parity:
    """Prove that `runtime` computes what the model of `decoder` computes in float32, on one thread.

    The proof compares the ids of the texts; the log-probability of every token of the model's greedy translations, and
    of the same with a third of the tokens replaced; the greedy translations and their texts; and the weights. A
    different greedy translation passes only where the model finds its first differing token about as probable as its
    own.

    Args:
        decoder: the model, on the CPU.
        runtime: the other program.
        probe: the sentences that both translate.
        claim: the model, the format and the precision.

    Raises:
        ParityError: the programs differ by more than is allowed; names the worst sentence with both scores.
    """
    measured = measure(decoder, runtime, probe.texts)
    tokenizations = runtime.encode(probe.texts)
    same_tokenizations = None if tokenizations is None else list(map(list.__eq__, tokenizations, measured.sources))
    changed = [] if claim.weights is None else _find_changed_tensors(decoder.model, claim)
    texts = _compare_texts(measured, runtime, decoder.tokenizer)
    parity = Parity(
        model=claim.model,
        target=claim.target,
        precision=claim.precision,
        ours=f"Transduce {__version__}, PyTorch {torch.__version__}",
        theirs=runtime.name,
        probe=probe.origin,
        sentences=len(probe.texts),
        identical_tokenizations=None if same_tokenizations is None else sum(same_tokenizations),
        tokens=measured.num_tokens,
        largest_difference=max(map(max, measured.differences)),
        mean_difference=measured.mean,
        tolerance=TOLERANCES[claim.precision],
        worst=_describe_worst_token(measured, probe, decoder.tokenizer),
        identical_greedy=len(probe.texts) - len(measured.gaps),
        bleu=_compare_bleu(measured, probe, runtime, decoder.tokenizer),
        identical_texts=None if texts is None else len(measured.greedy) - len(texts),
        identical_weights=None if claim.weights is None else len(claim.weights) - len(changed),
    )
    problems = [*_find_excesses(parity), *_find_unexplained_differences(measured, parity.tolerance)]
    if same_tokenizations is not None and not all(same_tokenizations):
        text = probe.texts[same_tokenizations.index(False)]
        problems.append(f"the tokenizer that travels with the model gives other ids: {text!r}")
    problems += [f"the translation {ours!r} becomes {theirs!r}, of the same ids" for ours, theirs in texts or ()]
    problems += [f"{name}: numbers are not what they were, rounding apart" for name in changed]
    if problems:
        raise ParityError(_format_problems(parity, problems))
    return parity


def _describe_worst_token(measured: Measurement, probe: Probe, tokenizer: Tokenizer) -> WorstToken:
    row, place = measured.worst()
    sentence = row % len(probe.texts)
    ours, theirs, target = measured.scores[row], measured.their_scores[row], measured.targets[row]
    return WorstToken(
        sentence=sentence + 1,
        source=probe.texts[sentence],
        target=tokenizer.decode(target),
        piece=tokenizer.pieces(target)[place],
        ours=ours[place],
        theirs=theirs[place],
        score_ours=sum(ours),
        score_theirs=sum(theirs),
    )


def _compare_bleu(measured: Measurement, probe: Probe, runtime: Runtime, tokenizer: Tokenizer) -> Bleu:
    ours = [tokenizer.decode(ids) for ids in measured.greedy]
    theirs = runtime.decode(measured.their_greedy) or [tokenizer.decode(ids) for ids in measured.their_greedy]
    # force: without it, sacreBLEU complains on standard error about text that looks tokenised. No score depends on it.
    metric = BLEU(force=True)
    references = ours if probe.references is None else list(probe.references)
    our_score, their_score = (
        min(100.0, float(metric.corpus_score(texts, [references]).score)) for texts in (ours, theirs)
    )
    return Bleu(
        against="ours" if probe.references is None else "reference",
        ours=our_score,
        theirs=their_score,
        signature=str(metric.get_signature()),
    )


def _compare_texts(measured: Measurement, runtime: Runtime, tokenizer: Tokenizer) -> list[tuple[str, str]] | None:
    """Both texts of every translation that the other program's tokenizer decodes differently."""
    rows = [ids for ids in measured.greedy if tokenizer.unknown_id not in ids]
    theirs = runtime.decode(rows)
    if theirs is None:
        return None
    pairs = zip(map(tokenizer.decode, rows), theirs, strict=True)
    return [(one, other) for one, other in pairs if one != other]


def _find_changed_tensors(model: Transformer, claim: Claim) -> list[str]:
    """Names of tensors that differ from the model's; the logit of `<pad>`, which is never used, may differ."""
    expected, found = dict(model_tensors(model)), claim.weights or {}
    for name in {"projection.weight", "projection.bias"} & expected.keys():
        expected[name] = torch.cat([expected[name][:-1], found[name][-1:]])

    def is_same(name: str) -> bool:
        if name not in expected or name not in found or expected[name].shape != found[name].shape:
            return False
        weight, other = expected[name].detach().float(), found[name].float()
        is_near = (other - weight).abs() <= bound_rounding(claim.precision, weight)
        return bool((is_near | (other == weight)).all())  # -inf is no distance from -inf

    return [name for name in sorted(expected.keys() | found.keys()) if not is_same(name)]


def _find_excesses(parity: Parity) -> Iterator[str]:
    for name in ("largest", "mean"):
        found, allowed = getattr(parity, f"{name}_difference"), getattr(parity.tolerance, name)
        if not found <= allowed:
            yield f"the {name} difference is {found:.3g} nats a token, allowed are {allowed:.3g} in {parity.precision}"


def _find_unexplained_differences(measured: Measurement, tolerance: Tolerance) -> Iterator[str]:
    """Sentences whose greedy translations differ by more than a tie between two tokens explains."""
    for sentence, gap in measured.gaps.items():
        if not gap <= 2 * tolerance.largest:
            yield f"the greedy translation of sentence {sentence + 1} is another, by {gap:.3g} nats less probable"


def _format_problems(parity: Parity, problems: list[str]) -> str:
    worst = parity.worst
    shown = "\n".join(f"  {problem}" for problem in problems[:5])
    more = "" if len(problems) <= 5 else f"\n  and {len(problems) - 5:,} more of this kind"
    return (
        f"{parity.theirs} does not compute the same as the model:\n{shown}{more}\n"
        f"worst is sentence {worst.sentence}, {worst.source!r}: its translation {worst.target!r} has "
        f"{worst.score_ours:.6f} nats by the model and {worst.score_theirs:.6f} by {parity.theirs}, "
        f"its token {worst.piece!r} {worst.ours:.6f} and {worst.theirs:.6f}; nothing was written"
    )
