"""Translation of blocks of lines, as `transduce translate` prints them, by settings that can be sent to a process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from transduce.bundle import Bundle, find_bundle, read_calibration
from transduce.bundle.bundle import CALIBRATION, DESCRIPTION
from transduce.errors import BundleError, ConfigError, CorpusError, TransduceError, UserError, is_out_of_memory
from transduce.interop import NATIVE, load_translator
from transduce.translation import (
    InputLine,
    LineTranslator,
    TextConstraints,
    TranslatedLine,
    TranslatedSentence,
    TranslationOptions,
    Translator,
    describe_lines,
)

if TYPE_CHECKING:
    from transduce.translation import AlignmentHead, Confidence
    from transduce.translation.confidence.guard import GuardReport


@dataclass(frozen=True, kw_only=True)
class BlockTranslatorSettings:
    """Everything that decides the translation of lines.

    Args:
        model: a bundle, the folder of a run, or an exported folder for another engine.
        options: options of all lines.
        engine, precision, device, ensemble: as of `load_translator`.
        max_pieces: number of pieces up to which a line is translated as a whole; None: the model's.
        json: whether the output of a line is a JSON object with score, tokens and alternatives.
        json_input: whether each line is a JSON object, see `InputLine`.
    """

    model: Path
    options: TranslationOptions
    engine: str = NATIVE
    precision: str = "auto"
    device: str = "auto"
    ensemble: tuple[Path, ...] = ()
    max_pieces: int | None = None
    json: bool = False
    json_input: bool = False

    @property
    def may_need_pytorch(self) -> bool:
        """Whether some line may need PyTorch, because compiled kernels alone cannot translate it.

        The weights are then kept in memory from the beginning, as a training run may have replaced the bundle by the
        time that such a line comes.
        """
        options = self.options
        return bool(
            self.json
            or self.json_input
            or options.guard
            or options.num_samples
            or options.has_protected_text
            or options.constraints
            or options.no_repeat_ngram
            or options.repetition_penalty
            or options.diversity
        )

    def find_model_digest(self) -> str:
        """SHA-256 of the files that describe the models; these contain the digests of all other files.

        Raises:
            BundleError: there is no model.
        """
        digest = sha256()
        for model in (self.model, *self.ensemble):
            is_exported = self.engine != NATIVE and (model / "parity.json").is_file()
            folder = model if is_exported else find_bundle(model)
            for name in (DESCRIPTION, "parity.json", CALIBRATION):
                path = folder / name
                digest.update(path.read_bytes() if path.is_file() else b"")
                digest.update(b"\0")
        return digest.hexdigest()


@dataclass(frozen=True)
class TranslatedBlock:
    """The translations of consecutive lines.

    Args:
        lines: for each line its output without the line end at its end; several lines where there are alternatives.
        messages: what is unusual about a line, with its number.
        guard_report: what the guard found; None without it.
        error: with `json_input`, what is wrong with the line after those that are translated.
    """

    lines: list[str]
    messages: list[str]
    guard_report: "GuardReport | None" = None
    error: CorpusError | None = None


@dataclass(frozen=True)
class Failure:
    """An error in another process, which `make_error` makes again in this one.

    Args:
        message: what the error says.
        kind: whether it is the user's mistake, a failure, missing memory, or a bug.
    """

    message: str
    kind: Literal["mistake", "failure", "memory", "bug"]

    @classmethod
    def describe(cls, error: Exception) -> "Failure":
        """The description of an exception."""
        if isinstance(error, UserError):
            return cls(str(error), "mistake")
        if isinstance(error, TransduceError):
            return cls(str(error), "failure")
        if is_out_of_memory(error):
            return cls(str(error), "memory")
        return cls(f"{type(error).__name__}: {error}", "bug")

    def make_error(self) -> Exception:
        """An error with the same message and exit code."""
        match self.kind:
            case "mistake":
                return UserError(self.message)
            case "failure":
                return TransduceError(self.message)
            case "memory":
                return MemoryError(self.message)
            case "bug":
                return RuntimeError(self.message)


class BlockTranslator:
    """Translates blocks of lines into the lines that `transduce translate` prints.

    Args:
        line_translator: translates lines with options.
        describe: what is known about lines, for JSON; None: their text alone.
        json_input: whether each line is a JSON object.
    """

    def __init__(
        self,
        line_translator: LineTranslator,
        describe: Callable[[Sequence[TranslatedLine]], list[TranslatedSentence]] | None = None,
        *,
        json_input: bool = False,
    ) -> None:
        self.line_translator = line_translator
        self._describe = describe
        self._json_input = json_input

    @classmethod
    def load(
        cls,
        settings: BlockTranslatorSettings,
        digest: str | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> "BlockTranslator":
        """Load the model that settings name.

        Args:
            settings: everything that decides translations.
            digest: what `find_model_digest` must return; None: anything.
            report: receives a message when a bundle is exported.

        Raises:
            BundleError: there is no such model, it is damaged, or has another digest.
            ConfigError: settings contradict each other, or the engine does not support them.
        """
        if digest is not None and settings.find_model_digest() != digest:
            raise BundleError(
                f"{settings.model}: is not the model that this translation began with: give each machine the same "
                "folder, and do not train into it meanwhile"
            )
        loaded = load_translator(
            settings.model,
            settings.engine,
            device=settings.device,
            precision=settings.precision,
            ensemble=settings.ensemble,
            should_keep_weights=settings.may_need_pytorch,  # otherwise every worker would have them in vain
            report=report,
        )
        if settings.max_pieces is not None:
            loaded = loaded.with_search({"max_pieces": settings.max_pieces})
        head, confidence = _load_measurements(settings)
        describe = None
        if settings.json and settings.engine == NATIVE:
            describe = _make_describe(loaded, confidence, head)
        translator = LineTranslator(loaded, settings.options, head)
        return cls(translator, describe, json_input=settings.json_input)

    def translate(self, lines: Sequence[str], numbers: Sequence[int], name: str) -> TranslatedBlock:
        """Translate lines, which have these numbers in what errors call `name`.

        Raises:
            ConfigError: the options cannot be used for these lines.
        """
        given, problem = (
            self._read_json_lines(lines, numbers, name)
            if self._json_input
            else ([(text, None) for text in lines], None)
        )
        translator = self.line_translator
        translator.guard_report = None
        found = translator.translate([text for text, _ in given], [constraints for _, constraints in given])
        known = [None] * len(found) if self._describe is None else self._describe(found)
        numbered = list(zip(numbers, found, known, strict=False))  # with an error, there are fewer translations
        return TranslatedBlock(
            [self._format_line(number, line, one) for number, line, one in numbered],
            [
                message
                for number, line, _ in numbered
                for message in describe_unusual_line(f"line {number}", line, "its line is left blank")
            ],
            translator.guard_report,
            problem,
        )

    def _format_line(self, number: int, line: TranslatedLine, known: TranslatedSentence | None) -> str:
        if known is not None:
            return dumps({"line": number, **known.as_json()}, ensure_ascii=False, allow_nan=False)
        if self.line_translator.options.num_best == 1:
            return line.translation.text
        rows = []
        for alternative in line.translation.alternatives:
            value = alternative.score if alternative.utility is None else alternative.utility
            rows.append(f"{number}\t{value:.4f}\t{alternative.text}")
        return "\n".join(rows)

    def _read_json_lines(
        self, lines: Sequence[str], numbers: Sequence[int], name: str
    ) -> tuple[list[tuple[str, TextConstraints | None]], CorpusError | None]:
        """The texts of lines with the constraints of each; with an error, those before the faulty line."""
        found: list[tuple[str, TextConstraints | None]] = []
        for number, line in zip(numbers, lines, strict=True):
            try:
                one = InputLine.read(line, number, name)
                if (constraints := one.constraints) is not None:
                    self.line_translator.check(constraints)
            except CorpusError as error:
                return found, error
            except ConfigError as error:
                return found, CorpusError(f"{name}, line {number}: {error}")
            found.append((one.text, constraints))
        return found, None


def describe_unusual_line(name: str, line: TranslatedLine, otherwise: str) -> list[str]:
    """Messages about a line or sentence, called `name`, that has no translation, or one in parts; none for others.

    `otherwise` says what the output has where there is no translation.
    """
    messages = []
    if line.has_failed:
        messages.append(
            f"{name}: no translation meets the constraints, or the text is too long for constraints; {otherwise}"
        )
    if line.translation.num_parts > 1:
        messages.append(
            f"{name} is longer than the model reads at once; translated in {line.translation.num_parts} parts"
        )
    if line.is_given_up:
        messages.append(
            f"{name}: no translation keeps all protected spans; left untranslated, with glossary terms replaced"
        )
    elif line.how == "in parts":
        messages.append(
            f"{name}: no translation of a whole sentence keeps all protected spans; translated in parts around them"
        )
    return messages


def _make_describe(
    translator: Translator, confidence: "Confidence | None", head: "AlignmentHead | None"
) -> Callable[[Sequence[TranslatedLine]], list[TranslatedSentence]]:
    return partial(
        describe_lines, translator=translator, confidence=confidence, head=head, has_alignment=head is not None
    )


def _load_measurements(settings: BlockTranslatorSettings) -> "tuple[AlignmentHead | None, Confidence | None]":
    """The alignment head and the confidence of a calibrated bundle, as far as the settings need them.

    With an ensemble, words are aligned by the attention of the first model, and there is no confidence: it was
    calibrated for the probabilities of that model alone, and not for their mean.
    """
    bundle = open_calibrated_bundle(settings.model) if settings.engine == NATIVE else None
    if bundle is None or not (settings.json or settings.options.has_protected_text):
        return None, None
    from transduce.translation import AlignmentHead  # noqa: PLC0415 - loads PyTorch

    head = AlignmentHead.load(bundle)
    if not settings.json or settings.ensemble:
        return head, None
    from transduce.translation import Confidence  # noqa: PLC0415 - loads sacreBLEU

    return head, Confidence.load(bundle)


def open_calibrated_bundle(model: Path) -> Bundle | None:
    """The bundle of a model, after checking its calibration; None if it is not calibrated."""
    folder = find_bundle(model)
    if not (folder / CALIBRATION).exists():
        return None
    bundle = Bundle.open(folder)
    read_calibration(bundle)
    return bundle
