"""Bundles: a trained model as one folder with weights, tokenizer, description and model card.

Opening a bundle does not load PyTorch, unless its weights are unusual; only using the network does.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from transduce.bundle.arrays import find_precision, has_usual_weights, list_names, quantize_arrays, read_arrays
from transduce.bundle.manifest import (
    BUNDLE_VERSION,
    BundleDescription,
    Languages,
    check_files,
    make_model_card,
    read_description,
    record_files,
    serialize_description,
)
from transduce.config import PRESETS, SearchConfig, TransformerConfig
from transduce.errors import BundleError, ConfigError, OutputError, UserError
from transduce.storage import (
    FORCE_ADVICE,
    UNFINISHED_PATTERN,
    check_replaceable,
    check_writable,
    replace_folder,
    resolve_folder,
    write_files,
)
from transduce.text import SOURCE_MODEL, TARGET_MODEL, VOCABULARY, Tokenizer
from transduce.text.corpus import escape_surrogates

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from transduce.config import RunConfig, TrainingConfig
    from transduce.model import EncoderDecoder

DESCRIPTION = "bundle.json"
WEIGHTS = "weights.safetensors"
MODEL_CARD = "README.md"
CALIBRATION = "calibration.json"
SCORECARD = "scorecard.json"
FILES = {
    DESCRIPTION,
    WEIGHTS,
    MODEL_CARD,
    SOURCE_MODEL,
    TARGET_MODEL,
    VOCABULARY,
    CALIBRATION,
    SCORECARD,
    "parity.json",
}
"""All files that a bundle may have; `bundle.measurements` and `interop.parity` write the last three."""
_LEFT_BY_DESKTOPS = {".DS_Store", "Thumbs.db", "desktop.ini"}
_TOKENIZERS = ({SOURCE_MODEL}, {SOURCE_MODEL, TARGET_MODEL, VOCABULARY})


@dataclass(frozen=True)
class Bundle:
    """A complete trained model, from raw text to raw text."""

    folder: Path
    description: BundleDescription

    @property
    def model_config(self) -> TransformerConfig:
        """The settings of the network."""
        return self.description.model

    @property
    def tokenizer_path(self) -> Path:
        """The value of `text.tokenizer` for this tokenizer: the SentencePiece model, or the folder if it has two."""
        return self.folder / SOURCE_MODEL if self._tokenizer_files == {SOURCE_MODEL} else self.folder

    @property
    def _tokenizer_files(self) -> set[str]:
        return set(self.description.files) - {WEIGHTS}

    @property
    def digest(self) -> str:
        """SHA-256 of the weights, which identifies the model."""
        return self.description.files[WEIGHTS].sha256

    @classmethod
    def open(cls, folder: Path) -> "Bundle":
        """Open the bundle in `folder` and check all of its files; nothing on disk is changed.

        Raises:
            BundleError: the folder is missing, damaged or of another format; names the file, what was expected and what
                was found.
        """
        folder = resolve_folder(folder)
        if not (folder / DESCRIPTION).is_file():
            raise _make_missing_bundle_error(folder, [folder])
        bundle = cls(folder, read_description(folder / DESCRIPTION, BundleDescription))
        if WEIGHTS not in bundle.description.files or bundle._tokenizer_files not in _TOKENIZERS:
            raise BundleError(
                f"{folder / DESCRIPTION}: it lists the files {sorted(bundle.description.files)}, but must list "
                f"{sorted([WEIGHTS, SOURCE_MODEL])}, optionally with {TARGET_MODEL} and {VOCABULARY}"
            )
        check_files(folder, bundle.description, DESCRIPTION)
        bundle._check_weights()
        _check_vocabulary(bundle.load_tokenizer(), bundle.model_config, bundle.tokenizer_path)
        return bundle

    def _check_weights(self) -> None:
        path, said, config = self.folder / WEIGHTS, self.description.precision, self.model_config
        names, num_layers = list_names(path), config.num_encoder_layers + config.num_decoder_layers
        if len(names) < num_layers:  # before tensors of so many layers are listed, which could fill the memory
            raise BundleError(
                f"{path}: has {len(names):,} tensors, too few for the {num_layers:,} layers that {DESCRIPTION} says: "
                f"the folder was changed; use an undamaged copy"
            )
        if (found := find_precision(names)) != said:
            raise BundleError(
                f"{path}: its matrices are in {found}, but {DESCRIPTION} says {said}: the folder was changed; use an "
                f"undamaged copy"
            )
        if self._has_usual_weights:
            return
        from transduce.bundle import weights  # noqa: PLC0415 - loads PyTorch

        weights.check_tensors(weights.read_tensors(path), weights.make_empty_tensors(config), str(path))

    @property
    def _has_usual_weights(self) -> bool:
        return has_usual_weights(self.folder / WEIGHTS, self.model_config)

    def load_arrays(self) -> "dict[str, npt.NDArray[np.float32]] | None":
        """The weights as `list_shapes` names them; None if only PyTorch can read them, or the network has other
        tensors.

        Raises:
            BundleError: the weights were changed since the bundle was opened.
        """
        check_files(self.folder, self.description, DESCRIPTION)
        return read_arrays(self.folder / WEIGHTS) if self._has_usual_weights else None

    def load_model(self) -> "EncoderDecoder":
        """The network with its trained weights: on the CPU, in float32, ready to translate (evaluation mode).

        Raises:
            BundleError: the weights were changed since the bundle was opened.
        """
        from transduce.bundle import weights  # noqa: PLC0415 - loads PyTorch

        check_files(self.folder, self.description, DESCRIPTION)
        path = self.folder / WEIGHTS
        return weights.make_model(self.model_config, weights.read_tensors(path), str(path))

    def load_tokenizer(self) -> Tokenizer:
        """The tokenizer that the network was trained with.

        Raises:
            BundleError: it cannot be read.
        """
        path = self.tokenizer_path
        try:
            files = {name: (self.folder / name).read_bytes() for name in sorted(self._tokenizer_files)}
            return Tokenizer.from_files(files, str(path))
        except (OSError, ValueError) as error:
            raise BundleError(f"{path}: cannot be read as a tokenizer: {error}") from error


def save_bundle(
    folder: Path,
    model: "EncoderDecoder",
    tokenizer: Tokenizer,
    description: BundleDescription,
    verify: Callable[[Path], None] = lambda _: None,
) -> None:
    """Write the model to `folder`, replacing an older bundle there.

    A crash leaves the older bundle or the new one. `description.files` is filled in here. `verify` is called with the
    folder of the complete bundle before it is renamed to `folder`; if it raises, nothing is replaced.

    Raises:
        BundleError: model, tokenizer and description do not match.
        OutputError: `folder` contains other files.
        WriteError: writing failed; what was in `folder` is still there.
    """
    from transduce.bundle import weights  # noqa: PLC0415 - loads PyTorch

    own = model.config.model_dump()
    if differing := [name for name, value in own.items() if getattr(description.model, name) != value]:
        raise BundleError(
            f"{folder}: the model to save and its description differ in {', '.join(differing)}: "
            f"use the model's config in the description"
        )
    expected = weights.make_empty_tensors(model.config)
    weights.check_tensors(weights.collect_model_tensors(model), expected, "the model to save")
    _check_vocabulary(tokenizer, model.config, folder / SOURCE_MODEL)
    with replace_folder(folder, marker=DESCRIPTION) as temporary:
        write_bundle(temporary, model, tokenizer, description)
        verify(temporary)


def write_bundle(
    folder: Path,
    model: "EncoderDecoder",
    tokenizer: Tokenizer,
    description: BundleDescription,
    *,
    precision: Literal["float32", "int8"] = "float32",
) -> None:
    """Write the files of a bundle into an empty folder; see `save_bundle`, which replaces a bundle atomically.

    In int8, matrices take a quarter of the bytes; see `bundle.arrays`. Weights that were read from int8 are written in
    float32 unless `precision` says otherwise.
    """
    from transduce.bundle.weights import collect_model_tensors, write_tensors  # noqa: PLC0415 - loads PyTorch

    tensors = collect_model_tensors(model)
    if precision == "int8":
        from torch import from_numpy  # noqa: PLC0415 - loads PyTorch

        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        tensors = {name: from_numpy(array) for name, array in quantize_arrays(arrays).items()}
    write_tensors(folder / WEIGHTS, tensors)
    write_files(folder, tokenizer.files)
    changed = {
        "format_version": BUNDLE_VERSION,
        "precision": precision,
        "files": record_files(folder, [WEIGHTS, *tokenizer.files]),
    }
    complete = description.model_copy(update=changed)
    card = make_model_card(complete, model.num_parameters)
    write_files(folder, {DESCRIPTION: serialize_description(complete), MODEL_CARD: card})


def is_bundle(folder: Path) -> bool:
    """Whether `folder` has the description of a bundle."""
    return (folder / DESCRIPTION).is_file()


def list_foreign_files(folder: Path) -> list[str]:
    """Names of files in the bundle `folder` that are not part of a bundle, and would be lost if it were replaced."""
    names = {path.name for path in folder.iterdir()} - FILES - _LEFT_BY_DESKTOPS
    return sorted(name for name in names if not re.search(UNFINISHED_PATTERN + "$", name, re.ASCII))


def check_new_bundle(folder: Path, *, force: bool) -> None:
    """Check that a bundle may be written to `folder`, which is not that of a run; nothing is changed.

    With `force`, an existing bundle may be replaced; a folder containing other files is never replaced.

    Raises:
        OutputError: `folder` exists and is not replaced, or cannot be written.
        WriteError: its disk is full.
    """
    check_replaceable(folder, DESCRIPTION)
    if is_bundle(folder):
        if not force:
            raise OutputError(f"{folder}: contains a model: {FORCE_ADVICE}")
        check_no_foreign_files(folder)
    check_writable(folder)


def check_no_foreign_files(folder: Path) -> None:
    """Check that the bundle `folder` has no files but the bundle's own.

    Raises:
        OutputError: a file is not part of the bundle; names it.
    """
    if foreign := list_foreign_files(folder):
        raise OutputError(
            f"{folder / foreign[0]}: is not a bundle file and would be lost: move it, or choose another name"
        )


def find_bundle(path: Path) -> Path:
    """Find the bundle at `path`: the folder itself, or `best` or else `last` in the folder of a run.

    Raises:
        BundleError: there is none; names the paths that were searched.
    """
    places = [resolve_folder(place) for place in (path, path / "best", path / "last")]
    for place in places:
        if (place / DESCRIPTION).is_file():
            return place
    raise _make_missing_bundle_error(path, places)


def name_model(folder: Path) -> str:
    """The name of a model: that of its folder, or of the run if the folder is its `best` or `last`.

    Bytes that are not UTF-8 are escaped, as the name stands in pages and answers of the server.
    """
    folder = folder.resolve()
    return escape_surrogates(folder.parent.name if folder.name in {"best", "last"} else folder.name)


_FOREIGN_FILES = {
    "model.bin": ("CTranslate2", "import it: transduce import {} --output FOLDER"),
    "encoder.onnx": ("ONNX Runtime", "give the bundle that it was exported from; it cannot be imported"),
    "config.json": ("Hugging Face Transformers", "import it: transduce import {} --output FOLDER"),
}
"""The program that a folder without a bundle is for, and what to do, by the file that it is known by; the first one
counts."""


def _make_missing_bundle_error(path: Path, places: list[Path]) -> BundleError:
    if not path.exists():
        return BundleError(f"{path}: there is no such folder; give the folder of a bundle or of a run")
    if not path.is_dir() and not path.is_file():
        return BundleError(
            f"{path}: is neither a folder nor a regular file: give the folder of a bundle or of a run, or write "
            "translations to a file first"
        )
    if not path.is_dir():
        return BundleError(f"{path}: is a file; give the folder of a bundle or of a run")
    if (path / "config.toml").is_file():
        return BundleError(f"{path}: this run has no model before its first validation: train further")
    looked_for = ", ".join(str(place / DESCRIPTION) for place in places)
    for file, (program, remedy) in _FOREIGN_FILES.items():
        if (path / file).is_file():
            return BundleError(
                f"{path}: is not a bundle (looked for {looked_for}), but has {file}, as a model for {program} has; "
                + remedy.format(shlex.quote(str(path)))
            )
    return BundleError(f"{path}: is not a bundle: looked for {looked_for}; give the folder of a bundle or of a run")


def _check_vocabulary(tokenizer: Tokenizer, config: TransformerConfig, path: Path) -> None:
    if tokenizer.vocabulary != config.vocabulary:
        raise BundleError(
            f"{path}: the tokenizer has {tokenizer.vocabulary} token ids, its model {config.vocabulary}: they do not "
            "match"
        )


def apply_start_from(config: "RunConfig") -> "tuple[RunConfig, Bundle | None]":
    """Apply `training.start_from` (fine-tuning): take network and tokenizer from the bundle that it names.

    Languages and search settings that `config` does not set are also the bundle's.

    Returns:
        The changed configuration and the bundle; None if `training.start_from` is not set.

    Raises:
        BundleError: there is none, or it is damaged.
        ConfigError: it is in the folder of the run itself; `config` gives a setting of the network, a size of
            vocabulary or a tokenizer that is not the bundle's (`model.dropout` may differ, and with
            `training.start_layers` the numbers of layers may be lower); or a setting of training needs another network.
    """
    path = config.training.start_from
    if path is None:
        return config, None
    bundle = Bundle.open(find_bundle(Path(path)))
    if bundle.folder.resolve().is_relative_to(Path(config.output).resolve()):
        raise ConfigError(f"training.start_from = {path!r} is in the run's own folder: choose another output")
    return _adopt_model(config, bundle), bundle


def _adopt_model(config: "RunConfig", bundle: Bundle) -> "RunConfig":
    given = {name: getattr(config.model, name) for name in sorted(config.model.model_fields_set)}
    dropout = {"dropout": given.pop("dropout")} if "dropout" in given else {}
    given.pop("vocabulary", None)  # the tokenizer's; see below
    layers = _choose_layers(config, bundle, given) if config.training.start_layers == "spread" else {}
    problems = [
        f"  model.{name} = {value!r}, the bundle's is {there!r}"
        for name, value in given.items()
        if (there := getattr(bundle.model_config, name)) != value
    ]
    has_new_vocabulary = config.training.start_vocabulary == "new"
    if not has_new_vocabulary:
        problems += _find_tokenizer_problems(config, bundle)
    if problems:
        lines = "\n".join(problems)
        raise ConfigError(
            f"training.start_from = {config.training.start_from!r}: network and tokenizer are those of "
            f"{bundle.folder}; these settings contradict it; leave them out:\n{lines}"
        )
    model = bundle.model_config.model_copy(update=dropout | layers)
    training = _fit_training(config, bundle)
    if training.r_drop and not model.dropout:
        raise ConfigError(
            f"training.r_drop = {training.r_drop} has no effect with model.dropout = 0, which {bundle.folder} has: "
            "give model.dropout, or set r_drop to 0"
        )
    text = config.text
    if has_new_vocabulary:
        model = TransformerConfig(**model.model_dump(exclude={"vocabulary"}))
    else:
        text = text.model_copy(update={"tokenizer": text.tokenizer or str(bundle.tokenizer_path)})
    adopted = config.model_copy(update={"model": model, "text": text, "training": training})
    # A new vocabulary is for other languages.
    languages = Languages() if has_new_vocabulary else bundle.description.languages
    return inherit_search_settings(adopted, bundle.description.search, languages)


def _fit_training(config: "RunConfig", bundle: Bundle) -> "TrainingConfig":
    """The settings of training; without guided alignment if only the preset asks for it, and there are no heads."""
    training, architecture = config.training, bundle.model_config.architecture
    if training.optimizer == "muon" and architecture == "convs2s":
        raise ConfigError(
            f'training.optimizer = "muon" needs matrices that are not normalised, and {bundle.folder} is one of '
            'architecture "convs2s", which has none: set training.optimizer to "adam"'
        )
    if training.guided_alignment and architecture != "transformer":
        if training.guided_alignment != PRESETS[config.preset].get("training", {}).get("guided_alignment"):
            raise ConfigError(
                f"training.guided_alignment = {training.guided_alignment} guides a head of a Transformer, and "
                f"{bundle.folder} is one of architecture {architecture!r}, which has none: set it to 0"
            )
        training = training.model_copy(update={"guided_alignment": 0.0})
    return training


def _choose_layers(config: "RunConfig", bundle: Bundle, given: dict[str, object]) -> dict[str, int]:
    """Take the numbers of layers out of the given settings of the network, and return those of the run."""
    if bundle.model_config.architecture != "transformer":
        raise ConfigError(
            f'training.start_layers = "spread" chooses layers of a Transformer, and {bundle.folder} is one of '
            f"architecture {bundle.model_config.architecture!r}: leave it out"
        )
    numbers = {}
    for name in ("num_encoder_layers", "num_decoder_layers"):
        there: int = getattr(bundle.model_config, name)
        given.pop(name, None)
        numbers[name] = getattr(config.model, name) if name in config.model.model_fields_set else there
        if numbers[name] > there:
            raise ConfigError(
                f"model.{name} = {numbers[name]}: training.start_from = {config.training.start_from!r} has "
                f"{there}, of which layers are chosen: give at most {there}"
            )
    return numbers


def _find_tokenizer_problems(config: "RunConfig", bundle: Bundle) -> list[str]:
    """Settings of the tokenizer that contradict the bundle's."""
    tokenizer, vocabulary = config.text.tokenizer, config.text.vocabulary
    if tokenizer is not None:
        is_same = _is_tokenizer_of(bundle, Path(tokenizer))
        return [] if is_same else [f"  text.tokenizer = {tokenizer!r}, which differs from the bundle's"]
    if "vocabulary" in config.text.model_fields_set and vocabulary not in {"fitted", bundle.model_config.vocabulary}:
        return [f"  text.vocabulary = {vocabulary!r}, the bundle's is {bundle.model_config.vocabulary}"]
    return []


def inherit_search_settings(config: "RunConfig", search: SearchConfig, languages: Languages) -> "RunConfig":
    """Take languages and settings of the search where `config` does not set them.

    `search.max_pieces` is not taken, as it depends on the text.
    """
    given = {name: getattr(config.search, name) for name in config.search.model_fields_set | {"max_pieces"}}
    known = {
        "source_language": config.data.source_language or languages.source,
        "target_language": config.data.target_language or languages.target,
    }
    data = config.data.model_copy(update=known)
    return config.model_copy(update={"search": search.model_copy(update=given), "data": data})


def _is_tokenizer_of(bundle: Bundle, path: Path) -> bool:
    try:
        return Tokenizer.load(path).files == bundle.load_tokenizer().files
    except UserError:
        return False
