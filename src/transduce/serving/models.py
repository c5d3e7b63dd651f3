"""Loaded models, one for each pair of languages, renewed when their files change."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from transduce.bundle import Bundle, find_bundle
from transduce.errors import BundleError, ConfigError
from transduce.interop import NATIVE, load_translator
from transduce.kernels.device import find_device
from transduce.serving.answers import LanguagePair
from transduce.serving.metrics import Metrics
from transduce.translation import (
    AlignmentHead,
    Confidence,
    ForcedDecoder,
    LineTranslator,
    NativeEngine,
    TranslationOptions,
    Translator,
)

_WARM_UP = ["1 2 3.", "A man, a plan, a canal."]

Fingerprint = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class ModelSettings:
    """How models are loaded; see `interop.load_translator`."""

    engine: str = NATIVE
    device: str = "auto"
    precision: str = "float32"
    source_language: str = ""
    """Of models that do not say theirs."""
    target_language: str = ""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model that has translated something.

    Args:
        languages: what it translates.
        translator: it, with its own settings of the search.
        fingerprint: of the files that it was loaded from.
        head: the one that its calibration names for alignment; None if none does.
        confidence: how sure its translations are; None unless it is calibrated.
    """

    languages: LanguagePair
    translator: Translator
    fingerprint: Fingerprint
    head: AlignmentHead | None = None
    confidence: Confidence | None = None

    @classmethod
    def load(cls, path: Path, settings: ModelSettings, say: Callable[[str], None] = lambda _: None) -> "LoadedModel":
        """The model at `path`, once it has translated something.

        Raises:
            BundleError: it is missing, damaged, or was changed meanwhile.
            ConfigError: it does not say its languages, or engine, device or precision are not there.
            MissingExtraError: the engine is not installed.
        """
        seen = fingerprint(path)
        precision = settings.precision
        if settings.engine != NATIVE and precision == "float32":
            precision = "auto"  # what an exported folder has
        translator = load_translator(path, settings.engine, device=settings.device, precision=precision, report=say)
        source = translator.source_language = translator.source_language or settings.source_language
        target = translator.target_language = translator.target_language or settings.target_language
        if not source or not target:
            raise ConfigError(
                f"{path}: does not say which languages it translates, and requests name them: give "
                f"--source-language and --target-language, as in --source-language en --target-language de"
            )
        bundle = Bundle.open(find_bundle(path)) if settings.engine == NATIVE else None
        languages = LanguagePair(
            source=source,
            target=target,
            model=_name(path),
            engine=settings.engine,
            precision=settings.precision,
            digest=None if bundle is None else bundle.digest,
            num_parameters=translator.engine.model.num_parameters
            if isinstance(translator.engine, NativeEngine)
            else None,
            max_pieces=translator.search.max_pieces,
            beam=translator.search.beam,
        )
        translator.translate(_WARM_UP)
        head = None if bundle is None else AlignmentHead.load(bundle)
        confidence = None if bundle is None else Confidence.load(bundle)
        if fingerprint(path) != seen:
            raise BundleError(f"{path}: was changed while it was loaded: load it again")
        return cls(languages, translator, seen, head, confidence)

    def line_translator(self, wish: TranslationOptions) -> LineTranslator:
        """What grants the wish.

        Raises:
            ConfigError: it contradicts itself, or asks for more than the model or its engine has.
        """
        return LineTranslator(self.translator, wish.widen_beam(self.translator.search), self.head)

    def decoder(self, purpose: str) -> ForcedDecoder:
        """What reads translations that are given.

        Raises:
            ConfigError: the engine is not the native one.
        """
        engine = self.translator.engine
        if not isinstance(engine, NativeEngine):
            raise ConfigError(f"{purpose}: needs the engine {NATIVE}; this service has {self.languages.engine}")
        return ForcedDecoder(engine.model, self.translator.tokenizer, self.translator.search)

    @property
    def alignment_head(self) -> AlignmentHead:
        """The mean of the last layer's unless the model is calibrated."""
        return self.head or AlignmentHead(self.decoder("alignments").model.config.num_decoder_layers - 1)


