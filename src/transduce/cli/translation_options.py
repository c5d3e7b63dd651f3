"""Options of the commands that translate: engine and precision, search, protected text, and input."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from transduce.bulk.blocks import BLOCK_LINES
from transduce.bundle import BundleDescription, find_bundle
from transduce.bundle.bundle import DESCRIPTION
from transduce.bundle.manifest import read_description
from transduce.cli.completion import FileName
from transduce.cli.console import print_message
from transduce.errors import BundleError, ConfigError
from transduce.interop import NATIVE, load_translator
from transduce.kernels.hardware import is_surely_cpu
from transduce.kernels.native.library import explain_missing_library
from transduce.pages import format_count
from transduce.text import USUAL_KINDS, Glossary, SpanKind
from transduce.translation import PROBLEMS, TranslationOptions, Translator
from transduce.translation.confidence.guard import GuardReport
from transduce.translation.engines.engine import has_inference_model


@Parameter(name="*")
@dataclass(frozen=True)
class EngineFlags:
    """The engine, precision and device that compute translations.

    Args:
        engine: native, or that of another program; its model is a folder written by `transduce export`, and a bundle is
            exported first.
        precision: arithmetic precision. Default of the native engine: auto for `translate`, float32 for `evaluate` and
            `serve`. auto: the fastest that does not round weights to 8 bits, mostly float32 on a CPU and bfloat16 on a
            GPU; int8 for int8 bundles on a CPU. float32 and int8 give the same translation in every batch; int8 is
            fastest on a CPU and rounds weights to 8 bits.
            Other engines: that of the exported folder; a bundle is exported in this precision, by default float32.
        device: cpu, cuda, mps or auto.
    """

    engine: Literal["native", "ctranslate2", "onnx"] = "native"
    precision: Literal["auto", "float32", "bfloat16", "float16", "int8", "int16"] | None = None
    device: str = "auto"

    def load(self, model: Path, usual: str = "float32", ensemble: Sequence[Path] = ()) -> Translator:
        """The translator of a model, and of an ensemble with it; see `load_translator`."""
        return load_translator(
            model,
            self.engine,
            device=self.device,
            precision=self.choose_precision(usual),
            ensemble=ensemble,
            report=print_message,
        )

    def report_missing_kernels(self, models: Iterable[Path], report: Callable[[str], None] = print_message) -> None:
        """Report that the compiled kernels are missing, once, if one of the models would be computed by them here."""
        if self.engine != NATIVE or self.precision == "bfloat16" or not is_surely_cpu(self.device):
            return
        problem = explain_missing_library()
        if problem is not None and any(map(_is_computed_by_kernels, models)):
            report(problem)

    def choose_precision(self, usual: str = "float32") -> str:
        """The given precision, or else `usual` for the native engine."""
        return self.precision or (usual if self.engine == NATIVE else "auto")


def _is_computed_by_kernels(model: Path) -> bool:
    """Whether the compiled kernels, where they are there, compute the network of a bundle or run."""
    try:
        description = read_description(find_bundle(model) / DESCRIPTION, BundleDescription)
    except BundleError:  # loading the model says what is wrong
        return False
    return has_inference_model(description.model)


_NAMES = {"num_samples": "samples", "minimum_bayes_risk": "mbr"}
"""Flags whose names differ from those of their options."""

_FLAGS = {name: f"--{_NAMES.get(name, name).replace('_', '-')}" for name in TranslationOptions.model_fields}
"""The flag of each option."""

_OPTION = re.compile(rf"(?<![\w.])(?:({'|'.join(_FLAGS)}) = |`({'|'.join(_FLAGS)})`)")
"""The name of an option in a message, before its value or in backquotes."""

_NO_FLAGS = ("protect", "glossary", "split_sentences", "align")
"""Options without a flag here: those covered by `SourceFlags`, and those for texts of several sentences."""

_NO_DOCUMENT_FLAGS = (*_NO_FLAGS, "num_best", "prefix", "require")
"""Options without a flag where a document is translated: it has one translation, of which a prefix or a required word
would be in every sentence."""

_MORE_HELP = {
    "num_best": "above 1, each line is number, tab, score, tab, translation, where the score is the log-probability "
    "divided by the length penalty, or with --mbr the mean chrF.",
    "max_length": "0: limited by the source's length only.",
    "require": "may be given several times.",
    "forbid": "may be given several times.",
    "guard": "standard error reports how many.",
    "num_samples": "the first --num-best are printed.",
}
"""Additions to the help of a flag, after the description of its option."""


def _make_flags(class_name: str, no_flags: Collection[str], more_help: Mapping[str, str]) -> type:
    """A dataclass with a field for each option that is a flag: its type, default and description, for cyclopts."""
    fields = []
    for name, option in TranslationOptions.model_fields.items():
        if name not in no_flags:
            text = option.description or ""
            text = text[0].lower() + text[1:]
            if name in more_help:
                text = f"{text.removesuffix('.')}; {more_help[name]}"
            flag = Parameter(name=_FLAGS[name], help=text, negative=())
            default = option.default
            given = field(default_factory=list) if isinstance(default, list) else field(default=default)
            # `make_options` checks words, with messages of its own.
            kind = list[str] if isinstance(default, list) else option.annotation
            fields.append((name, Annotated[kind, flag], given))
    # cyclopts treats classes of standard modules, such as `types`, as plain values.
    made = make_dataclass(class_name, fields, frozen=True, namespace={"__module__": __name__})
    return Parameter(name="*")(made)


if TYPE_CHECKING:
    from transduce.bulk import BlockTranslatorSettings, WorkerPool

    TranslationFlags = TranslationOptions
    DocumentFlags = TranslationOptions
else:
    TranslationFlags = _make_flags("TranslationFlags", _NO_FLAGS, _MORE_HELP)
    DocumentFlags = _make_flags(
        "DocumentFlags",
        _NO_DOCUMENT_FLAGS,
        {**_MORE_HELP, "num_samples": "above 1 only with --mbr, which chooses one."},
    )


@Parameter(name="*")
@dataclass(frozen=True)
class SourceFlags:
    """Spans of the source kept unchanged, and glossary terms.

    Args:
        protect: keep URLs, e-mail addresses, @handles, #hashtags, XML and HTML tags and {placeholders} unchanged, each
            as often as it occurs.
        protect_numbers: also keep numbers unchanged, with attached characters, as in 5km, 20%, 2nd and 2½.
        glossary: a file with a source term, a tab and its required translation on each line.
    """

    protect: bool = False
    protect_numbers: bool = False
    glossary: Path | None = None

    @property
    def values(self) -> dict[str, Any]:
        """The options that the flags stand for."""
        kinds: list[SpanKind] = [*(USUAL_KINDS if self.protect else ()), *(("number",) if self.protect_numbers else ())]
        return {"protect": kinds, "glossary": Glossary.read(self.glossary).targets if self.glossary else {}}

    @property
    def given(self) -> dict[str, bool]:
        """Whether each of the flags is given, by its name."""
        return {f"--{name.replace('_', '-')}": bool(value) for name, value in asdict(self).items()}


@Parameter(name="*")
@dataclass(frozen=True)
class InputFlags:
    """How standard input is read.

    Args:
        json_input: read one JSON object per line: "text", and optionally "require" and "forbid" (lists of words or
            phrases) and "prefix", in addition to the options of all lines. A blank line is an error; a blank "text"
            stays blank.
        document: read all input first, as one document: it is split into sentences, also several per line, which are
            translated and put back with the text between them unchanged. A sentence whose constraints cannot be met is
            left untranslated.
        max_pieces: number of pieces up to which a line is translated as a whole, not in parts. Default: the model's, at
            most the longest source in its training text; of longer text, models often omit much.
    """

    json_input: bool = False
    document: bool = False
    max_pieces: int | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class BulkFlags:
    """Translation of files instead of standard input.

    Args:
        input: files to be translated instead of standard input: paths, URLs as s3://bucket/name, or patterns in
            quotation marks, as 'in/*.zst'. Text, or by the ending of the name JSON lines (.jsonl), TSV or Parquet;
            compressed or not (.gz, .xz, .zst).
        output: the folder of their translations, or its URL: each has the name, format and compression of its file.
            The same command goes on where it was stopped.
        workers: number of processes, each with the model in its memory. Default: 1; with --ray, one for each core, or
            with --device cuda each GPU.
        ray: let workers be actors of Ray (https://ray.io): at this address, as in auto or 10.0.0.1:6379; without one,
            of a Ray that is started on this machine.
        column: for JSON lines, TSV and Parquet, the key or column that is translated; of TSV without names its number.
        translation_column: the key or column that is added.
        block_lines: lines that a worker translates at a time, and that are done again if it is lost.
    """

    input: Annotated[tuple[FileName, ...], Parameter(consume_multiple=True, negative=())] = ()
    output: FileName | None = None
    workers: int | None = None
    ray: Annotated[tuple[str, ...] | None, Parameter(consume_multiple=(0, 1), negative=())] = None
    column: str | None = None
    translation_column: str = "translation"
    block_lines: int = BLOCK_LINES

    def check(self) -> None:
        """Check that the flags are given together with those that they need.

        Raises:
            ConfigError: some are not.
        """
        if not self.input:
            defaults = BulkFlags()
            given = [one.name for one in fields(self) if getattr(self, one.name) != getattr(defaults, one.name)]
            if given:
                option = given[0].replace("_", "-")
                raise ConfigError(f"--{option}: is for files: give them by --input, or leave it out")
        elif self.output is None:
            raise ConfigError("--input: needs --output, the folder of the translations")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"--workers {self.workers}: must be 1 or more")

    def make_pool(self, settings: "BlockTranslatorSettings", digest: str) -> "WorkerPool":
        """The workers that the flags ask for.

        Raises:
            MissingExtraError: Ray is not installed.
            ConfigError: there is no Ray at the address.
        """
        if self.ray is None:
            from transduce.bulk import ProcessPool  # noqa: PLC0415 - only files need processes

            return ProcessPool(settings, digest, self.workers or 1)
        from transduce.bulk.ray_pool import LOCAL, RayPool  # noqa: PLC0415 - see above

        return RayPool(settings, digest, self.workers, self.ray[0] if self.ray else LOCAL, print_message)


@contextmanager
def name_flags_in_errors() -> Iterator[None]:
    """Let errors name flags, where those of the library name options: "--num-best 5: ..." for "num_best = 5: ..."."""
    try:
        yield
    except ConfigError as error:
        message = _OPTION.sub(lambda found: f"{_FLAGS[found[1]]} " if found[1] else _FLAGS[found[2]], str(error))
        raise ConfigError(message) from error


def make_options(flags: TranslationFlags | DocumentFlags, source_flags: SourceFlags) -> TranslationOptions:
    """The options that the flags stand for.

    Raises:
        ConfigError: a value breaks the rule of its option.
        CorpusError: the glossary cannot be read.
    """
    return TranslationOptions.parse({**vars(flags), **source_flags.values})


def check_document_flags(flags: TranslationFlags) -> None:
    """Check that no flags are given for a document that are meant for each text: it is translated in sentences."""
    given = {"--prefix": flags.prefix, "--require": flags.require}
    names = ", ".join(name for name, value in given.items() if value)
    if names:
        raise ConfigError(
            f"{names}: would apply to every sentence of the document: leave it out, or use --glossary for words that "
            "translate those of the source"
        )


def check_engine(engine: str, flags: dict[str, bool]) -> None:
    """Check that flags that need the attention weights of the native engine are not given to another engine."""
    names = ", ".join(name for name, is_given in flags.items() if is_given)
    if names and engine != NATIVE:
        raise ConfigError(
            f"{names}: needs the native engine, which provides attention weights: leave out --engine {engine}"
        )


def report_guard(report: GuardReport | None) -> None:
    """Print what the guard has found, if there was one."""
    if report is not None:
        found = ", ".join(f"{name} {report.before[name]} -> {report.after[name]}" for name in PROBLEMS)
        retried = format_count(report.retried, "line")
        print_message(f"guard: {retried} retried, {report.kept:,} replaced; {found}")
