"""Parity proofs: the comparison of another program with a model, its record, and the tolerances."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor

from transduce import __version__
from transduce.bundle import collect_model_tensors
from transduce.bundle.manifest import FilePath, FileRecord, FolderDescription, record_files
from transduce.config import SearchConfig, Settings
from transduce.errors import ParityError
from transduce.interop.formats import Runtime
from transduce.interop.probe_sentences import Probe
from transduce.kernels.device import use_one_thread
from transduce.model import EncoderDecoder
from transduce.text import Tokenizer, choose_tokenization
from transduce.translation import ForcedDecoder, PyTorchEngine, score_ids

PARITY_FILE = "parity.json"
EXACT = "float32"
"""The precision without rounding: weights are compared bit for bit."""


class Tolerance(Settings):
    """Largest allowed differences between log-probabilities of tokens, in nats."""

    largest: float = Field(gt=0)
    """For any token."""

    mean: float = Field(gt=0)
    """On average over all tokens."""


def _make_tolerance(unit: float, num_units: int) -> Tolerance:
    """The tolerance of `num_units` rounding errors of one number on average, and of forty times as many for a token."""
    return Tolerance(largest=40 * num_units * unit, mean=num_units * unit)


TOLERANCES = {
    "float32": Tolerance(largest=1e-4, mean=1e-5),
    # Numbers of 11 and of 8 bits.
    "float16": _make_tolerance(2**-11, 10),
    "bfloat16": _make_tolerance(2**-8, 10),
    # Whole numbers up to 127 for the largest of a row, in matrices and in what they are multiplied with.
    "int8": _make_tolerance(1 / 254, 25),
    "int8_float32": _make_tolerance(1 / 254, 25),
    # Whole numbers up to 1,024 for the largest of a matrix: CTranslate2 adds up products in 32 bits.
    "int16": _make_tolerance(2**-11, 25),
}
"""Tolerances by precision of the weights.

A log-probability accumulates several thousand roundings in every layer, many of which cancel out. A trained model (3 +
3 layers, d_model 128, 6,000 ids; 12,702 tokens) in CTranslate2 differed by 1e-6 nats per token in float32, due to the
order of sums alone; by 2 units in float16 and bfloat16; by 6 and 8 in int8 and int16, whose small numbers lose more;
single tokens by up to 32 times as much. Four times as much is allowed on average, and in float32, where one wrong
number of millions matters, the weights are compared bit for bit besides. A wrong matrix moves most tokens by whole
nats.
"""


class WorstToken(Settings):
    """The sentence with the token whose log-probability differs most."""

    sentence: int = Field(ge=1)
    """Number of the sentence in the probe, from 1."""

    source: str
    """The text of the sentence."""

    target: str
    """The scored translation: the greedy translation of the model, or the same with some tokens replaced."""

    piece: str
    """The token in the target."""

    ours: float
    """The log-probability of the token by the model itself, in nats."""

    theirs: float
    """The log-probability of the token by the other program."""

    score_ours: float
    """The log-probability of the whole target by the model itself."""

    score_theirs: float
    """The log-probability of the whole target by the other program."""


class Bleu(Settings):
    """BLEU of the greedy translations of the probe."""

    against: Literal["reference", "ours"]
    """Translations that were given, or those of the model itself: then its own BLEU is 100 by definition."""

    ours: float
    """BLEU of the model itself."""

    theirs: float
    """BLEU of the other program."""

    signature: str
    """sacreBLEU's."""


