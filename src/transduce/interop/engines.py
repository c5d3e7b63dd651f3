"""Translation by the engine of another program, with an exported model or a bundle that is exported for one use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast, get_args

from transduce.bundle import Bundle, find_bundle
from transduce.errors import ConfigError
from transduce.interop.ctranslate2 import engine as ctranslate2_engine
from transduce.interop.ctranslate2 import runtime as ctranslate2_settings
from transduce.interop.export import export_bundle
from transduce.interop.onnx import runtime as onnx_runtime
from transduce.interop.parity import check_export
from transduce.kernels.precision import Precision
from transduce.text import Tokenizer
from transduce.translation import Engine, Translator

NATIVE = "native"


@dataclass(frozen=True)
class ForeignEngine:
    """An engine that reads exported folders of a format.

    Args:
        file: a file that every such folder has.
        read_settings: reads precision, search and languages of a folder.
        load: loads the model of a folder on a device.
    """

    file: str
    read_settings: Callable[[Path], Any]
    load: Callable[[Path, str], Engine]


def _load_onnx(folder: Path, device: str) -> Engine:
    if device not in {"auto", "cpu"}:
        raise ConfigError(f"device = {device!r}: the engine onnx computes on the cpu")
    return onnx_runtime.load(folder)


ENGINES = {
    "ctranslate2": ForeignEngine("model.bin", ctranslate2_settings.read_settings, ctranslate2_engine.load),
    "onnx": ForeignEngine("encoder.onnx", onnx_runtime.read_settings, _load_onnx),
}
"""Engines by name, which is that of their format."""

NATIVE_PRECISIONS: tuple[str, ...] = get_args(Precision)

NUM_SENTENCES = 20
"""Sentences of the proof of an export that is used once: a tenth of those in the proof that `export` makes."""


def load_translator(
    model: Path,
    engine: str = NATIVE,
    *,
    device: str = "auto",
    precision: str = "auto",
    ensemble: Sequence[Path] = (),
    report: Callable[[str], None] = lambda _: None,
) -> Translator:
    """Load a translator that runs a model on the engine of that name.

    Engines other than the native one read exported folders; a bundle is exported first, to a temporary folder, with a
    short proof.

    Args:
        model: a bundle, the folder of a run, or for another engine an exported folder.
        engine: "native", or a key of `ENGINES`.
        device: cpu, cuda, mps or auto, as far as the engine has them.
        precision: one that the engine has. "auto" is the fastest one for the native engine, the one of an exported
            folder, and float32 for a bundle.
        ensemble: further bundles, for the native engine.
        report: receives a message when a bundle is exported.

    Raises:
        BundleError: there is no model, or it is damaged.
        ConfigError: there is no such engine, or it does not have the device, precision or ensemble.
        MissingExtraError: the engine is not installed.
        ParityError: the exported model does not compute the same.
    """
    for name, foreign in ENGINES.items():
        if name != engine and (model / foreign.file).is_file():
            raise ConfigError(f"{model} was exported to {name}: use --engine {name}")
    if engine == NATIVE:
        if precision not in NATIVE_PRECISIONS:
            known = ", ".join(NATIVE_PRECISIONS)
            raise ConfigError(f"precision = {precision!r}: the native engine has {known}; others have more")
        return Translator.load(model, device=device, precision=cast("Precision", precision), ensemble=ensemble)
    if engine not in ENGINES:
        raise ConfigError(f"engine = {engine!r}: must be one of {', '.join((NATIVE, *ENGINES))}")
    if ensemble:
        raise ConfigError(f"--ensemble: the engine {engine} computes with one model; use the engine {NATIVE}")
    if (model / ENGINES[engine].file).is_file():
        return _load_exported(model, engine, device, precision)
    report(f"{model} is exported to {engine}, to be used once: transduce export --to {engine} keeps it")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / engine
        wanted = None if precision == "auto" else precision
        export_bundle(Bundle.open(find_bundle(model)), engine, folder, precision=wanted, num_sentences=NUM_SENTENCES)
        return _load_exported(folder, engine, device, "auto")


def _load_exported(folder: Path, engine: str, device: str, precision: str) -> Translator:
    """The translator of an exported folder; the folder may be removed afterwards."""
    check_export(folder)
    settings = ENGINES[engine].read_settings(folder)
    if precision not in {"auto", settings.precision}:
        raise ConfigError(f"precision = {precision!r}: {folder} was exported in {settings.precision}: leave it out")
    loaded, languages = ENGINES[engine].load(folder, device), settings.languages
    return Translator(loaded, Tokenizer.load(folder), settings.search, languages.source, languages.target)
