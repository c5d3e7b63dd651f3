"""Where the text comes from, how it is cut into pieces, and which pairs are left out."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from transduce.config.settings import Settings

Column = Annotated[str, Field(strict=False, coerce_numbers_to_str=True)]


class DataConfig(Settings):
    """The parallel text of a run. Paths are relative to `folder`, and `folder` to the working directory."""

    folder: str = "."
    """Folder of the files below."""

    source: str | None = None
    """Training text, source side, one sentence a line; plain, .gz, .xz or .zst."""

    target: str | None = None
    """Training text, target side, line for line."""

    pairs: str | None = None
    """Instead of source and target: one file with both (.tsv or .jsonl, compressed or not), or `-` for TSV on
    standard input."""

    validation_source: str | None = None
    """Validation text, source side; without any, `held_out` pairs of the training text are set aside."""

    validation_target: str | None = None
    """Validation text, target side: the references that translations are scored against."""

    validation_pairs: str | None = None
    """Instead of the two above: one file with both."""

    columns: tuple[Column, Column] | None = Field(default=None, strict=False)
    """Source and target in a file of pairs: column numbers from 1 (TSV, default 1 and 2) or keys (JSON lines,
    default "source" and "target")."""

    held_out: int = Field(default=1000, ge=1)
    """Pairs set aside for validation when no validation text is given; at most a tenth of the corpus."""

    source_language: str = ""
    """Language code of the source, for the model card and the scores, as in "en"."""

    target_language: str = ""
    """Language code of the target, as in "de"."""

    cache: str | None = None
    """Folder for token ids on disk, shared by runs; `.cache` beside the run folder unless given."""

    @model_validator(mode="after")
    def _check_files(self) -> "DataConfig":
        for prefix in ("", "validation_"):
            source, target = getattr(self, f"{prefix}source"), getattr(self, f"{prefix}target")
            pairs = getattr(self, f"{prefix}pairs")
            if (source is None) != (target is None):
                missing, given = ("target", "source") if target is None else ("source", "target")
                raise ValueError(f"{prefix}{given} is given without {prefix}{missing}: give both")
            if pairs is not None and source is not None:
                raise ValueError(f"{prefix}pairs and {prefix}source are both given: give one of them")
        if self.validation_pairs == "-":
            raise ValueError("validation_pairs cannot be read from standard input: give a file")
        return self


class TextConfig(Settings):
    """The tokenizer, and the rules by which pairs are left out of training. Every rule reports its count."""

    vocabulary: int | Literal["fitted"] = Field(default=37_000)
    """Number of token ids, `<pad>` included (paper 5.1), or `fitted` to the size of the corpus."""

    algorithm: Literal["bpe", "unigram"] = "bpe"
    """How SentencePiece finds its pieces (paper 5.1: byte-pair encoding)."""

    tokenizer: str | None = None
    """A SentencePiece model to use instead of training one."""

    bpe_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of merges skipped at random in training text (Provilkov et al. 2020); anew in every epoch."""

    max_pieces: int = Field(default=256, ge=1)
    """A pair with a longer side is left out of training."""

    max_ratio: float = Field(default=4.0, ge=1.0)
    """A pair whose longer side has more than this many times the pieces of its shorter side is left out; pairs in
    which neither side has more than 8 pieces are kept."""

    drop_duplicates: bool = True
    """Leave out exact repetitions of an earlier pair."""

    drop_copies: bool = True
    """Leave out pairs whose two sides are the same text."""

    @model_validator(mode="after")
    def _check_vocabulary(self) -> "TextConfig":
        if isinstance(self.vocabulary, int) and not 264 <= self.vocabulary <= 1_000_000:
            raise ValueError(
                f"vocabulary = {self.vocabulary} must be from 264 (the 256 bytes, the special symbols and a few "
                f'letters) to 1000000, or "fitted"'
            )
        if self.bpe_dropout and self.algorithm != "bpe":
            raise ValueError(f'bpe_dropout = {self.bpe_dropout} needs algorithm = "bpe"')
        return self