class Models:
    """The models of a service."""

    def __init__(
        self, paths: Sequence[Path], settings: ModelSettings, metrics: Metrics, say: Callable[[str], None]
    ) -> None:
        self._paths = tuple(paths)
        self._settings, self._metrics, self._say = settings, metrics, say
        self._loaded: dict[Path, LoadedModel] = {}
        self._seen: dict[Path, Fingerprint] = {}  # a change that may still be going on
        self._refused: dict[Path, Fingerprint] = {}

    @property
    def languages(self) -> tuple[LanguagePair, ...]:
        """What is loaded, in the order of the paths."""
        return tuple(model.languages for model in self._loaded.values())

    @property
    def num_lanes(self) -> int:
        """Batches to compute at a time: one on each core of a processor; a GPU gains nothing from several."""
        is_native = self._settings.engine == NATIVE
        if is_native and find_device(self._settings.device).type != "cpu":
            return 1
        return torch.get_num_threads()

    def of(self, pair: tuple[str, str]) -> LoadedModel | None:
        """The model of a pair of languages."""
        of_pair = (model for model in self._loaded.values() if _pair(model) == pair)
        return next(of_pair, None)

    def load(self) -> None:
        """Load all.

        Raises:
            ConfigError: there is none, two have the same pair; see also `LoadedModel.load`.
        """
        if not self._paths:
            raise ConfigError("there is no model to serve: give a bundle")
        for path in self._paths:
            model = LoadedModel.load(path, self._settings, self._say)
            other = next((place for place, one in self._loaded.items() if _pair(one) == _pair(model)), None)
            if other is not None:
                raise ConfigError(f"{other} and {path} both translate {'-'.join(_pair(model))}: give one of them")
            self._loaded[path] = model
            self._say(f"{path}: translates {'-'.join(_pair(model))}")
        self._metrics.models_loaded(self.languages)

    async def watch(self, seconds: float) -> None:
        """Look at the models' files again and again, and load what has changed; never ends by itself.

        A model takes the place of the old one once it has translated something. One that cannot be loaded is refused,
        and the old one stays.
        """
        while True:
            await asyncio.sleep(seconds)
            for path in self._paths:
                if self._has_changed(path):
                    await self._renew(path)

    def _has_changed(self, path: Path) -> bool:
        """Whether there are other files than were loaded or refused, the same as when they were last looked at."""
        try:
            found = fingerprint(path)
        except BundleError:  # for a moment, or for good: the old model stays
            return False
        before, self._seen[path] = self._seen.get(path), found
        return found == before and found not in (self._loaded[path].fingerprint, self._refused.get(path))

    async def _renew(self, path: Path) -> None:
        old = self._loaded[path]
        try:
            new = await asyncio.to_thread(LoadedModel.load, path, self._settings)
            _check_pair(new, old)
        except Exception as error:  # noqa: BLE001 - whatever it is, the old model goes on
            self._refused[path] = self._seen[path]
            self._metrics.reloaded("refused")
            self._say(f"{path} was changed, and is refused: {error}; the old model stays")
            return
        self._loaded[path] = new
        self._metrics.reloaded("loaded")
        self._metrics.models_loaded(self.languages)
        self._say(f"{path} was changed, and is loaded anew")


def fingerprint(path: Path) -> Fingerprint:
    """What tells the files of a model from others: name, size, time of change and place on the disk of each.

    Raises:
        BundleError: there is no model.
    """
    try:
        folder = find_bundle(path)
    except BundleError:
        if not (path.is_dir() and any(path.glob("*.json"))):  # what was exported to another engine has some
            raise
        folder = path
    try:
        stats = {file.name: file.stat() for file in sorted(folder.iterdir()) if file.is_file()}
    except OSError as error:
        raise BundleError(f"{folder}: cannot be read: {error.strerror}") from error
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats.items())


def _check_pair(new: LoadedModel, old: LoadedModel) -> None:
    if _pair(new) != _pair(old):
        raise ConfigError(f"it translates {'-'.join(_pair(new))}, and not {'-'.join(_pair(old))} any more")


def _pair(model: LoadedModel) -> tuple[str, str]:
    return model.languages.source, model.languages.target


def _name(path: Path) -> str:
    """The folder's name; of `best` or `last` of a run, the run's."""
    folder = path.resolve()
    return folder.parent.name if folder.name in {"best", "last"} else folder.name
