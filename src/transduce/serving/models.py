"""Loaded models, one per language pair: loading, reloading when their files change, languages, language detection."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from transduce.bundle import Bundle, find_bundle, name_model
from transduce.errors import BundleError, ConfigError
from transduce.interop import ENGINES, NATIVE, load_translator, read_exported_settings
from transduce.kernels.device import find_device
from transduce.kernels.hardware import count_threads
from transduce.serving.monitoring import Metrics
from transduce.text.languages import find_argos_code, get_base_code, load_language_identifier
from transduce.translation import (
    AlignmentHead,
    Confidence,
    DescribedFields,
    LineTranslator,
    TranslationOptions,
    Translator,
    find_pytorch_engine,
)

_WARM_UP = ["1 2 3.", "A man, a plan, a canal."]

_DETECTED_CHARACTERS = 2_000
"""Maximum number of characters that language detection reads; more take time without changing the result."""

Fingerprint = tuple[tuple[str, int, int, int], ...]
LanguagePair = tuple[str, str]
"""Language codes of source and target."""


@dataclass(frozen=True)
class ModelInfo(DescribedFields):
    """A loaded model."""

    source: Annotated[str, Field(examples=["en"])]
    """Source language code."""

    target: Annotated[str, Field(examples=["de"])]
    """Target language code."""

    model: Annotated[str, Field(examples=["best"])]
    """Name of the model."""

    engine: Annotated[str, Field(examples=["native"])]
    """Engine that computes the model."""

    precision: Annotated[str, Field(examples=["float32"])]
    """Precision of the arithmetic."""

    digest: str | None
    """SHA-256 of the weights; null for engines other than the native one."""

    num_parameters: int | None
    """Number of parameters of the network; null for engines other than the native one."""

    architecture: str | None
    """Kind of the network, as in the setting `model.architecture`; null for engines other than the native one."""

    max_pieces: int
    """Maximum number of pieces of a sentence that is translated as a whole; longer ones are translated in parts."""

    beam: int
    """Default number of hypotheses per sentence."""

    @property
    def pair(self) -> LanguagePair:
        """Its languages."""
        return self.source, self.target

    @property
    def can_align(self) -> bool:
        """Whether words of a translation can be aligned with those of its source: by the attention of a Transformer."""
        return self.engine == NATIVE and self.architecture == "transformer"


@dataclass(frozen=True)
class ModelSettings:
    """Settings with which models are loaded; see `interop.load_translator`."""

    engine: str = NATIVE
    device: str = "auto"
    precision: str = "float32"
    """With float32, the translation of a text does not depend on the other texts in its batch."""
    source_language: str = ""
    """Source language of models without a recorded one."""
    target_language: str = ""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A loaded and tested model.

    Args:
        info: its description.
        translator: the model with its own search settings.
        fingerprint: fingerprint of the files that it was loaded from.
        head: the attention head for word alignment, from the model's calibration; None if not calibrated.
        confidence: the model's calibration; None if not calibrated.
    """

    info: ModelInfo
    translator: Translator
    fingerprint: Fingerprint
    head: AlignmentHead | None = None
    confidence: Confidence | None = None

    @classmethod
    def load(cls, path: Path, settings: ModelSettings, report: Callable[[str], None] = lambda _: None) -> "LoadedModel":
        """Load a model and test it by a translation.

        Raises:
            BundleError: it is missing or damaged, or was changed while it was loaded.
            ConfigError: it has no recorded languages, or the engine, device or precision is not available.
        """
        fingerprint = compute_fingerprint(path)
        precision = settings.precision
        if settings.engine != NATIVE and precision == "float32":
            precision = "auto"  # the metadata of an exported folder
        translator = load_translator(path, settings.engine, device=settings.device, precision=precision, report=report)
        source = translator.source_language = translator.source_language or settings.source_language
        target = translator.target_language = translator.target_language or settings.target_language
        if not source or not target:
            raise ConfigError(
                f"{path}: has no recorded languages, which a service needs: give --source-language and "
                "--target-language, as in --source-language en --target-language de"
            )
        bundle = Bundle.open(find_bundle(path)) if settings.engine == NATIVE else None
        engine = find_pytorch_engine(translator.engine)  # loads PyTorch now, not during a request
        info = ModelInfo(
            source=source,
            target=target,
            model=name_model(path),
            engine=settings.engine,
            precision=_find_precision(path, settings),
            digest=None if bundle is None else bundle.digest,
            num_parameters=None if engine is None else engine.model.num_parameters,
            architecture=None if bundle is None else bundle.model_config.architecture,
            max_pieces=translator.search.max_pieces,
            beam=translator.search.beam,
        )
        if info.architecture not in {None, "transformer"}:
            report(
                f"{path}: a {info.architecture} network aligns no words: glossaries, protected text, alignments and "
                "inspection are refused; what lies between two tags of HTML or XML is translated by itself"
            )
        translator.translate(_WARM_UP)
        head = None if bundle is None else AlignmentHead.load(bundle)
        confidence = None if bundle is None else Confidence.load(bundle)
        if compute_fingerprint(path) != fingerprint:
            raise BundleError(f"{path}: was changed while it was being loaded: try again")
        return cls(info, translator, fingerprint, head, confidence)

    def make_line_translator(self, options: TranslationOptions) -> LineTranslator:
        """Check the options, and make a translator with them."""
        return LineTranslator(self.translator, options.widen_beam(self.translator.search), self.head)


