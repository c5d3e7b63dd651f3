"""Translation by the native engine, or by another program's, which reads exported folders.

Only other programs' engines load PyTorch here.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, cast, get_args

from transduce.bundle import Bundle, BundleDescription, find_bundle
from transduce.bundle.bundle import DESCRIPTION
from transduce.bundle.manifest import check_files, read_description
from transduce.errors import ConfigError
from transduce.kernels.hardware import Precision
from transduce.text import Tokenizer
from transduce.translation import Translator

if TYPE_CHECKING:
    from transduce.interop.formats import ExportedSettings
    from transduce.interop.onnx import OnnxSettings

NATIVE = "native"

ENGINES = {"ctranslate2": "model.bin", "onnx": "encoder.onnx"}
"""For each engine by name, which is that of its format, the file that identifies an exported folder."""

NATIVE_PRECISIONS: tuple[str, ...] = get_args(Precision)

_FEW_SENTENCES = 20
"""Sentences of the proof of an export that is used once: a tenth of those in the proof that `export` makes."""


def load_translator(
    model: Path,
    engine: str = NATIVE,
    *,
    device: str = "auto",
    precision: str = "auto",
    ensemble: Sequence[Path] = (),
    should_keep_weights: bool = True,
    report: Callable[[str], None] = lambda _: None,
) -> Translator:
    """Load a translator that runs a model on the engine of that name.

    Engines other than the native one read exported folders; a bundle is exported first, to a temporary folder, with a
    short proof.

    Args:
        model: a bundle, the folder of a run, or for another engine an exported folder.
        engine: "native", or a key of `ENGINES`.
        device: cpu, cuda, mps or auto, as far as the engine supports them.
        precision: one that the engine supports. "auto" is the fastest one for the native engine, the one of an exported
            folder, and float32 for a bundle.
        ensemble: further bundles, for the native engine.
        should_keep_weights: as of `Translator.load`, for the native engine.
        report: receives a message when a bundle is exported.

    Raises:
        BundleError: there is no model, or it is damaged.
        ConfigError: there is no such engine, or it does not support the device, precision or ensemble.
        MissingExtraError: the engine is not installed.
        ParityError: the exported model does not compute the same.
    """
    for name, file in ENGINES.items():
        if name != engine and (model / file).is_file():
            raise ConfigError(f"{model} was exported to {name}: use --engine {name}")
    if engine == NATIVE:
        if precision not in NATIVE_PRECISIONS:
            known = ", ".join(NATIVE_PRECISIONS)
            raise ConfigError(f"precision = {precision!r}: the native engine has {known}; other engines support more")
        return Translator.load(
            model,
            device=device,
            precision=cast("Precision", precision),
            ensemble=ensemble,
            should_keep_weights=should_keep_weights,
        )
    if engine not in ENGINES:
        raise ConfigError(f"engine = {engine!r}: must be one of {', '.join((NATIVE, *ENGINES))}")
    if ensemble:
        raise ConfigError(f"--ensemble: the engine {engine} computes with one model; use the engine {NATIVE}")
    if (model / ENGINES[engine]).is_file():
        return _load_exported(model, engine, device, precision)
    from transduce.interop.export_import import export_bundle  # noqa: PLC0415 - loads PyTorch

    report(f"{model} is exported to {engine} temporarily; transduce export --to {engine} keeps the export")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / engine
        wanted = None if precision == "auto" else precision
        export_bundle(Bundle.open(find_bundle(model)), engine, folder, precision=wanted, num_sentences=_FEW_SENTENCES)
        return _load_exported(folder, engine, device, "auto")


def _load_exported(folder: Path, engine: str, device: str, precision: str) -> Translator:
    """The translator of an exported folder; the folder may be removed afterwards."""
    from transduce.interop.parity import PARITY_FILE, Parity  # noqa: PLC0415 - loads PyTorch

    check_files(folder, read_description(folder / PARITY_FILE, Parity), PARITY_FILE)
    settings = read_exported_settings(folder, engine)
    if precision not in {"auto", settings.precision}:
        raise ConfigError(f"precision = {precision!r}: {folder} was exported in {settings.precision}: leave it out")
    loaded, languages = _import_engine(engine).load(folder, device), settings.languages
    return Translator(loaded, Tokenizer.load(folder), settings.search, languages.source, languages.target)


def read_exported_settings(folder: Path, engine: str) -> "ExportedSettings | OnnxSettings":
    """The settings of a folder that was exported to the engine of that name."""
    settings: ExportedSettings | OnnxSettings = _import_engine(engine).read_settings(folder)
    return settings


def read_languages(model: Path) -> tuple[str, str]:
    """The codes of source and target that a bundle, a run or an exported folder records; "" for one that is unknown.

    Raises:
        BundleError: there is no model.
    """
    engine = next((name for name, file in ENGINES.items() if (model / file).is_file()), None)
    if engine is None:
        languages = read_description(find_bundle(model) / DESCRIPTION, BundleDescription).languages
    else:
        languages = read_exported_settings(model, engine).languages
    return languages.source, languages.target


def _import_engine(engine: str) -> ModuleType:
    """The module of an engine and its format, whose `read_settings` and `load` take an exported folder."""
    return import_module(f"transduce.interop.{engine}")
