"""The proof that another program computes the same as a model. It is part of every export and every import."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor

from transduce import __version__
from transduce.bundle import model_tensors
from transduce.errors import ParityError
from transduce.interop.measurement import Measurement, measure
from transduce.interop.parity import TOLERANCES, Bleu, Extreme, Parity, Tolerance, most_rounding
from transduce.interop.probe import Probe
from transduce.interop.runtime import Runtime
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation import ForcedDecoder


@dataclass(frozen=True)
class Claim:
    """What is to be proven.

    Args:
        target: the format, as in "ctranslate2".
        precision: of the weights there, a key of `TOLERANCES`.
        model: SHA-256 of the weights of the bundle.
        weights: as they were read from there, by the names of the bundle's; None where that is not possible.
    """

    target: str
    precision: str
    model: str
    weights: Mapping[str, Tensor] | None = None


def prove(decoder: ForcedDecoder, runtime: Runtime, probe: Probe, claim: Claim) -> Parity:
    """The proof that `runtime` computes what the model of `decoder` computes in float32, on one thread.

    Compared are the ids of the texts; the log-probability of every token of the model's own greedy translations, and of
    the same with a third of the tokens replaced by any others; what greedy search finds, and its text; and the weights.
    Another greedy translation passes only where the model finds its first other token about as probable as its own.

    Args:
        decoder: the model, on the CPU.
        runtime: the other program.
        probe: what both translate.
        claim: what is to be proven.

    Raises:
        ParityError: they differ by more than is allowed; names the worst sentence with both scores.
    """
    measured = measure(decoder, runtime, probe.texts)
    tokenizations = runtime.encode(probe.texts)
    same_tokenizations = None if tokenizations is None else list(map(list.__eq__, tokenizations, measured.sources))
    changed = [] if claim.weights is None else _changed_tensors(decoder.model, claim)
    texts = _texts(measured, runtime, decoder.tokenizer)
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
        worst=_worst(measured, probe, decoder.tokenizer),
        identical_greedy=len(probe.texts) - len(measured.gaps),
        bleu=_bleu(measured, probe, runtime, decoder.tokenizer),
        identical_texts=None if texts is None else len(measured.greedy) - len(texts),
        identical_weights=None if claim.weights is None else len(claim.weights) - len(changed),
    )
    problems = [*_beyond(parity), *_unexplained(measured, parity.tolerance)]
    if same_tokenizations is not None and not all(same_tokenizations):
        text = probe.texts[same_tokenizations.index(False)]
        problems.append(f"the tokenizer that travels with the model gives other ids: {text!r}")
    problems += [f"the translation {ours!r} becomes {theirs!r}, of the same ids" for ours, theirs in texts or ()]
    problems += [f"{name}: numbers are not what they were, rounding apart" for name in changed]
    if problems:
        raise ParityError(_message(parity, problems))
    return parity


def _worst(measured: Measurement, probe: Probe, tokenizer: Tokenizer) -> Extreme:
    row, place = measured.worst()
    sentence = row % len(probe.texts)
    ours, theirs, target = measured.scores[row], measured.their_scores[row], measured.targets[row]
    return Extreme(
        sentence=sentence + 1,
        source=probe.texts[sentence],
        target=tokenizer.decode(target),
        piece=tokenizer.pieces(target)[place],
        ours=ours[place],
        theirs=theirs[place],
        score_ours=sum(ours),
        score_theirs=sum(theirs),
    )


def _bleu(measured: Measurement, probe: Probe, runtime: Runtime, tokenizer: Tokenizer) -> Bleu:
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


def _texts(measured: Measurement, runtime: Runtime, tokenizer: Tokenizer) -> list[tuple[str, str]] | None:
    """The model's translations that the other program's tokenizer puts into other words, ours and theirs."""
    rows = [ids for ids in measured.greedy if tokenizer.unknown_id not in ids]
    theirs = runtime.decode(rows)
    if theirs is None:
        return None
    pairs = zip(map(tokenizer.decode, rows), theirs, strict=True)
    return [(one, other) for one, other in pairs if one != other]


def _changed_tensors(model: Transformer, claim: Claim) -> list[str]:
    """Names of tensors that are not what the model has; but nobody ever asks for the logit of `<pad>`."""
    expected, found = dict(model_tensors(model)), claim.weights or {}
    for name in {"projection.weight", "projection.bias"} & expected.keys():
        expected[name] = torch.cat([expected[name][:-1], found[name][-1:]])

    def is_same(name: str) -> bool:
        if name not in expected or name not in found or expected[name].shape != found[name].shape:
            return False
        weight, other = expected[name].detach().float(), found[name].float()
        is_near = (other - weight).abs() <= most_rounding(claim.precision, weight)
        return bool((is_near | (other == weight)).all())  # -inf is no distance from -inf

    return [name for name in sorted(expected.keys() | found.keys()) if not is_same(name)]


def _beyond(parity: Parity) -> Iterator[str]:
    for name in ("largest", "mean"):
        found, allowed = getattr(parity, f"{name}_difference"), getattr(parity.tolerance, name)
        if not found <= allowed:
            yield f"the {name} difference is {found:.3g} nats a token, allowed are {allowed:.3g} in {parity.precision}"


def _unexplained(measured: Measurement, tolerance: Tolerance) -> Iterator[str]:
    """Greedy translations that differ though the model is far from undecided."""
    for sentence, gap in measured.gaps.items():
        if not gap <= 2 * tolerance.largest:
            yield f"the greedy translation of sentence {sentence + 1} is another, by {gap:.3g} nats less probable"


def _message(parity: Parity, problems: list[str]) -> str:
    worst = parity.worst
    shown = "\n".join(f"  {problem}" for problem in problems[:5])
    more = "" if len(problems) <= 5 else f"\n  and {len(problems) - 5:,} more of this kind"
    return (
        f"{parity.theirs} does not compute the same as the model:\n{shown}{more}\n"
        f"worst is sentence {worst.sentence}, {worst.source!r}: its translation {worst.target!r} has "
        f"{worst.score_ours:.6f} nats by the model and {worst.score_theirs:.6f} by {parity.theirs}, "
        f"its token {worst.piece!r} {worst.ours:.6f} and {worst.theirs:.6f}; nothing was written"
    )
