"""The import of CTranslate2 folders, and of the Argos packages that contain one."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from transduce.bundle import Languages
from transduce.config import SearchConfig, TransformerConfig, first_problem
from transduce.errors import BundleError
from transduce.interop.argos.package import is_package, unpack
from transduce.interop.conversion import SPECIAL, ForeignVocabulary, interleave_channels, make_tokenizer, select_rows
from transduce.interop.ctranslate2.layout import (
    EMBEDDINGS,
    OUTPUT_BIAS,
    POSITIONS,
    PROJECTION,
    find_obstacles,
    find_unknown_variables,
    from_variables,
    read_embedding_scale,
    read_network_settings,
    read_positions,
)
from transduce.interop.ctranslate2.model_file import MODEL_FILE, Variables, read_model_file
from transduce.interop.ctranslate2.runtime import (
    CONFIG_FILE,
    SECTION,
    CTranslate2Runtime,
    ExportedSettings,
    read_settings,
)
from transduce.interop.formats import ImportedModel, refuse_import
from transduce.model import NEVER
from transduce.model.sublayers import EPSILON
from transduce.text import Tokenizer


class CTranslate2Import:
    """The `ImportFormat` of CTranslate2: a folder with model.bin, config.json and vocabularies, or an Argos package."""

    def recognises(self, path: Path) -> bool:
        return (path / MODEL_FILE).is_file() or is_package(path)

    def read(self, path: Path, tokenizer: Path | None) -> ImportedModel:
        """Whole numbers of 8 or 16 bits become what CTranslate2 computes with in float32: number by scale."""
        with _open_folder(path) as (folder, languages):
            return _read(folder, tokenizer, languages)


FORMAT = CTranslate2Import()


@contextmanager
def _open_folder(path: Path) -> Iterator[tuple[Path, Languages]]:
    """The folder of the model, extracted from a package if necessary."""
    if path.is_dir():
        yield path, Languages()
        return
    with TemporaryDirectory() as temporary:
        languages = unpack(path, Path(temporary))
        yield Path(temporary) / "model", languages


def _read(folder: Path, given: Path | None, languages: Languages) -> ImportedModel:
    file = read_model_file(folder / MODEL_FILE)
    if file.kind != "TransformerSpec":
        raise BundleError(f"{folder}: is a {file.kind}, must be a TransformerSpec, with encoder and decoder")
    variables, tokens = Variables(file, folder / MODEL_FILE), read_tokens(folder)
    settings = _read_config(folder, variables)
    refuse_import(folder, [*_find_config_obstacles(settings, variables, tokens), *find_obstacles(variables)])
    tokens = tokens.without_pad() if _starts_with_pad(settings, variables, tokens) else tokens
    table = read_positions(variables)
    tokenizer = make_tokenizer(tokens, folder, given, ends_sources=_ends_sources(settings, variables))
    matrices = _read_token_matrices(variables, tokens, tokenizer)
    exported = read_settings(folder) if SECTION in settings else _make_default_settings(languages, len(table.rows))
    shape = {**read_network_settings(variables), "vocabulary": tokenizer.vocabulary, "dropout": exported.model.dropout}
    shape |= {"tied_embeddings": _find_tying(matrices), "output_bias": OUTPUT_BIAS in matrices, "positions": table.kind}
    shape |= {"max_positions": len(table.rows)} if table.kind == "learned" else {}
    try:
        config = TransformerConfig(**shape)
    except ValidationError as error:
        raise BundleError(f"{folder}: {first_problem(error)}") from None

    def variable(name: str) -> Tensor:
        if name in matrices:
            return matrices[name]
        if name.endswith("/bias") and name not in variables:
            return torch.zeros(len(variables.raw(name.removesuffix("bias") + "weight")))
        return table.rows if name in POSITIONS else variables[name]

    try:
        tensors = from_variables(config, variable)
    except (RuntimeError, IndexError) as error:  # of torch
        raise BundleError(f"{folder}: its variables do not belong together: {error}") from None
    if not _starts_from_zero(variables):
        tensors |= _set_start_embedding(tensors, settings["decoder_start_token"], variables, tokens, tokenizer)
    refuse_import(folder, find_unknown_variables(variables))
    return ImportedModel(
        config=config,
        tensors=interleave_channels(tensors) if table.is_split else tensors,
        tokenizer=tokenizer,
        runtime=_load_runtime(folder, tokenizer),
        source_language=exported.languages.source,
        target_language=exported.languages.target,
        search=exported.search,
        precision=table.precision,
    )


def _load_runtime(folder: Path, tokenizer: Tokenizer) -> CTranslate2Runtime:
    try:
        return CTranslate2Runtime(folder, tokenizer, "float32")
    except RuntimeError as error:  # of CTranslate2
        raise BundleError(f"{folder}: CTranslate2 itself cannot load it: {error}") from None


def _read_config(folder: Path, variables: Variables) -> dict[str, Any]:
    """The settings in config.json with CTranslate2's defaults; before version 3, variables held them."""
    path = folder / CONFIG_FILE
    start = "<s>" if variables.number("with_target_bos", 1.0) else "</s>"
    defaults = {
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "decoder_start_token": None if variables.number("user_decoder_start_tokens", 0.0) else start,
        "add_source_bos": bool(variables.number("with_source_bos", 0.0)),
        "add_source_eos": bool(variables.number("with_source_eos", 0.0)),
    }
    if not path.exists():
        return defaults
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: is not JSON: {error}; use an undamaged copy") from None
    if not isinstance(found, dict):
        raise BundleError(f"{path}: is no JSON object; use an undamaged copy")
    return defaults | found


