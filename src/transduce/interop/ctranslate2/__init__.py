"""CTranslate2 folders: export through CTranslate2's specification of a Transformer, and import."""

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from transduce.bundle import Bundle, BundleDescription, Languages, collect_model_tensors, make_empty_model
from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import BundleError, ParityError
from transduce.interop.bundle_tensors import arrange_token_matrices, make_config, make_search_config
from transduce.interop.channel_order import interleave_channels
from transduce.interop.ctranslate2.layout import (
    EMBEDDINGS,
    MODEL_FILE,
    OUTPUT_BIAS,
    POSITIONS,
    PROJECTION,
    Variables,
    count_positions,
    find_unknown_variables,
    find_unsupported_settings,
    from_variables,
    has_shared_positions,
    has_zero_start_embedding,
    read_embedding_scale,
    read_model_file,
    read_network_settings,
    read_positions,
    to_variables,
)
from transduce.interop.ctranslate2.runtime import (
    CONFIG_FILE,
    CTranslate2Engine,
    CTranslate2Runtime,
    compute_type,
    read_config,
    read_settings,
)
from transduce.interop.formats import (
    SATURATING,
    SECTION,
    ExportedSettings,
    ImportedModel,
    Runtime,
    find_unsupported_network_features,
    import_optional,
    refuse_import,
    render_export_card,
)
from transduce.interop.tokenizers import SPECIAL, ForeignVocabulary, make_tokenizer
from transduce.model import EXCLUDED_TOKEN_BIAS, Transformer, as_transformer
from transduce.model.sublayers import EPSILON
from transduce.storage import write_files
from transduce.text import SOURCE_MODEL, Tokenizer

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}
"""CTranslate2's names of activations; its GELU is the exact one, as in Transduce."""


class CTranslate2Format:
    """The `ExportFormat` and `ImportFormat` of CTranslate2 4, and of the programs that use it: a folder."""

    precisions = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int16")
    suffix = ""
    packages = ("ctranslate2",)

    def find_unsupported_features(self, bundle: Bundle) -> list[str]:
        return list(find_unsupported_network_features(bundle.model_config, "CTranslate2", has_head_width=True))

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        tokenizer = bundle.load_tokenizer()
        model = as_transformer(bundle.load_model(), "CTranslate2")
        spec = _make_specification(model, count_positions(bundle.model_config, bundle.description.search))
        tokens = tokenizer.pieces(range(spec.get_target_vocabulary_size()))
        spec.register_source_vocabulary(tokens)
        spec.register_target_vocabulary(tokens)
        spec.config.unk_token, spec.config.eos_token = tokens[tokenizer.unknown_id], tokens[tokenizer.end_id]
        # A start symbol has to exist, even where zeros stand in for its embedding.
        start = tokenizer.end_id if spec.decoder.start_from_zero_embedding else tokenizer.pad_id
        spec.config.bos_token = spec.config.decoder_start_token = tokens[start]
        spec.config.add_source_eos = tokenizer.as_source([start])[1:] == [tokenizer.end_id]
        spec.config.layer_norm_epsilon = EPSILON
        about = {name: getattr(bundle.description, name) for name in ("model", "search", "languages")}
        spec.config.add_attribute(SECTION, ExportedSettings(**about, precision=precision).model_dump())
        spec.validate()
        spec.optimize(quantization=precision)
        spec.save(str(path))
        write_files(path, {**tokenizer.files, "README.md": _make_card(bundle.description, precision, tokenizer)})

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:
        return load_runtime(path, tokenizer, Tokenizer.load(path) if (path / SOURCE_MODEL).is_file() else None)

    def read_back(self, path: Path) -> Mapping[str, Tensor]:
        variables = read_model_file(path / MODEL_FILE)
        config, kind = read_settings(path).model, read_positions(variables).kind
        if kind != config.positions or not has_shared_positions(variables):
            raise ParityError(
                f"{path / MODEL_FILE}: its positions were exported as {kind}, expected {config.positions}"
            )
        return from_variables(config, variables.__getitem__)

    def recognises(self, path: Path) -> bool:
        return (path / MODEL_FILE).is_file()

    def read(self, path: Path, tokenizer: Path | None) -> ImportedModel:
        """Read a model. Integers of 8 or 16 bits become float32 numbers, divided by their scales as in CTranslate2."""
        return read_folder(path, tokenizer, Languages())


