"""The export of bundles as CTranslate2 folders, through CTranslate2's own specification of a Transformer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.bundle import Bundle, BundleDescription, model_tensors
from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import ParityError
from transduce.interop.ctranslate2.layout import (
    POSITIONS,
    from_variables,
    has_shared_positions,
    read_positions,
    starts_from_zero,
    to_variables,
)
from transduce.interop.ctranslate2.model_file import MODEL_FILE, Variables, read_model_file
from transduce.interop.ctranslate2.runtime import (
    SECTION,
    CTranslate2Runtime,
    ExportedSettings,
    TextCodec,
    compute_type,
    import_ctranslate2,
    read_settings,
)
from transduce.interop.formats import Runtime, render_card
from transduce.model import Transformer
from transduce.model.sublayers import EPSILON
from transduce.text import Tokenizer

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}
"""CTranslate2's names of activations; its GELU is the exact one, as in Transduce."""

NUM_POSITIONS = 2048
"""The smallest number of rows of an exported table of sinusoids; CTranslate2 reads 1,024 unless told otherwise."""


class CTranslate2Format:
    """The `ExportFormat` of CTranslate2 4, and of the programs that use it: a folder."""

    precisions = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int16")
    suffix = ""

    def obstacles(self, bundle: Bundle) -> list[str]:
        config = bundle.model_config
        found = []
        if config.attention_score == "additive":
            found.append('attention_score = "additive": CTranslate2 compares queries and keys by products alone')
        if config.normalization == "batch":
            found.append('normalization = "batch": CTranslate2 knows layer normalisation alone')
        if config.d_k != config.d_v:
            found.append(f"d_k = {config.d_k}, d_v = {config.d_v}: in CTranslate2 keys are as wide as values")
        return found

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        tokenizer = bundle.load_tokenizer()
        spec = _make_specification(bundle.load_model(), num_positions(bundle.model_config, bundle.description.search))
        tokens = tokenizer.pieces(range(spec.get_target_vocabulary_size()))
        spec.register_source_vocabulary(tokens)
        spec.register_target_vocabulary(tokens)
        spec.config.unk_token, spec.config.eos_token = tokens[tokenizer.unknown_id], tokens[tokenizer.end_id]
        # A start symbol has to exist, even where zeros stand in for its embedding.
        start = tokenizer.end_id if spec.decoder.start_from_zero_embedding else tokenizer.pad_id
        spec.config.bos_token = spec.config.decoder_start_token = tokens[start]
        spec.config.add_source_eos = tokenizer.as_source([start])[1:] == [tokenizer.end_id]
        spec.config.layer_norm_epsilon = EPSILON
        spec.config.add_attribute(SECTION, ExportedSettings.of(bundle.description, precision).model_dump())
        spec.validate()
        spec.optimize(quantization=precision)
        spec.save(str(path))
        for name, content in tokenizer.files.items():
            (path / name).write_bytes(content)
        card = ctranslate2_card(bundle.description, precision, tokenizer)
        (path / "README.md").write_text(card, encoding="utf-8", newline="\n")

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:
        return load_runtime(path, tokenizer)

    def read_back(self, path: Path) -> Mapping[str, Tensor]:
        variables = Variables(read_model_file(path / MODEL_FILE), path / MODEL_FILE)
        config, kind = read_settings(path).model, read_positions(variables).kind
        if kind != config.positions or not has_shared_positions(variables):
            raise ParityError(f"{path / MODEL_FILE}: its positions are {kind}, must be {config.positions}, all of them")
        return from_variables(config, variables.__getitem__)


FORMAT = CTranslate2Format()


def load_runtime(folder: Path, tokenizer: Tokenizer, *, codec: TextCodec | None = None, origin: str = "") -> Runtime:
    """CTranslate2 with an exported model, on the CPU; see `CTranslate2Runtime` for the arguments.

    Weights of 16 bits, with which few processors compute, are computed with in float32.
    """
    precision = compute_type(read_settings(folder).precision, "cpu")
    return CTranslate2Runtime(folder, tokenizer, precision, codec=codec, origin=origin)


def ctranslate2_card(description: BundleDescription, precision: str, tokenizer: Tokenizer) -> str:
    """The README.md of an exported folder."""
    search = description.search
    # CTranslate2 does not count the end symbol.
    limit = f"len(pieces) + {search.max_extra_length - (0 if tokenizer.ends_sources else 1)}"
    lacking = [
        f"`{name} = {getattr(search, name):g}`"
        for name in ("repetition_penalty", "diversity")
        if getattr(search, name) != SearchConfig.model_fields[name].default
    ]
    return render_card(
        __file__,
        description,
        precision,
        is_joint=tokenizer.is_joint,
        limit=f"min({limit}, {search.max_length - 1})" if search.max_length else limit,
        lacking=lacking,
    )


def num_positions(config: TransformerConfig, search: SearchConfig) -> int:
    """The largest number of tokens of a source or target: of learned positions, or more than any search needs."""
    if config.positions == "learned":
        return config.max_positions
    return max(NUM_POSITIONS, search.max_pieces + 1 + search.max_extra_length)


def _make_specification(model: Transformer, num_positions: int) -> Any:  # noqa: ANN401 - of an optional package without types
    """The model as a CTranslate2 specification in float32, without vocabularies and other settings."""
    specs = import_ctranslate2("exporting to CTranslate2").specs
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
    tensors = model_tensors(model)
    decoder.start_from_zero_embedding = starts_from_zero(tensors)
    variables = to_variables(config, tensors)
    if config.positions != "learned":
        variables |= dict.fromkeys(POSITIONS, model.positions(num_positions))
    for name, tensor in variables.items():
        part, _, attribute = name.rpartition("/")
        setattr(specs.model_spec.index_spec(spec, part), attribute, tensor.detach().numpy())
    return spec
