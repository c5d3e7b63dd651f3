"""Folders of Transformers: export, post-norm as a Marian model and pre-norm as a Pegasus model; import of both."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.bundle import Bundle, model_tensors
from transduce.bundle.weights import read_tensors, write_tensors
from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import BundleError, ParityError, UserError
from transduce.interop.conversion import classify_positions, select_rows
from transduce.interop.formats import ImportedModel, Runtime, refuse_import, render_card, source_obstacles
from transduce.interop.huggingface.layout import (
    OUTPUT_BIAS,
    POSITIONS,
    SECTION,
    ExportedSettings,
    from_huggingface,
    generation_settings,
    model_settings,
    num_positions,
    query_scale,
    to_huggingface,
    tokenizer_settings,
)
from transduce.interop.huggingface.runtime import Foreign, TokenIdMap, TransformersRuntime, load_folder
from transduce.model import NEVER
from transduce.text import Tokenizer

WEIGHTS = "model.safetensors"


class HuggingFaceFormat:
    """The `ExportFormat` and `ImportFormat` of Transformers 5.

    A folder that is written is one for `AutoModelForSeq2SeqLM` and `AutoTokenizer`.
    """

    precisions = ("float32", "float16", "bfloat16")
    suffix = ""

    def obstacles(self, bundle: Bundle) -> list[str]:
        return list(_find_obstacles(bundle.model_config, bundle.load_tokenizer()))

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        description, tokenizer = bundle.description, bundle.load_tokenizer()
        tensors = to_huggingface(description.model, model_tensors(bundle.load_model()), num_positions(description))
        rounded = {name: tensor.to(getattr(torch, precision)) for name, tensor in tensors.items()}
        # Transformers wants to know that a file is not one of Flax or TensorFlow.
        write_tensors(path / WEIGHTS, rounded, {"format": "pt"})
        for name, settings in {
            "config.json": model_settings(description, tokenizer.end_id, precision),
            "generation_config.json": generation_settings(description, tokenizer.end_id),
            **tokenizer_settings(description, tokenizer),
        }.items():
            text = json.dumps(settings, ensure_ascii=False, indent=2) + "\n"
            (path / name).write_text(text, encoding="utf-8", newline="\n")
        (path / "source.spm").write_bytes(tokenizer.model_bytes)
        (path / "target.spm").write_bytes(tokenizer.target_model_bytes)
        languages = description.languages
        codes = list(dict.fromkeys(filter(None, (languages.source, languages.target))))
        card = render_card(__file__, description, precision, codes=codes)
        (path / "README.md").write_text(card, encoding="utf-8", newline="\n")

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:  # noqa: ARG002 - its own tokenizer is in the folder
        return TransformersRuntime(*load_folder(path))

    def read_back(self, path: Path) -> Mapping[str, Tensor] | None:
        exported = ExportedSettings.of_section(json.loads((path / "config.json").read_bytes())[SECTION])
        if exported is None:
            return None
        tensors = read_tensors(path / WEIGHTS)
        for name in POSITIONS:
            if name in tensors and exported.model.positions != (kind := _classify_table(tensors[name])):
                raise ParityError(f"{path / WEIGHTS}: {name} is {kind}, must be {exported.model.positions}, all of it")
        return from_huggingface(exported.model, tensors)

    def recognises(self, path: Path) -> bool:
        try:
            settings = json.loads((path / "config.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(settings, dict) and settings.get("model_type") in NORM_ORDERS

    def read(self, path: Path, tokenizer: Path | None) -> ImportedModel:
        """Read a model; Transformers itself reads pickled weights (pytorch_model.bin), and runs no code in them."""
        if tokenizer is not None:
            raise UserError(f"{tokenizer}: {path} has a tokenizer of its own: leave this one out")
        model, their_tokenizer = load_folder(path, "float32")
        state, theirs, beam = model.state_dict(), model.config, model.generation_config.num_beams
        problems = list(_find_unknown_settings(theirs)) or list(_find_unknown_weights(theirs, state))
        refuse_import(path, problems)
        ours, ids = read_vocabulary(path, model, their_tokenizer)
        tensors = _renumber_tokens(
            _widen_feed_forward(state, max(theirs.encoder_ffn_dim, theirs.decoder_ffn_dim)), ids, theirs
        )
        exported = ExportedSettings.of_section(getattr(theirs, SECTION, None))
        config = _make_config(theirs, tensors, ids, exported)
        return ImportedModel(
            config=config,
            tensors=from_huggingface(config, tensors),
            tokenizer=ours,
            runtime=TransformersRuntime(model, their_tokenizer, ids),
            source_language=their_tokenizer.source_lang or "",
            target_language=their_tokenizer.target_lang or "",
            search=_make_search(beam, theirs.max_position_embeddings) if exported is None else exported.search,
        )


FORMAT = HuggingFaceFormat()


def _classify_table(table: Tensor) -> str:
    return classify_positions(table.float(), rounding=torch.finfo(table.dtype).eps)


def _find_obstacles(config: TransformerConfig, tokenizer: Tokenizer) -> Iterator[str]:
    width = config.d_model / config.num_heads
    if {config.d_k, config.d_v} != {width}:
        yield (
            f"d_k = {config.d_k}, d_v = {config.d_v}: in Transformers both are d_model / num_heads, "
            f"{config.d_model} / {config.num_heads}"
        )
    if config.attention_score == "additive":
        yield 'attention_score = "additive": Transformers compares queries and keys by products alone'
    if math.frexp(query_scale(config))[0] != 0.5:
        yield (
            f'attention_score = "dot": Transformers divides by sqrt(d_k), and with d_k = {config.d_k} queries that '
            f"make up for it would be rounded"
        )
    if config.normalization == "batch":
        yield 'normalization = "batch": Transformers knows layer normalisation alone'
    if config.norm_order == "pre" and config.tied_embeddings != "three_way":
        yield (
            f'tied_embeddings = "{config.tied_embeddings}" and norm_order = "pre": the pre-norm model of Transformers, '
            f"Pegasus, has one matrix for source, target and output"
        )
    if config.norm_order == "post" and config.positions != "sinusoidal":
        yield (
            f'positions = "{config.positions}" and norm_order = "post": the post-norm model of Transformers, Marian, '
            f"computes sinusoids and keeps no other table"
        )
    yield from source_obstacles(tokenizer, "its tokenizer")
    pieces = tokenizer.pieces(range(tokenizer.vocabulary))
    if len(set(pieces)) < len(pieces):
        twice = next(piece for index, piece in enumerate(pieces) if piece in pieces[:index])
        yield f"the tokenizer has two tokens {twice!r}: Transformers knows tokens by their names"


NORM_ORDERS = {"marian": "post", "pegasus": "pre"}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
"""Activations by their names in Transformers, whose gelu is the exact one, as in Transduce."""


def _find_unknown_settings(theirs: Foreign) -> Iterator[str]:
    if theirs.model_type not in NORM_ORDERS:
        yield f"model_type = {theirs.model_type!r}: must be one of {', '.join(NORM_ORDERS)}"
        return
    pre = NORM_ORDERS[theirs.model_type] == "pre"
    needed = {"normalize_before": pre, "add_final_layer_norm": pre, "normalize_embedding": False}
    if not pre:
        needed["static_position_embeddings"] = True
    for name, value in needed.items():
        found = getattr(theirs, name, value)
        if found != value:
            yield f"{name} = {found}: Transformers computes as if it were {value}, so that it is no such model there"
    for name in ("eos_token_id", "pad_token_id", "decoder_start_token_id"):
        if not isinstance(getattr(theirs, name), int):
            yield f"{name} = {getattr(theirs, name)}: must be the id of a token"
    if theirs.encoder_attention_heads != theirs.decoder_attention_heads:
        yield (
            f"encoder_attention_heads = {theirs.encoder_attention_heads}, decoder_attention_heads = "
            f"{theirs.decoder_attention_heads}: must be the same number"
        )
    if theirs.activation_function not in ACTIVATIONS:
        yield f"activation_function = {theirs.activation_function!r}: must be one of {', '.join(ACTIVATIONS)}"


def _find_unknown_weights(theirs: Foreign, state: Mapping[str, Tensor]) -> Iterator[str]:
    if state["model.decoder.embed_tokens.weight"][theirs.decoder_start_token_id].any():
        yield (
            f"decoder_start_token_id = {theirs.decoder_start_token_id}: translations begin behind a token whose "
            f"embedding is not zero; ours begin behind nothing"
        )
    if not torch.equal(*(state[name] for name in POSITIONS)):
        yield "the encoder's table of positions is not the decoder's: ours has one for both"


def _make_search(beam: int | None, num_positions: int) -> SearchConfig:
    """The beam of the model, without its length penalty, which is another formula, and lengths within its positions."""
    default = SearchConfig()
    max_extra_length = min(default.max_extra_length, num_positions // 3)
    max_pieces = min(default.max_pieces, max(8, num_positions - max_extra_length - 1))
    return SearchConfig(beam=beam or default.beam, max_extra_length=max_extra_length, max_pieces=max_pieces)


def _make_config(
    theirs: Foreign, tensors: Mapping[str, Tensor], ids: TokenIdMap, exported: ExportedSettings | None
) -> TransformerConfig:
    """The settings of the network; `tensors` are in the order of the bundle's tokenizer."""
    # A bias of zeros, and queries that make up for a division, are no different from none.
    said = exported.model if exported else TransformerConfig()
    table = tensors[POSITIONS[0]]
    settings = {
        "vocabulary": len(ids.sources),
        "num_encoder_layers": theirs.encoder_layers,
        "num_decoder_layers": theirs.decoder_layers,
        "d_model": theirs.d_model,
        "d_ff": max(theirs.encoder_ffn_dim, theirs.decoder_ffn_dim),
        "num_heads": theirs.encoder_attention_heads,
        "attention_score": "dot" if said.attention_score == "dot" else "scaled_dot",
        "activation": ACTIVATIONS[theirs.activation_function],
        "norm_order": NORM_ORDERS[theirs.model_type],
        "tied_embeddings": _find_tying(theirs, ids),
        "output_bias": said.output_bias or bool(tensors[OUTPUT_BIAS][0, :-1].any()),
        "positions": classify_positions(table),
        "dropout": theirs.dropout,
    }
    if settings["positions"] == "learned":
        settings["max_positions"] = len(table)
    return TransformerConfig(**settings)


