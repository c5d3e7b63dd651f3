"""The source of the text, its tokenizer, and the rules for leaving pairs out."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from transduce.config.settings import Section

TAG_PATTERN = r">>[^<>\s]+<<"
"""A regular expression that matches a tag, as in ">>de<<"."""

FilterName = Literal[
    "copies",
    "different_addresses",
    "different_brackets",
    "different_endings",
    "different_numbers",
    "html_entities",
    "leakage",
    "markup",
    "mispaired_lines",
    "mojibake",
    "near_duplicates",
    "near_leakage",
    "other_language",
    "other_script",
    "partly_untranslated",
    "repeated_sources",
    "repeated_targets",
    "replacement_characters",
    "shifted_lines",
    "source_in_language_of_targets",
    "swapped_pairs",
    "target_in_language_of_sources",
    "unrelated_lines",
    "unusual_length_ratios",
    "wrong_code_page",
]
"""Names of findings of `transduce doctor` by which training can leave out pairs."""

Column = Annotated[str, Field(strict=False, coerce_numbers_to_str=True)]


class CorpusConfig(Section):
    """One of several corpora to train on. Paths are relative to `data.folder`."""

    source: str | None = None
    """Training text, source side, one sentence per line; plain, .gz, .xz or .zst."""

    target: str | None = None
    """Training text, target side, line for line."""

    pairs: str | None = None
    """Instead of source and target: one file with both, or a saved data set; see `data.pairs`."""

    columns: tuple[Column, Column] | None = Field(default=None, strict=False)
    """Source and target in `pairs`. Default: `data.columns`."""

    weight: float = Field(default=1.0, gt=0.0, le=1000.0)
    """How often each pair occurs in an epoch. 2.5: every pair twice, plus a random half of the pairs, redrawn each
    epoch."""

    tag: str | None = Field(default=None, pattern=rf"^{TAG_PATTERN}$")
    """A token of its own in front of every source, as in ">>bt<<" for pairs that a model has made (Caswell et al.
    2019), or ">>de<<" for the language to translate into, where one model learns several (Johnson et al. 2017). A text
    to translate may then begin with it."""

    synthetic: bool = False
    """Whether a model has made one side of the pairs: none of them is then held out for validation. Such corpora come
    after all others."""

    @property
    def name(self) -> str:
        """The names of the corpus's files, as given."""
        return self.pairs if self.pairs is not None else f"{self.source} {self.target}"

    @model_validator(mode="after")
    def _check_files(self) -> "CorpusConfig":
        _check_names("", self.source, self.target, self.pairs)
        _check_columns("", self.source, self.columns)
        if self.source is None and self.pairs is None:
            raise ValueError("a corpus has no files: give source and target, or pairs")
        if self.pairs == "-":
            raise ValueError("one of several corpora cannot be read from standard input: give a file")
        return self