def _make_default_settings(languages: Languages, num_positions: int) -> ExportedSettings:
    """Defaults for the settings that only exports of Transduce have; no sentence is longer than the positions."""
    usual = SearchConfig()
    extra = min(usual.max_extra_length, max(1, num_positions // 2))
    pieces = min(usual.max_pieces, max(8, num_positions - extra - 1))
    search = usual.model_copy(update={"max_extra_length": extra, "max_pieces": pieces})
    return ExportedSettings(model=TransformerConfig(), search=search, languages=languages, precision="float32")


def _find_config_obstacles(
    settings: Mapping[str, Any], variables: Variables, tokens: ForeignVocabulary
) -> Iterator[str]:
    """Settings in config.json that a bundle cannot express."""
    start = settings["decoder_start_token"]
    for name, expected in zip(("unk_token", "eos_token"), SPECIAL, strict=True):
        if settings[name] != expected:
            yield f"{name} = {settings[name]!r}: must be {expected!r}"
    if not _starts_from_zero(variables) and start not in tokens.targets:
        yield f"decoder_start_token = {start!r}: must be a token of the target, as no other is given with a text"
    if settings["add_source_bos"]:
        yield "add_source_bos = true: ours puts nothing in front of a source"
    epsilon = settings.get("layer_norm_epsilon")
    if epsilon is not None and not (isinstance(epsilon, float) and math.isclose(epsilon, EPSILON)):
        yield f"layer_norm_epsilon = {epsilon}: must be {EPSILON}"
    if (kind := settings.get("quantization_type", 0)) != 0:
        yield f"quantization_type = {kind}: must be CTranslate2's own"


def _starts_from_zero(variables: Variables) -> bool:
    return bool(variables.number("decoder/start_from_zero_embedding", 0.0))


def _starts_with_pad(settings: Mapping[str, Any], variables: Variables, tokens: ForeignVocabulary) -> bool:
    """Whether targets begin with a `<pad>` of no other use, as in exports of Transduce that do not begin with zeros."""
    lasts = {tokens.sources[-1], tokens.targets[-1], settings["decoder_start_token"]}
    if lasts != {"<pad>"} or _starts_from_zero(variables) or OUTPUT_BIAS not in variables:
        return False
    return bool(variables[OUTPUT_BIAS].flatten()[-1] < NEVER / 2)


def _ends_sources(settings: Mapping[str, Any], variables: Variables) -> bool:
    """Whether the encoder reads `</s>` behind a source.

    Models that start with zeros or with `</s>` itself, as those of Marian and fairseq, are given sources that end with
    it where CTranslate2 does not add it. Models of OpenNMT, as in Argos packages, have none there.
    """
    starts_likewise = _starts_from_zero(variables) or settings["decoder_start_token"] == settings["eos_token"]
    return bool(settings["add_source_eos"]) or starts_likewise


def _read_token_matrices(variables: Variables, tokens: ForeignVocabulary, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """The matrices with a row for each token but `<pad>`, in the order of the tokenizer, scaled for a bundle."""
    pieces = tokenizer.pieces(range(tokenizer.pad_id))
    sources, targets = tokens.rows(pieces)
    num_sources, num_targets = (len(side) + tokens.has_pad for side in (tokens.sources, tokens.targets))
    found = {
        EMBEDDINGS[0]: select_rows(variables.rows(EMBEDDINGS[0], num_sources), sources),
        EMBEDDINGS[1]: select_rows(variables.rows(EMBEDDINGS[1], num_targets), targets),
        PROJECTION: select_rows(variables.rows(PROJECTION, num_targets), targets),
    }
    for name in EMBEDDINGS:
        found[name] *= read_embedding_scale(variables, name) / math.sqrt(variables.d_model)
    if OUTPUT_BIAS in variables or -1 in targets:
        bias = variables.rows(OUTPUT_BIAS, num_targets) if OUTPUT_BIAS in variables else torch.zeros(num_targets)
        found[OUTPUT_BIAS] = select_rows(bias, targets, NEVER)
        if tokens.has_pad and not found[OUTPUT_BIAS].any():  # it was there for `<pad>` alone
            found.pop(OUTPUT_BIAS)
    return found


def _find_tying(matrices: Mapping[str, Tensor]) -> str:
    if not torch.equal(matrices[EMBEDDINGS[1]], matrices[PROJECTION]):
        return "none"
    return "three_way" if torch.equal(*(matrices[name] for name in EMBEDDINGS)) else "two_way"


def _set_start_embedding(
    tensors: Mapping[str, Tensor], token: str, variables: Variables, tokens: ForeignVocabulary, tokenizer: Tokenizer
) -> dict[str, Tensor]:
    """The target embeddings with that of the start `token` in the row of `<pad>`, behind which targets begin."""
    name = "target_embedding.weight" if "target_embedding.weight" in tensors else "source_embedding.weight"
    if tokens.has_pad:
        row = variables[EMBEDDINGS[1]][-1] * (
            read_embedding_scale(variables, EMBEDDINGS[1]) / math.sqrt(variables.d_model)
        )
    else:
        row = tensors[name][tokenizer.pieces(range(tokenizer.pad_id)).index(token)]
    return {name: torch.cat([tensors[name][:-1], row[None]])}


def read_tokens(folder: Path) -> ForeignVocabulary:
    """Read the vocabularies in `folder`."""
    shared = _find_vocabulary(folder, "shared_vocabulary")
    source, target = (shared or _find_vocabulary(folder, f"{side}_vocabulary") for side in ("source", "target"))
    if source is None or target is None:
        raise BundleError(f"{folder}: has no shared_vocabulary.json, and not both source_ and target_vocabulary.json")
    return ForeignVocabulary(_read_token_list(source), _read_token_list(target))


def _find_vocabulary(folder: Path, name: str) -> Path | None:
    return next((path for ending in (".json", ".txt") if (path := folder / f"{name}{ending}").is_file()), None)


def _read_token_list(path: Path) -> list[str]:
    """A JSON list, or a line for each token."""
    try:
        content = path.read_bytes()
        tokens: Any = content.decode("utf-8").removesuffix("\n").split("\n")
        if path.suffix == ".json":
            tokens = json.loads(content)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: is no list of tokens: {error}; use an undamaged copy") from None
    if not isinstance(tokens, list) or not all(isinstance(token, str) and token for token in tokens):
        raise BundleError(f"{path}: is no list of tokens; use an undamaged copy")
    if len(set(tokens)) < len(tokens):
        raise BundleError(f"{path}: has a token twice among its {len(tokens):,}: each must have one row")
    if missing := [name for name in SPECIAL if name not in tokens]:
        raise BundleError(f"{path}: has no token {missing[0]!r}: models without it cannot be imported")
    return tokens