class Parity(FolderDescription):
    """A parity proof, as parity.json records it."""

    format: Literal["transduce parity"] = "transduce parity"
    """Marks the file, and with it the folder as an export of ours."""

    format_version: Literal[1] = 1
    """Version of the file's layout."""

    model: str
    """SHA-256 of the weights of the bundle."""

    target: str
    """The format, as in "ctranslate2"."""

    precision: str
    """The precision of the weights that were written or read."""

    ours: str
    """The program that computed the reference: Transduce."""

    theirs: str
    """The other program."""

    files: dict[FilePath, FileRecord] = Field(default_factory=dict)
    """The other files of an export, which may have any name."""

    library_version: str = __version__
    """Version of Transduce that made the proof."""

    probe: str
    """The origin of the probe's sentences."""

    sentences: int = Field(ge=1)
    """Number of sentences."""

    identical_tokenizations: int | None
    """Texts to which the exported tokenizer gives the same ids; None if there is none."""

    tokens: int = Field(ge=1)
    """Tokens whose log-probabilities were compared."""

    largest_difference: float
    """Largest difference between the two log-probabilities of a token, in nats."""

    mean_difference: float
    """Mean difference, in nats per token."""

    tolerance: Tolerance
    """The allowed differences."""

    worst: WorstToken
    """The token with the largest difference."""

    identical_greedy: int
    """Sentences whose greedy translations are the same, token by token."""

    bleu: Bleu
    """BLEU of both programs."""

    identical_texts: int | None
    """Translations that the exported tokenizer decodes to the same text, of those without `<unk>`, which programs show
    differently; None if there is none."""

    identical_weights: int | None
    """Tensors that were read back and are the same: bit for bit in float32, else up to the rounding of each number;
    None if the format does not store them individually."""

    def summarize(self) -> dict[str, str]:
        """The figures of the proof as text, by name."""
        bleu, worst, tolerance = self.bleu, self.worst, self.tolerance
        if bleu.against == "reference":
            measured = "against the references"
            quality = f"BLEU {bleu.ours:.2f} by Transduce and {bleu.theirs:.2f} by the other program ({bleu.signature})"
        else:
            measured = "its translations against Transduce's"
            quality = f"BLEU {bleu.theirs:.2f}; identical ones would have {bleu.ours:.2f} ({bleu.signature})"
        identical = f"of {self.sentences:,} identical"
        exactness = "identical bit for bit" if self.precision == EXACT else "equal up to rounding"
        num_texts, num_weights = self.identical_tokenizations, self.identical_weights
        tokenization = "no tokenizer exported" if num_texts is None else f"{num_texts:,} {identical}"
        weights = "not read back" if num_weights is None else f"{num_weights:,} tensors {exactness}"
        return {
            "compared": f"{self.ours} with {self.theirs}, weights in {self.precision}",
            "probe": f"{self.sentences:,} sentences, {self.tokens:,} tokens, {self.probe}",
            "tokenization": tokenization,
            "largest difference": f"{self.largest_difference:.2g} nats per token (allowed {tolerance.largest:.2g})",
            "mean difference": f"{self.mean_difference:.2g} nats per token (allowed {tolerance.mean:.2g})",
            "worst sentence": f"{worst.sentence}, token {worst.piece!r}: {worst.ours:.6f} and {worst.theirs:.6f} nats",
            "greedy translations": f"{self.identical_greedy:,} {identical}",
            measured: quality,
            "weights": weights,
        }


def bound_rounding(precision: str, weight: Tensor) -> Tensor:
    """The largest rounding error of each number of a weight written in `precision`; 0 in float32."""
    if precision == EXACT:
        return torch.zeros(())
    if precision == "float16":
        return weight.abs() * 2**-11 + 2**-25  # numbers near 0 have fewer bits
    if precision == "bfloat16":
        return weight.abs() * 2**-8
    if weight.dim() < 2:  # tensors other than matrices stay in float32
        return torch.zeros(())
    # Half a step; a row of a matrix has a scale of its own, or the whole matrix.
    row = weight.abs().amax(dim=1, keepdim=True)
    return 0.501 * (row.amax() / 1024 if precision == "int16" else row / 127)


def record_export(parity: Parity, folder: Path) -> Parity:
    """The proof with the sizes and digests of the files in `folder`."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    return parity.model_copy(update={"files": record_files(folder, names)})


Ids = list[list[int]]
Scores = list[list[float]]

_SEED = 1  # fixed, for the replaced tokens


@dataclass(frozen=True)
class Measurement:
    """Results of a model and of another program on the same sentences.

    Rows of ids end with `</s>`; scores are natural log-probabilities of tokens.

    Args:
        sources: ids of the texts.
        greedy: the model's own greedy translations.
        their_greedy: the greedy translations of the other program.
        targets: the scored translations: the model's greedy translations, then the same with some tokens replaced.
        scores: log-probabilities of all tokens of the targets by the model.
        their_scores: log-probabilities of the same tokens by the other program.
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


def measure(decoder: ForcedDecoder, runtime: Runtime, texts: Sequence[str]) -> Measurement:
    """Run greedy search and forced decoding in both programs, the model itself in float32 and on one thread."""
    tokenizer, model = decoder.tokenizer, decoder.model
    sources = [tokenizer.as_source(ids) for ids in tokenizer.encode_all(texts)]
    limits = [min(len(source) + decoder.search.max_extra_length, model.max_length) for source in sources]
    with use_one_thread():
        greedy = _translate_greedily(decoder, sources)
        # At the maximum length, Transduce ends a translation, and other programs truncate it.
        their_greedy = [
            row if len(row) < limit else [*row[: limit - 1], tokenizer.end_id]
            for row, limit in zip(runtime.translate_greedily(sources, limits), limits, strict=True)
        ]
        targets = [*greedy, *_perturb_targets(greedy, tokenizer)]
        scores = _score_targets(decoder, [*sources, *sources], targets)
        their_scores = runtime.score_targets([*sources, *sources], targets)
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


