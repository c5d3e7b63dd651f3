"""Calibration: the confidence of translations and the alignment of words, kept in a bundle as calibration.json."""

from typing import Final, Literal

from pydantic import Field

from transduce.bundle.bundle import CALIBRATION, Bundle
from transduce.bundle.manifest import FolderDescription
from transduce.bundle.measurements import MeasurementFile
from transduce.config import Settings
from transduce.errors import BundleError


class LogisticFit(Settings):
    """The confidence of a word or sentence, computed from the probabilities of its tokens.

    1 / (1 + exp(-(intercept + minimum * a + mean * b))), where a is the log-odds, log(p / (1 - p)), of the lowest of
    the tokens' probabilities and b that of their geometric mean.
    """

    intercept: float
    """The constant term."""

    minimum: float = Field(ge=0)
    """Weight of the lowest probability's log-odds."""

    mean: float = Field(ge=0)
    """Weight of the mean probability's log-odds."""


class RecordedConfidence(Settings):
    """The fitted confidence of words and sentences, and its quality on text that was held out of the fit.

    All figures are for the pairs that were held out, which is every second pair.
    """

    words: LogisticFit
    """The probability that a word of a translation is right."""

    sentences: LogisticFit
    """The chrF of a translation, divided by 100."""

    data: dict[str, str]
    """SHA-256 of the files it was measured on, by "source" and "target", or "pairs" for a file with both sides."""

    beam: int = Field(ge=1)
    """Hypotheses kept for each sentence when it was measured."""

    num_pairs: int = Field(ge=2)
    """Pairs of the text, those of the fit and those held out."""

    num_words: int = Field(ge=1)
    """Words of the translations held out."""

    share_right: float = Field(ge=0, le=1)
    """The share of these words that are right."""

    calibration_error_before: float = Field(ge=0, le=1)
    """Expected calibration error of the probabilities that the model itself gives to its words."""

    calibration_error: float = Field(ge=0, le=1)
    """Expected calibration error of the fitted probabilities."""

    auc: float = Field(ge=0, le=1)
    """The probability that of a right word and a wrong one, the right one has the higher fitted probability."""

    chrf_error: float = Field(ge=0, le=100)
    """Mean distance of the predicted chrF from the real one."""

    chrf_error_of_mean: float = Field(ge=0, le=100)
    """Baseline of `chrf_error`: the prediction for every sentence is the mean chrF of the sentences of the fit."""


class RecordedHead(Settings):
    """The head of the decoder whose attention aligns words best."""

    layer: int = Field(ge=0)
    """The layer of the head, from 0."""

    head: int | None = Field(ge=0)
    """Which of the layer's heads, from 0; null for the mean of all."""

    offset: int
    """The distance from the position that predicts a piece to the position whose attention is read."""


class Calibration(FolderDescription):
    """All that calibration.json can say; each part is measured by a command of its own."""

    format: Literal["transduce calibration"] = "transduce calibration"
    """Marks the file."""

    format_version: Literal[1] = 1
    """Version of the file's layout."""

    confidence: RecordedConfidence | None = None
    """The confidence of translations."""

    alignment: RecordedHead | None = None
    """The head whose attention aligns words."""


_FILE: Final = MeasurementFile(CALIBRATION, Calibration, "calibration", "transduce calibrate")


def read_calibration(bundle: Bundle) -> Calibration | None:
    """Read the calibration of `bundle`; None if it has none.

    Raises:
        BundleError: calibration.json is damaged, or was measured with another model.
    """
    return _FILE.read(bundle)


def check_calibratable(bundle: Bundle, *, force: bool = False) -> None:
    """Check that `update_calibration` can write to `bundle`; nothing is changed.

    Raises:
        OutputError: the bundle's calibration.json is something else, or it cannot be written.
        WriteError: its disk is full.
    """
    _FILE.check(bundle, force=force)


def update_calibration(
    bundle: Bundle,
    *,
    confidence: RecordedConfidence | None = None,
    alignment: RecordedHead | None = None,
    force: bool = False,
) -> None:
    """Update the given parts of the calibration of `bundle`; the others stay.

    A crash leaves the old file or the new one. A calibration that is damaged, or another model's, is replaced as a
    whole; another file of its name only with `force`.

    Raises:
        BundleError: the folder has another model by now than when `bundle` was opened.
        BusyError: another process is writing to the bundle.
        OutputError: the bundle's calibration.json is something else, or it cannot be written.
        WriteError: writing failed, as on a full disk; the bundle is as it was before.
    """
    given = {name: value for name, value in (("confidence", confidence), ("alignment", alignment)) if value is not None}
    with _FILE.lock(bundle, force=force):
        try:
            present = read_calibration(bundle)
        except BundleError:  # what it says is worth nothing, and about to be replaced
            present = None
        changed = (present or Calibration(files=bundle.description.files)).model_copy(update=given)
        _FILE.write(bundle, changed, force=force)