class Models:
    """The models of a service.

    Args:
        paths: bundles, folders of runs, or for another engine folders exported to it.
        settings: settings for loading them.
        metrics: the service's.
        report: is called with each one-line message to the operator.
        warn: is called instead with each message that requires action.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        settings: ModelSettings,
        metrics: Metrics,
        report: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._paths = tuple(paths)
        self._settings, self._metrics, self._report, self._warn = settings, metrics, report, warn
        self._loaded: dict[Path, LoadedModel] = {}
        self._seen: dict[Path, Fingerprint] = {}  # of changes that may still be in progress
        self._refused: dict[Path, Fingerprint] = {}
        self._missing: set[Path] = set()

    @property
    def infos(self) -> tuple[ModelInfo, ...]:
        """Descriptions of the loaded models, in the order of their paths."""
        return tuple(model.info for model in self._loaded.values())

    @property
    def num_workers(self) -> int:
        """Number of batches computed concurrently: one per CPU core; a single one on a GPU, which gains nothing from
        more.
        """
        is_native = self._settings.engine == NATIVE
        if is_native and find_device(self._settings.device).type != "cpu":
            return 1
        return count_threads()

    def find(self, pair: LanguagePair) -> LoadedModel | None:
        """Find the model of a language pair."""
        return next((model for model in self._loaded.values() if model.info.pair == pair), None)

    def load(self) -> None:
        """Load all models; see `Service.start`."""
        if not self._paths:
            raise ConfigError("no model to serve: give a bundle")
        for path in self._paths:
            model = LoadedModel.load(path, self._settings, self._report)
            pair = model.info.pair
            other = next((place for place, one in self._loaded.items() if one.info.pair == pair), None)
            if other is not None:
                raise ConfigError(f"{other} and {path} both translate {'-'.join(pair)}: give one of them")
            self._loaded[path] = model
            self._report(f"{path}: translates {'-'.join(pair)}")
        self._metrics.set_models(map(asdict, self.infos))

    async def watch(self, seconds: float) -> None:
        """Check the models' files at intervals, and reload models whose files have changed; never returns.

        A new model replaces the old one after a test translation. If it cannot be loaded, the old one is kept.
        """
        while True:
            await asyncio.sleep(seconds)
            for path in self._paths:
                if self._has_changed(path):
                    await self._reload(path)

    def _has_changed(self, path: Path) -> bool:
        """Return whether files differ from those loaded or rejected, and have not changed since the last check."""
        try:
            found = compute_fingerprint(path)
        except BundleError as error:  # missing, briefly or permanently: the old model is kept
            if path not in self._missing:
                self._missing.add(path)
                self._warn(f"{error}; the model that was loaded from there is kept")
            return False
        if path in self._missing:
            self._missing.remove(path)
            self._report(f"{path}: can be read again")
        before, self._seen[path] = self._seen.get(path), found
        return found == before and found not in (self._loaded[path].fingerprint, self._refused.get(path))

    async def _reload(self, path: Path) -> None:
        old = self._loaded[path].info
        try:
            new = await asyncio.to_thread(LoadedModel.load, path, self._settings)
            if new.info.pair != old.pair:
                raise ConfigError(f"it translates {'-'.join(new.info.pair)}, no longer {'-'.join(old.pair)}")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001 - after any error the old model is kept
            self._refused[path] = self._seen[path]
            self._metrics.reloads.labels("refused").inc()
            self._warn(f"{path} has changed and could not be loaded: {error}; the old model is kept")
            return
        self._loaded[path] = new
        self._metrics.reloads.labels("loaded").inc()
        self._metrics.set_models(map(asdict, self.infos))
        self._report(f"{path} has changed; reloaded")


def compute_fingerprint(path: Path) -> Fingerprint:
    """Compute name, size, time of change and inode of each file of a model.

    Raises:
        BundleError: there is no model, or it cannot be read.
    """
    try:
        try:
            folder = find_bundle(path)
        except BundleError:
            if not (path.is_dir() and any(path.glob("*.json"))):  # models of other engines may have subfolders
                raise
            folder = path
        stats = {file.name: file.stat() for file in sorted(folder.iterdir()) if file.is_file()}
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from error
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats.items())


def _find_precision(path: Path, settings: ModelSettings) -> str:
    """Return the precision of a loaded model: that of an exported folder, or else that of the settings."""
    file = ENGINES.get(settings.engine)
    if file is None:
        return settings.precision
    if (path / file).is_file():
        return read_exported_settings(path, settings.engine).precision
    return "float32" if settings.precision == "auto" else settings.precision


class SupportedLanguages:
    """Language codes of the loaded models, in their order."""

    def __init__(self, pairs: Iterable[LanguagePair]) -> None:
        self._targets: dict[str, list[str]] = {}
        for source, target in pairs:
            self._targets.setdefault(source, []).append(target)

    @property
    def sources(self) -> tuple[str, ...]:
        """All source languages."""
        return tuple(self._targets)

    @property
    def targets(self) -> tuple[str, ...]:
        """All target languages."""
        return tuple(dict.fromkeys(target for targets in self._targets.values() for target in targets))

    @property
    def all(self) -> tuple[str, ...]:
        """All source languages, then the targets that are not sources."""
        return tuple(dict.fromkeys((*self.sources, *self.targets)))

    def get_targets(self, source: str) -> tuple[str, ...]:
        """Return the target languages of a source."""
        return tuple(self._targets.get(source, ()))

    def get_sources(self, target: str) -> tuple[str, ...]:
        """Return the source languages of a target."""
        return tuple(source for source, targets in self._targets.items() if target in targets)


def find_language(code: str, codes: Iterable[str]) -> str | None:
    """Find the model's code for a client's code: "DE" is "de", "en-US" is "en" if there is no other English, "en" is
    "en-GB".
    """
    known = {_normalize_code(one): one for one in reversed(list(codes))}
    normalized = _normalize_code(code)
    base = _get_base(normalized)
    regions = {_get_base(one): name for one, name in known.items() if one != _get_base(one)}
    return known.get(normalized) or known.get(base) or (regions.get(base) if normalized == base else None)


def _get_base(normalized: str) -> str:
    """Return the language of a code of Argos's, without a region; traditional Chinese stays apart, as "zt"."""
    return normalized if normalized == "zt" else get_base_code(normalized)