FORMAT = CTranslate2Format()
load = CTranslate2Engine  # required of every engine's module by `interop.engines`


def load_runtime(folder: Path, tokenizer: Tokenizer, own: Tokenizer | None, origin: str = "") -> Runtime:
    """CTranslate2 with an exported model, on the CPU; see `CTranslate2Runtime` for the arguments.

    Weights of 16 bits, with which few processors compute, are computed with in float32. Where products of 8 bits are
    not added up exactly, the name of the program, which every proof records, says so.
    """
    precision = compute_type(read_settings(folder).precision, "cpu")
    if precision.startswith("int8") and not is_exact_in_8_bits():
        origin += f", {SATURATING}"
    return CTranslate2Runtime(folder, tokenizer, precision, own=own, origin=origin)


def _make_card(description: BundleDescription, precision: str, tokenizer: Tokenizer) -> str:
    """The README.md of an exported folder."""
    search = description.search
    # CTranslate2 does not count the end symbol.
    limit = f"len(pieces) + {search.max_extra_length - (0 if tokenizer.ends_sources else 1)}"
    lacking = [
        f"`{name} = {getattr(search, name):g}`"
        for name in ("repetition_penalty", "diversity")
        if getattr(search, name) != SearchConfig.model_fields[name].default
    ]
    return render_export_card(
        __file__,
        description,
        precision,
        is_joint=tokenizer.is_joint,
        tags=tokenizer.tags,
        limit=f"min({limit}, {search.max_length - 1})" if search.max_length else limit,
        lacking=lacking,
    )


def _make_specification(model: Transformer, num_positions: int) -> Any:  # noqa: ANN401 - of an optional package without types
    """The model as a CTranslate2 specification in float32, without vocabularies and other settings."""
    specs = import_optional("ctranslate2", "exporting to CTranslate2").specs
    config = model.config
    settings = {
        "pre_norm": config.norm_order == "pre",
        "activation": specs.Activation[ACTIVATIONS[config.activation]],
        "head_dim": None if config.d_k * config.num_heads == config.d_model else config.d_k,
    }
    encoder = specs.TransformerEncoderSpec(config.num_encoder_layers, config.num_heads, **settings)
    decoder = specs.TransformerDecoderSpec(config.num_decoder_layers, config.num_heads, **settings)
    if config.attention_score == "dot":
        attentions = [layer.self_attention for layer in (*encoder.layer, *decoder.layer)]
        for attention in (*attentions, *(layer.attention for layer in decoder.layer)):
            attention.queries_scale = 1.0
    spec = specs.TransformerSpec(encoder, decoder)
    tensors = collect_model_tensors(model)
    decoder.start_from_zero_embedding = has_zero_start_embedding(tensors)
    variables = to_variables(config, tensors)
    if config.positions != "learned":
        variables |= dict.fromkeys(POSITIONS, model.positions(num_positions))
    for name, tensor in variables.items():
        part, _, attribute = name.rpartition("/")
        setattr(specs.model_spec.index_spec(spec, part), attribute, tensor.detach().numpy())
    return spec


_TOKENS = ["<unk>", "<s>", "</s>", "a"]
_SCORED = "a"