def _find_tying(theirs: Foreign, ids: TokenIdMap) -> str:
    """Which matrices are shared; unscaled embeddings of Transformers differ from the output projection in a bundle."""
    if not theirs.tie_word_embeddings or not theirs.scale_embedding:
        return "none"
    one_matrix = theirs.model_type == "pegasus" or theirs.share_encoder_decoder_embeddings
    return "three_way" if one_matrix and ids.sources == ids.targets else "two_way"


def _widen_feed_forward(state: Mapping[str, Tensor], d_ff: int) -> dict[str, Tensor]:
    """The weights with all feed-forward networks `d_ff` wide; added units are zero before and after the activation."""
    found = dict(state)
    for name, tensor in state.items():
        if ".fc1." in name:  # its outputs are rows
            found[name] = F.pad(tensor, (*(0, 0) * (tensor.ndim - 1), 0, d_ff - len(tensor)))
        elif name.endswith(".fc2.weight"):
            found[name] = F.pad(tensor, (0, d_ff - tensor.size(1)))
    return found


def _renumber_tokens(state: Mapping[str, Tensor], ids: TokenIdMap, theirs: Foreign) -> dict[str, Tensor]:
    """The weights with a row for each token of the bundle, and embeddings before their scaling by sqrt(d_model)."""
    scale = 1.0 if theirs.scale_embedding else math.sqrt(theirs.d_model)
    sources, targets = ([-1 if one is None else one for one in side] for side in (ids.sources, ids.targets))
    source, target = (
        select_rows(state[f"model.{stack}.embed_tokens.weight"] / scale, rows)
        for stack, rows in (("encoder", sources), ("decoder", targets))
    )
    return {
        **state,
        "model.shared.weight": source,
        "model.encoder.embed_tokens.weight": source,
        "model.decoder.embed_tokens.weight": target,
        "lm_head.weight": select_rows(state["lm_head.weight"], targets),
        OUTPUT_BIAS: select_rows(state[OUTPUT_BIAS][0], targets, NEVER)[None],
    }