def _translate_greedily(decoder: ForcedDecoder, sources: Ids) -> Ids:
    engine = PyTorchEngine(decoder.model, decoder.tokenizer.end_id, "float32")
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
        remedy: what to do if the proof fails; empty if unknown.
    """

    target: str
    precision: str
    model: str
    weights: Mapping[str, Tensor] | None = None
    remedy: str = ""


def prove(decoder: ForcedDecoder, runtime: Runtime, probe: Probe, claim: Claim) -> Parity:
    """Prove that `runtime` computes what the model of `decoder` computes in float32, on one thread.

    The proof compares the ids of the texts; the log-probability of every token of the model's greedy translations, and
    of the same with a third of the tokens replaced; the greedy translations and their texts; and the weights. A
    different greedy translation passes only where the model finds its first differing token about as probable as its
    own.

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
        problems.append(f"the exported tokenizer gives different ids for {text!r}")
    problems += [f"the translation {ours!r} is decoded as {theirs!r} from the same ids" for ours, theirs in texts or ()]
    problems += [f"{name}: values differ by more than rounding" for name in changed]
    if problems:
        raise ParityError(_format_problems(parity, problems, claim.remedy))
    return parity


def _describe_worst_token(measured: Measurement, probe: Probe, tokenizer: Tokenizer) -> WorstToken:
    largest = [max(row) for row in measured.differences]
    row = largest.index(max(largest))
    place = measured.differences[row].index(largest[row])
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
    references = ours if probe.references is None else list(probe.references)
    # force: without it, sacreBLEU warns on standard error about text that looks tokenised. It does not affect scores.
    metric = BLEU(force=True, tokenize=choose_tokenization(references))
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
    """The translations whose token ids the other program's tokenizer decodes to another text: (our text, its text).

    The other text may lack the white space at both ends of ours, as that of Transformers does: a model writes
    such white space only by chance. None if the other program has no tokenizer.
    """
    rows = [ids for ids in measured.greedy if tokenizer.unknown_id not in ids]
    theirs = runtime.decode(rows)
    if theirs is None:
        return None
    pairs = zip(map(tokenizer.decode, rows), theirs, strict=True)
    return [(one, other) for one, other in pairs if other not in {one, one.strip()}]


def _find_changed_tensors(model: EncoderDecoder, claim: Claim) -> list[str]:
    """Names of tensors that differ from the model's; the logit of `<pad>`, which is never used, may differ."""
    expected, found = dict(collect_model_tensors(model)), claim.weights or {}
    for name in {"projection.weight", "projection.bias"} & expected.keys():
        expected[name] = torch.cat([expected[name][:-1], found[name][-1:]])

    def is_same(name: str) -> bool:
        if name not in expected or name not in found or expected[name].shape != found[name].shape:
            return False
        weight, other = expected[name].detach().float(), found[name].float()
        is_near = (other - weight).abs() <= bound_rounding(claim.precision, weight)
        return bool((is_near | (other == weight)).all())  # the difference of -inf and -inf is 0

    return [name for name in sorted(expected.keys() | found.keys()) if not is_same(name)]


def _find_excesses(parity: Parity) -> Iterator[str]:
    for name in ("largest", "mean"):
        found, allowed = getattr(parity, f"{name}_difference"), getattr(parity.tolerance, name)
        if not found <= allowed:
            yield (
                f"the {name} difference is {found:.3g} nats per token; allowed are {allowed:.3g} in {parity.precision}"
            )


def _find_unexplained_differences(measured: Measurement, tolerance: Tolerance) -> Iterator[str]:
    """Sentences whose greedy translations differ by more than a tie between two tokens explains."""
    for sentence, gap in measured.gaps.items():
        if not gap <= 2 * tolerance.largest:
            yield f"the greedy translation of sentence {sentence + 1} differs, and is less probable by {gap:.3g} nats"


def _format_problems(parity: Parity, problems: list[str], remedy: str) -> str:
    worst = parity.worst
    shown = "\n".join(f"  {problem}" for problem in problems[:5])
    more = "" if len(problems) <= 5 else f"\n  and {len(problems) - 5:,} more of this kind"
    return (
        f"{parity.theirs} does not compute the same as the model:\n{shown}{more}\n"
        f"worst is sentence {worst.sentence}, {worst.source!r}: its translation {worst.target!r} has "
        f"{worst.score_ours:.6f} nats by the model and {worst.score_theirs:.6f} by {parity.theirs}, "
        f"its token {worst.piece!r} {worst.ours:.6f} and {worst.theirs:.6f}; nothing was written"
        f"{remedy and '; '}{remedy}"
    )
