"""The record of a parity proof: what was compared, what was found, and which differences are allowed."""

from pathlib import Path
from typing import Literal

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from transduce import __version__
from transduce.bundle.manifest import FileRecord, record_files
from transduce.config import Settings, first_problem
from transduce.errors import BundleError

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

A log-probability is what some thousand roundings in every layer leave of it, many of which cancel out. A trained model
(3 + 3 layers, d_model 128, 6,000 ids; 12,702 tokens) in CTranslate2 differed by 1e-6 nats a token in float32, which is
the order of sums alone; by 2 units in float16 and bfloat16; by 6 and 8 in int8 and int16, whose small numbers lose
more; single tokens by up to 32 times as much. Four times as much is allowed on average, and in float32, where one wrong
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
    """The same by the other program."""


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


class Parity(Settings):
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

    files: dict[str, FileRecord] = Field(default_factory=dict)
    """Size and SHA-256 of the other files of an export, by name."""

    library_version: str = __version__
    """The Transduce that made the proof."""

    probe: str
    """The origin of the probe's sentences."""

    sentences: int = Field(ge=1)
    """Number of sentences."""

    identical_tokenizations: int | None
    """Texts to which the tokenizer that travels with the model gives the same ids; None if none travels."""

    tokens: int = Field(ge=1)
    """Tokens whose log-probabilities were compared."""

    largest_difference: float
    """Between two log-probabilities of a token, in nats."""

    mean_difference: float
    """The mean of all, in nats a token."""

    tolerance: Tolerance
    """The allowed differences."""

    worst: WorstToken
    """The token with the largest difference."""

    identical_greedy: int
    """Sentences whose greedy translations are the same, token by token."""

    bleu: Bleu
    """BLEU of both programs."""

    identical_texts: int | None
    """Translations of the model that the tokenizer that travels with it puts into the same words, of those without
    `<unk>`, which programs show as they like; None if none travels."""

    identical_weights: int | None
    """Tensors that were read back and are the same: bit for bit in float32, else up to the rounding of each number;
    None where the format does not keep them so."""

    def facts(self) -> dict[str, str]:
        """The figures of the proof for people, by name."""
        bleu, worst, tolerance = self.bleu, self.worst, self.tolerance
        if bleu.against == "reference":
            quality = f"BLEU {bleu.ours:.2f} by Transduce and {bleu.theirs:.2f} by the other program ({bleu.signature})"
        else:
            quality = f"BLEU {bleu.theirs:.2f}; identical ones would have {bleu.ours:.2f} ({bleu.signature})"
        exactness = "identical bit for bit" if self.precision == EXACT else "as near as their precision allows"
        num_weights = self.identical_weights
        weights = "not read back" if num_weights is None else f"{num_weights:,} tensors {exactness}"
        return {
            "compared": f"{self.ours} with {self.theirs}, weights in {self.precision}",
            "probe": f"{self.sentences:,} sentences, {self.tokens:,} tokens, {self.probe}",
            "tokenization": _format_count(
                self.identical_tokenizations, self.sentences, "no tokenizer travels with the model"
            ),
            "largest difference": f"{self.largest_difference:.2g} nats a token (allowed {tolerance.largest:.2g})",
            "mean difference": f"{self.mean_difference:.2g} nats a token (allowed {tolerance.mean:.2g})",
            "worst sentence": f"{worst.sentence}, token {worst.piece!r}: {worst.ours:.6f} and {worst.theirs:.6f} nats",
            "greedy translations": _format_count(self.identical_greedy, self.sentences, ""),
            _QUALITY[bleu.against]: quality,
            "weights": weights,
        }


_QUALITY = {
    "reference": "against the references",
    "ours": "its translations against Transduce's",
}
"""Names for the BLEU of a proof, by what it is measured against."""


def bound_rounding(precision: str, weight: Tensor) -> Tensor:
    """The largest rounding error of each number of a weight written in `precision`; 0 in float32."""
    if precision == EXACT:
        return torch.zeros(())
    if precision == "float16":
        return weight.abs() * 2**-11 + 2**-25  # numbers near 0 have fewer bits
    if precision == "bfloat16":
        return weight.abs() * 2**-8
    if weight.dim() < 2:  # what is no matrix stays in float32
        return torch.zeros(())
    # Half a step; a row of a matrix has a scale of its own, or the whole matrix.
    row = weight.abs().amax(dim=1, keepdim=True)
    return 0.501 * (row.amax() / 1024 if precision == "int16" else row / 127)


def write_parity(path: Path, parity: Parity) -> None:
    """Write `parity` as JSON that a person can read, too."""
    path.write_text(parity.model_dump_json(indent=2) + "\n", encoding="utf-8", newline="\n")


def record_export(parity: Parity, folder: Path) -> Parity:
    """The proof with the sizes and digests of the files in `folder`."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    return parity.model_copy(update={"files": record_files(folder, names)})


def check_export(folder: Path) -> None:
    """Check that the files in `folder` are those recorded in its proof.

    Raises:
        BundleError: there is no proof, or a file is missing or was changed.
    """
    for name, record in read_parity(folder / PARITY_FILE).files.items():
        path = folder / name
        if not path.is_file() or record_files(folder, [name])[name] != record:
            raise BundleError(f"{path}: is not what was proven; use an undamaged copy, or export the model again")


def read_parity(path: Path) -> Parity:
    """The proof at `path`.

    Raises:
        BundleError: there is none, or it is damaged.
    """
    try:
        return Parity.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise BundleError(f"{path}: is no proof of Transduce's: {first_problem(error)}") from None


def _format_count(count: int | None, total: int, absent: str) -> str:
    return absent if count is None else f"{count:,} of {total:,} identical"