def measure_product() -> float:
    """A sum of products in int8 that is 1 in exact arithmetic: of the largest inputs and the largest weights.

    It is read from the score of a token in a network whose decoder returns ones, and whose output has weights for this
    token alone. Where a processor lacks an instruction for dot products of 8-bit integers, as x86 without VNNI, some
    libraries under CTranslate2 move inputs to 0 to 255 and add up their products with weights from -127 to 127 in
    pairs, in 16 bits. Sums saturate at 32,767: 2 * 255 * 127 is twice as much. Which library it is depends on
    processor, system and environment.
    """
    ctranslate2: Any = import_optional("ctranslate2", "measuring how CTranslate2 computes in int8")
    num_ids = len(_TOKENS) + 1
    config = TransformerConfig(
        vocabulary=num_ids, num_encoder_layers=1, num_decoder_layers=1, d_model=4, num_heads=1, tied_embeddings="none"
    )
    model = as_transformer(make_empty_model(config), "CTranslate2")
    with torch.no_grad():
        for name, tensor in collect_model_tensors(model).items():
            tensor.fill_(name.endswith("normalization.bias"))
        model.projection.weight[_TOKENS.index(_SCORED)] = 1 / config.d_model
    spec = _make_specification(model, len(_TOKENS))
    spec.register_source_vocabulary(_TOKENS)
    spec.register_target_vocabulary(_TOKENS)
    spec.validate()
    spec.optimize(quantization="int8")
    with TemporaryDirectory() as folder:
        spec.save(folder)
        translator = ctranslate2.Translator(folder, device="cpu", compute_type="int8", intra_threads=1)
        (result,) = translator.score_batch([[_SCORED]], [[_SCORED]])
    odds = math.exp(result.log_probs[0]) / -math.expm1(result.log_probs[0])
    return math.log(odds * (len(_TOKENS) - 1))  # the other tokens have 0


@cache
def is_exact_in_8_bits() -> bool:
    """Whether sums of 8-bit products are exact in CTranslate2 on this processor."""
    return abs(measure_product() - 1) < 1e-3


def read_folder(folder: Path, given: Path | None, languages: Languages) -> ImportedModel:
    """The model in `folder`; see `ImportFormat.read`. `languages` are those of a model that does not name them."""
    variables = read_model_file(folder / MODEL_FILE)
    if variables.kind != "TransformerSpec":
        raise BundleError(f"{folder}: is a {variables.kind}, but must be a TransformerSpec, with encoder and decoder")
    tokens = read_tokens(folder)
    settings = _read_config(folder, variables)
    refuse_import(
        folder, [*_find_unsupported_config(settings, variables, tokens), *find_unsupported_settings(variables)]
    )
    tokens = tokens.without_pad() if _starts_with_pad(settings, variables, tokens) else tokens
    table = read_positions(variables)
    tokenizer = make_tokenizer(tokens, folder, given, ends_sources=_ends_sources(settings, variables))
    matrices = _read_token_matrices(variables, tokens, tokenizer)
    if SECTION in settings:
        exported = read_settings(folder)
    else:
        exported = ExportedSettings(
            model=TransformerConfig(), search=make_search_config(len(table.rows)), languages=languages
        )
    said = {"dropout": exported.model.dropout, "output_bias": exported.model.output_bias}
    shape = {**read_network_settings(variables), **said}
    config = make_config(shape, matrices, (table.kind, len(table.rows)), str(folder))

    def variable(name: str) -> Tensor:
        if name.endswith("/bias") and name not in variables:
            return torch.zeros(len(variables.raw(name.removesuffix("bias") + "weight")))
        return table.rows if name in POSITIONS else variables[name]

    try:
        tensors = from_variables(config, variable, matrices)
    except (RuntimeError, IndexError) as error:  # of torch
        raise BundleError(f"{folder}: its variables do not match: {error}") from None
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
        own = tokenizer if (folder / SOURCE_MODEL).is_file() else None
        return CTranslate2Runtime(folder, tokenizer, "float32", own=own)
    except (RuntimeError, UnicodeDecodeError) as error:  # of CTranslate2, whose messages may have bytes of the file
        raise BundleError(f"{folder}: CTranslate2 itself cannot load it: {error}") from None


def _read_config(folder: Path, variables: Variables) -> dict[str, Any]:
    """The settings in config.json with CTranslate2's defaults; before version 3, variables held them."""
    start = "<s>" if variables.number("with_target_bos", 1.0) else "</s>"
    defaults = {
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "decoder_start_token": None if variables.number("user_decoder_start_tokens", 0.0) else start,
        "add_source_bos": bool(variables.number("with_source_bos", 0.0)),
        "add_source_eos": bool(variables.number("with_source_eos", 0.0)),
    }
    return defaults | read_config(folder) if (folder / CONFIG_FILE).exists() else defaults