def read_vocabulary(folder: Path, model: Foreign, tokenizer: Foreign) -> tuple[Tokenizer, TokenIdMap]:
    """Make the bundle's tokenizer for a model of Transformers, and the map of token ids.

    The ids of the bundle are `<unk>`, `</s>`, the other pieces of both sides in their order in Transformers, those of
    the source alone, those of the target alone, and `<pad>`.

    Args:
        folder: the folder of the model.
        model: the model of Transformers.
        tokenizer: the tokenizer of Transformers; ids without a piece get one.
    """
    if type(tokenizer).__name__ != "MarianTokenizer":
        raise BundleError(
            f"{folder}: its tokenizer is a {type(tokenizer).__name__}, must be a MarianTokenizer, with source.spm, "
            f"target.spm and vocab.json: only models with one can be imported"
        )
    special = _find_special_ids(folder, model.config, tokenizer)
    bias = model.final_logits_bias[0].tolist()
    num_rows = model.get_encoder().embed_tokens.num_embeddings
    source = _sort_pieces(folder / "vocab.json", tokenizer.encoder, special, num_rows)
    if tokenizer.separate_vocabs:
        target = _sort_pieces(folder / "target_vocab.json", tokenizer.target_encoder, special, len(bias))
        target = _add_unnamed_ids(target, special, bias)
    elif len(bias) == num_rows:
        source = target = _add_unnamed_ids(source, special, bias)
    else:
        raise BundleError(f"{folder}: has {num_rows} embeddings for sources, {len(bias)} outputs and one vocabulary")
    # Else it could not decode those.
    tokenizer.decoder |= {index: piece for piece, index in target.items()}
    shared = ("<unk>", "</s>", *(piece for piece in source if piece in target))
    source_only, target_only = (
        tuple(piece for piece in one if piece not in other) for one, other in ((source, target), (target, source))
    )
    source_model, target_model = (Path(path).read_bytes() for path in tokenizer.spm_files)
    ours = Tokenizer.with_vocabulary(
        source_model, target_model, shared, str(folder), source_only=source_only, target_only=target_only
    )
    pieces = (*shared, *source_only, *target_only, "<pad>")
    sources, targets = ([(side | special).get(piece) for piece in pieces] for side in (source, target))
    return ours, TokenIdMap(sources, targets)


