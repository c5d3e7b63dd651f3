"""Options of the commands that translate: what computes, and how translations are looked for."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from transduce.cli.console import print_message
from transduce.interop import NATIVE, load_translator
from transduce.text import USUAL_KINDS, Glossary, Kind
from transduce.translation import TranslationOptions, Translator


@Parameter(name="*")
@dataclass(frozen=True)
class Computation:
    """The engine, precision and device that compute translations.

    Args:
        engine: native, or that of another program, for which the model is a folder that `transduce export` has written;
            a bundle is exported to it first.
        precision: of the arithmetic. Native: float32 is exact and gives the same translation in every batch; auto is
            bfloat16 where the machine has it in hardware, else float32, and int8 for bundles in int8 on a processor;
            int8 is fastest there, the same in every batch, and rounds weights to 8 bits. Unless given, `translate`
            takes auto, and what measures or serves float32. Other engines: that of the exported folder, or what a
            bundle is exported in, float32 unless given.
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

    def choose_precision(self, usual: str = "float32") -> str:
        """The precision that is given, or else the `usual` one of the native engine."""
        return self.precision or (usual if self.engine == NATIVE else "auto")


_NAMES = {"num_samples": "samples", "minimum_bayes_risk": "mbr"}
"""Flags that are called otherwise than their options."""

_NO_FLAGS = ("protect", "glossary", "split_sentences", "align")
"""Options that `SourceFlags` says in other words, or that are for texts of several sentences."""

_MORE_HELP = {
    "num_best": "above 1, what is printed is line number, tab, score, tab, translation; the score is a log-probability "
    "divided by the length penalty, with --mbr the mean chrF.",
    "max_length": "0 is no limit but that of the source's length.",
    "require": "may be given several times.",
    "forbid": "may be given several times.",
    "guard": "standard error says how many there were.",
    "num_samples": "--num-best says how many of them are printed.",
}
"""What the help of a flag says besides the description of its option."""


def _make_flags() -> type:
    """A dataclass with a field for each option that is a flag: its type, default and description, for cyclopts."""
    fields = []
    for name, option in TranslationOptions.model_fields.items():
        if name not in _NO_FLAGS:
            text = option.description or ""
            text = text[0].lower() + text[1:]
            if name in _MORE_HELP:
                text = f"{text.removesuffix('.')}; {_MORE_HELP[name]}"
            flag = Parameter(name=f"--{_NAMES.get(name, name).replace('_', '-')}", help=text, negative=())
            default = option.default
            given = field(default_factory=list) if isinstance(default, list) else field(default=default)
            fields.append((name, Annotated[option.annotation, flag], given))
    # cyclopts takes classes of standard modules, as `types` is, for plain values.
    made = make_dataclass("TranslationFlags", fields, frozen=True, namespace={"__module__": __name__})
    return Parameter(name="*")(made)


if TYPE_CHECKING:
    TranslationFlags = TranslationOptions
else:
    TranslationFlags = _make_flags()


@Parameter(name="*")
@dataclass(frozen=True)
class SourceFlags:
    """Spans and terms of the source that are kept.

    Args:
        protect: keep web addresses, e-mail addresses, @handles, #hashtags, XML and HTML tags and {placeholders} as they
            are, each as often as it is there.
        protect_numbers: keep numbers as they are, too, with what is glued to them, as in 5km, 20%, 2nd and 2½.
        glossary: a file with two columns, term and translation, tab between: terms that must be translated so.
    """

    protect: bool = False
    protect_numbers: bool = False
    glossary: Path | None = None

    @property
    def values(self) -> dict[str, Any]:
        """The options that the flags stand for."""
        kinds: list[Kind] = [*(USUAL_KINDS if self.protect else ()), *(("number",) if self.protect_numbers else ())]
        return {"protect": kinds, "glossary": Glossary.read(self.glossary).targets if self.glossary else {}}

    @property
    def given(self) -> dict[str, bool]:
        """Whether each of the flags is given, by its name."""
        return {f"--{name.replace('_', '-')}": bool(value) for name, value in asdict(self).items()}


def make_options(flags: TranslationFlags, source_flags: SourceFlags) -> TranslationOptions:
    """The options that the flags stand for.

    Raises:
        ConfigError: a value breaks the rule of its option.
        CorpusError: the glossary cannot be read.
    """
    return TranslationOptions.parse({**vars(flags), **source_flags.values})