class DataConfig(Section):
    """The parallel text of a run. Paths are relative to `folder`, and `folder` to the working directory."""

    folder: str = "."
    """Folder of the files below."""

    source: str | None = None
    """Training text, source side, one sentence per line; plain, .gz, .xz or .zst."""

    target: str | None = None
    """Training text, target side, line for line."""

    pairs: str | None = None
    """Instead of source and target: one file with both (.tsv, .csv, .json, .jsonl or .tmx, compressed or not, or
    .parquet, or .zip with a file for each language), or the folder of a data set that Hugging Face's `datasets` saved
    to disk, or `-` for TSV on standard input. JSON has one object per line, or is an array of objects."""

    corpora: tuple[CorpusConfig, ...] | None = Field(default=None, strict=False)
    """Instead of the three above: several corpora, each with its own files and weight. A pair that occurs in several is
    kept once, in the first."""

    validation_source: str | None = None
    """Validation text, source side; without any, `held_out` pairs of the training text are set aside."""

    validation_target: str | None = None
    """Validation text, target side: the references that translations are scored against."""

    validation_pairs: str | None = None
    """Instead of the two above: one file with both, in any of the formats of `pairs`."""

    validation_columns: tuple[Column, Column] | None = Field(default=None, strict=False)
    """Source and target in `validation_pairs`. Default: `columns`."""

    columns: tuple[Column, Column] | None = Field(default=None, strict=False)
    """Source and target in a file of pairs: names in the header of a table (TSV, CSV, Parquet, saved data sets; by
    default, those that name the languages, or source and target), in TSV also column numbers from 1 (by default,
    without a header, 1 and 2); keys (JSON; by default "source" and "target", or the languages); languages as the
    file has them (TMX, zip), or the names of two files (zip). In "translation", as Hugging Face has it, the default is
    the two languages."""

    swap_sides: bool = False
    """Whether source and target of all text above are exchanged, which trains the other direction. The two languages
    below are those of the model."""

    teacher: str | None = None
    """A run or bundle whose translations of the sources are trained on instead of the targets (sequence-level knowledge
    distillation, Kim & Rush 2016), relative to the working directory; see `transduce distill` and `keep_targets`.
    Corpora keep weight and tag, which the teacher reads if it knows it; validation text keeps its targets."""

    teacher_ensemble: tuple[str, ...] = Field(default=(), strict=False)
    """Further runs or bundles with the tokenizer of the `teacher`, as of runs that differ in `training.seed`: they
    translate together with it, their probabilities averaged (ensemble distillation, Freitag et al. 2017)."""

    keep_targets: bool = False
    """Whether the pairs of the text are trained on, too, beside those with the translations of the `teacher`. With
    `text.drop_duplicates`, a pair whose target is also the teacher's translation is there once."""

    monolingual_target: str | None = None
    """Text in the target language alone, one sentence per line: a model of the other direction translates it, and the
    pairs are trained on with the tag ">>bt<<" (back-translation, Sennrich et al. 2016, Caswell et al. 2019)."""

    monolingual_source: str | None = None
    """Text in the source language alone: a model of the same direction translates it, and the pairs are trained on with
    the tag ">>ft<<" (forward translation, Zhang & Zong 2016)."""

    monolingual_target_model: str | None = None
    """The run or bundle that translates `monolingual_target`. By default, it is trained first, on the same
    parallel text and with the same settings, but for those that were chosen by the size of the text, in a folder named
    like the run's with "-reverse" behind. Once it has ended, it stays as it is."""

    monolingual_source_model: str | None = None
    """The run or bundle that translates `monolingual_source`. By default, it is trained first, on the same
    parallel text and with the same settings, but for those that were chosen by the size of the text, in a folder named
    like the run's with "-forward" behind. Once it has ended, it stays as it is."""

    monolingual_search: Literal["beam", "sampling"] = "beam"
    """How monolingual text is translated: the best translation by beam search, or one drawn at random (Edunov et al.
    2018)."""

    translation_workers: int | None = Field(default=None, ge=1)
    """Processes that translate text by `teacher` or for `monolingual_target` and `monolingual_source`, each with the
    model in its memory. The pairs are the same with any number. Default: one for each core for which there is a
    gigabyte of free memory; 1 on a GPU."""

    monolingual_weight: float = Field(default=1.0, gt=0.0, le=1000.0)
    """How often an epoch has each of the pairs made from monolingual text; see `weight` of a corpus."""

    filters: tuple[FilterName, ...] = Field(default=(), strict=False)
    """Findings of `transduce doctor` whose pairs training leaves out, as in ["mispaired_lines", "other_script"], also
    where they are too few for the doctor to report. Of "near_duplicates", the first pair of each group stays; "leakage"
    and "near_leakage" are the pairs that validation text has, too. Text that a model has made is not filtered, so
    that there can be no `teacher`. A million pairs need 1 GB of memory."""

    examine: bool = True
    """Whether training first reports the serious findings of `transduce doctor` about the first million pairs."""

    held_out: int = Field(default=1000, ge=1)
    """Pairs set aside for validation when no validation text is given; at most a tenth of the corpus."""

    source_language: str = ""
    """Language code of the source, as in "en": required for serving the model and for exporting it to Argos."""

    target_language: str = ""
    """Language code of the target, as in "de"."""

    cache: str | None = None
    """Folder for token ids on disk, shared by runs. Default: `.cache` beside the run folder."""

    @model_validator(mode="after")
    def _check_files(self) -> "DataConfig":
        _check_names("", self.source, self.target, self.pairs)
        _check_names("validation_", self.validation_source, self.validation_target, self.validation_pairs)
        _check_columns("", self.source, self.columns)
        _check_columns("validation_", self.validation_source, self.validation_columns)
        if self.validation_pairs == "-":
            raise ValueError("validation_pairs cannot be read from standard input: give a file")
        for name in ("source", "pairs"):
            if self.corpora is not None and getattr(self, name) is not None:
                raise ValueError(f"corpora and {name} are both given: give one of them")
        kinds = [corpus.synthetic for corpus in self.corpora or ()]
        if kinds != sorted(kinds):
            raise ValueError("corpora: a synthetic one stands before one that is not: put those with synthetic last")
        return self

    @model_validator(mode="after")
    def _check_made_text(self) -> "DataConfig":
        for name in ("monolingual_target", "monolingual_source"):
            if getattr(self, name) is None and getattr(self, f"{name}_model") is not None:
                raise ValueError(f"{name}_model is given without {name}: give the text that it translates")
        for name in ("teacher", "monolingual_target", "monolingual_source"):
            if getattr(self, name) is not None and self.pairs == "-":
                raise ValueError(f'{name} cannot be combined with pairs = "-", which is read once: give a file')
        if self.teacher is None and self.teacher_ensemble:
            raise ValueError("teacher_ensemble is given without teacher: give the first of the models as teacher")
        if self.teacher is None and self.keep_targets:
            raise ValueError("keep_targets is given without teacher: without one, all targets are kept; leave it out")
        if self.teacher is not None and self.filters:
            raise ValueError(
                "teacher and filters are both given, but what a teacher translates is not filtered: leave filters out, "
                "and leave such pairs out of the files"
            )
        if self.teacher is not None and (self.monolingual_target or self.monolingual_source):
            raise ValueError(
                "teacher and monolingual text are both given: give the monolingual source text as one of the corpora, "
                "or leave out teacher"
            )
        return self

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target; "" for one that is not given."""
        return self.source_language, self.target_language

    @property
    def has_validation_text(self) -> bool:
        """Whether there is validation text, so that no pairs of the training text are held out."""
        return self.validation_source is not None or self.validation_pairs is not None

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of all training corpora, each once, in their order."""
        return tuple(dict.fromkeys(one.tag for one in self.training_corpora if one.tag is not None))

    @property
    def training_corpora(self) -> tuple[CorpusConfig, ...]:
        """What to train on: `corpora`, or the one corpus that is given, with weight 1; none if nothing is given."""
        if self.source is None and self.pairs is None:
            return self.corpora or ()
        # Not checked again: of the one corpus, pairs may be "-".
        return (CorpusConfig.model_construct(source=self.source, target=self.target, pairs=self.pairs),)

    @property
    def validation_corpus(self) -> CorpusConfig | None:
        """The validation text that is given; None if training pairs are held out."""
        if not self.has_validation_text:
            return None
        return CorpusConfig(
            source=self.validation_source,
            target=self.validation_target,
            pairs=self.validation_pairs,
            columns=self.validation_columns,
        )


