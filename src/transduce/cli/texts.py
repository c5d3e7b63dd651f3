"""Options that name parallel text, of the commands that train on it or examine it."""

from dataclasses import asdict, dataclass
from typing import Annotated

from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Training and validation text and their languages, for a run without a recipe."""

    source: str | None = None
    """Training text, source side; plain, .gz, .xz or .zst, one sentence per line."""
    target: str | None = None
    """Training text, target side, line for line."""
    pairs: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """Instead of both: a .tsv, .csv, .json, .jsonl, .tmx, .parquet or .zip file, a saved data set of Hugging Face, or -
    for TSV on standard input."""
    validation_source: str | None = None
    """Validation text, source side; without it, some training pairs are set aside."""
    validation_target: str | None = None
    """Validation text, target side."""
    source_language: str | None = None
    """Language code of the source, as in en: required for serving the model."""
    target_language: str | None = None
    """Language code of the target, as in de."""

    @property
    def settings(self) -> dict[str, str]:
        """The settings that the given options stand for, by dotted key."""
        return {f"data.{key}": value for key, value in asdict(self).items() if value is not None}