def _find_unsupported_config(
    settings: Mapping[str, Any], variables: Variables, tokens: ForeignVocabulary
) -> Iterator[str]:
    start = settings["decoder_start_token"]
    for name, expected in zip(("unk_token", "eos_token"), SPECIAL, strict=True):
        if settings[name] != expected:
            yield f"{name} = {settings[name]!r}: must be {expected!r}"
    if not _starts_from_zero(variables) and start not in tokens.targets:
        yield f"decoder_start_token = {start!r}: must be a fixed token of the target"
    if settings["add_source_bos"]:
        yield "add_source_bos = true: not supported: sources must not begin with a start symbol"
    epsilon = settings.get("layer_norm_epsilon")
    if epsilon is not None and not (isinstance(epsilon, float) and math.isclose(epsilon, EPSILON)):
        yield f"layer_norm_epsilon = {epsilon}: must be {EPSILON}"
    if (kind := settings.get("quantization_type", 0)) != 0:
        yield f"quantization_type = {kind}: must be CTranslate2's own"


def _starts_from_zero(variables: Variables) -> bool:
    return bool(variables.number("decoder/start_from_zero_embedding", 0.0))


def _starts_with_pad(settings: Mapping[str, Any], variables: Variables, tokens: ForeignVocabulary) -> bool:
    """Whether targets begin with a `<pad>` that is used for nothing else, as in Transduce's own exports of models
    whose targets do not begin with zeros.
    """
    lasts = tokens.sources[-1], tokens.targets[-1], settings["decoder_start_token"]
    if lasts != ("<pad>",) * 3 or _starts_from_zero(variables) or OUTPUT_BIAS not in variables:
        return False
    return bool(variables[OUTPUT_BIAS].flatten()[-1] < EXCLUDED_TOKEN_BIAS / 2)


def _ends_sources(settings: Mapping[str, Any], variables: Variables) -> bool:
    """Whether sources end with `</s>`.

    Models that start with zeros or with `</s>` itself, as those of Marian and fairseq, are given sources that end with
    it where CTranslate2 does not add it. Models of OpenNMT, as in Argos packages, have none there.
    """
    starts_likewise = _starts_from_zero(variables) or settings["decoder_start_token"] == settings["eos_token"]
    return bool(settings["add_source_eos"]) or starts_likewise


def _read_token_matrices(variables: Variables, tokens: ForeignVocabulary, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """The matrices with a row for each token, scaled for a bundle."""
    num_sources, num_targets = (len(side) + tokens.has_pad for side in (tokens.sources, tokens.targets))
    source, target = (
        variables.rows(name, num_rows) * (read_embedding_scale(variables, name) / math.sqrt(variables.d_model))
        for name, num_rows in zip(EMBEDDINGS, (num_sources, num_targets), strict=True)
    )
    output = variables.rows(PROJECTION, num_targets)
    bias = variables.rows(OUTPUT_BIAS, num_targets) if OUTPUT_BIAS in variables else torch.zeros(num_targets)
    return arrange_token_matrices(source, target, output, bias, tokens.rows(tokenizer))


def _set_start_embedding(
    tensors: Mapping[str, Tensor], token: str, variables: Variables, tokens: ForeignVocabulary, tokenizer: Tokenizer
) -> dict[str, Tensor]:
    """The target embeddings with that of the start `token` in the row of `<pad>`, the start symbol of targets."""
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
    try:
        content = path.read_bytes()
        tokens: Any = content.decode("utf-8").removesuffix("\n").split("\n")
        if path.suffix == ".json":
            tokens = json.loads(content)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: is not a list of tokens: {error}; use an undamaged copy") from None
    if not isinstance(tokens, list) or not all(isinstance(token, str) and token for token in tokens):
        raise BundleError(f"{path}: is not a list of tokens; use an undamaged copy")
    if len(set(tokens)) < len(tokens):
        raise BundleError(f"{path}: has repeated tokens among its {len(tokens):,}: each must occur once")
    if missing := [name for name in SPECIAL if name not in tokens]:
        raise BundleError(f"{path}: has no token {missing[0]!r}: models without it cannot be imported")
    return tokens