def _normalize_code(code: str) -> str:
    """Return the code used in Argos packages, or else the code in lower case."""
    return find_argos_code(code.strip()) or code.strip().lower()


class DetectedLanguage(NamedTuple):
    """A language and the probability, from 0 to 1, that a text is in it."""

    language: str
    probability: float


@lru_cache(maxsize=64)
def _restrict_identifier(bases: frozenset[str]) -> Any:  # noqa: ANN401 - a library without types
    identifier = copy(load_language_identifier())
    identifier.set_languages(bases)
    return identifier


def is_detectable(language: str) -> bool:
    """Whether the detector of languages, py3langid, can recognise text in this language."""
    return get_base_code(language) in load_language_identifier().labels


def rank_languages(text: str, languages: Sequence[str]) -> list[DetectedLanguage]:
    """Rank languages by their probability, relative to each other, of being the language of a text, best first.

    py3langid supports 97 languages. Others come last with probability 0, as do all for a text without letters.
    """
    bases = {get_base_code(language): language for language in reversed(languages)}
    known = frozenset(bases).intersection(load_language_identifier().labels)
    beginning = text[:_DETECTED_CHARACTERS]
    if not known or not any(map(str.isalpha, beginning)):
        return [DetectedLanguage(language, 0.0) for language in languages]
    ranked = [
        DetectedLanguage(bases[base], float(share)) for base, share in _restrict_identifier(known).rank(beginning)
    ]
    found = {one.language for one in ranked}
    return [*ranked, *(DetectedLanguage(language, 0.0) for language in languages if language not in found)]