def _find_special_ids(folder: Path, config: Foreign, tokenizer: Foreign) -> dict[str, int]:
    names = {"<unk>": tokenizer.unk_token, "</s>": tokenizer.eos_token, "<pad>": tokenizer.pad_token}
    sides = [tokenizer.encoder, tokenizer.target_encoder] if tokenizer.separate_vocabs else [tokenizer.encoder]
    expected = {"</s>": config.eos_token_id, "<pad>": config.pad_token_id}
    found: dict[str, int] = {}
    for ours, theirs in names.items():
        ids = {side.get(theirs) for side in sides} | ({expected[ours]} if ours in expected else set())
        (index, *others) = ids
        if others or index is None:
            raise BundleError(
                f"{folder}: the id of {theirs!r} is {' and '.join(map(str, ids))} in its files; config.json and each "
                f"vocabulary must have the same"
            )
        found[ours] = index
    return found


def _sort_pieces(
    path: Path, vocabulary: Mapping[str, int], special: Mapping[str, int], num_rows: int
) -> dict[str, int]:
    """The ids of all pieces with texts, sorted by id; the model has `num_rows` ids."""
    pieces = {index: piece for piece, index in vocabulary.items()}
    if len(pieces) < len(vocabulary):
        raise BundleError(f"{path}: gives {len(vocabulary):,} pieces {len(pieces):,} ids: each must have its own")
    if max(pieces) >= num_rows:
        raise BundleError(f"{path}: has the id {max(pieces)}; the model ends at {num_rows - 1}: it is another model's")
    return {pieces[index]: index for index in sorted(pieces.keys() - special.values())}


def _add_unnamed_ids(target: Mapping[str, int], special: Mapping[str, int], bias: Sequence[float]) -> dict[str, int]:
    """The pieces of targets, with placeholders for ids without a piece that take part in the softmax."""
    pieces = {index: piece for piece, index in target.items()}
    written = [index for index, added in enumerate(bias) if index in pieces or added > NEVER / 2]
    return {pieces.get(index, f"<id {index}>"): index for index in written if index not in special.values()}