def _check_names(prefix: str, source: str | None, target: str | None, pairs: str | None) -> None:
    """Check that there are two files, or one with both sides, or none; errors name settings with `prefix`."""
    missing, given = ("source", "target") if source is None else ("target", "source")
    if pairs is not None and (source is not None or target is not None):
        raise ValueError(f"{prefix}pairs and {prefix}{given} are both given: give one of them")
    if (source is None) != (target is None):
        raise ValueError(f"{prefix}{given} is given without {prefix}{missing}: give both")


def _check_columns(prefix: str, source: str | None, columns: tuple[str, str] | None) -> None:
    """Check that columns are two different ones, and those of pairs; errors name settings with `prefix`."""
    if columns is None:
        return
    if columns[0] == columns[1]:
        raise ValueError(f"{prefix}columns: source and target are both {columns[0]!r}: give two different ones")
    if source is not None:
        raise ValueError(f"{prefix}columns are those of {prefix}pairs, and {prefix}source is given: leave them out")


AUGMENTATIONS = (
    "augment_upper_case",
    "augment_lower_case",
    "augment_missing_marks",
    "augment_typing_errors",
    "augment_clauses",
)
"""The settings of `TextConfig` that change training pairs at random."""


class TextConfig(Section):
    """The tokenizer, the random changes of training pairs, and the rules by which pairs are left out of training; the
    number of pairs is reported for each rule.
    """

    vocabulary: int | Literal["fitted"] = Field(default=37_000)
    """Number of token ids, `<pad>` included (paper 5.1), or `fitted` to the size of the corpus."""

    algorithm: Literal["bpe", "unigram"] = "bpe"
    """The algorithm by which SentencePiece finds its pieces (paper 5.1: byte-pair encoding)."""

    tokenizer: str | None = None
    """A SentencePiece model to use instead of training one, or a bundle whose tokenizer is used; the two settings above
    then have no effect."""

    bpe_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """BPE-dropout: share of merges skipped at random in training text, redrawn each epoch (Provilkov et al. 2020)."""

    augment_upper_case: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the training pairs that are written in capitals on both sides, redrawn each epoch, so that the model
    translates such text, too."""

    augment_lower_case: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the training pairs that are written in lower case on both sides, redrawn each epoch."""

    augment_missing_marks: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the training pairs that lose the full stop, question or exclamation mark at the end of both sides,
    redrawn each epoch."""

    augment_typing_errors: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the training pairs whose source has typing errors, one in 25 letters, redrawn each epoch (Belinkov &
    Bisk 2018)."""

    augment_clauses: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the training pairs that are cut off before a comma, semicolon or colon that both sides have, redrawn
    each epoch, so that the model translates unfinished sentences, too."""

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
        if self.augment_upper_case + self.augment_lower_case > 1.0:
            raise ValueError(
                f"augment_upper_case = {self.augment_upper_case} and augment_lower_case = {self.augment_lower_case}: "
                "together they must be at most 1, as no pair has both"
            )
        return self

    @property
    def sampling(self) -> dict[str, float]:
        """The settings above zero by which every epoch has other text: BPE-dropout, and augmentation."""
        values: dict[str, float] = self.model_dump(include={"bpe_dropout", *AUGMENTATIONS})
        return {name: value for name, value in values.items() if value}
