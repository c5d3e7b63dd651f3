"""Folders of Transformers: export, post-norm as a Marian model and pre-norm as a Pegasus model; import of both."""

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Int
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional as F

from transduce.bundle import Bundle, collect_model_tensors
from transduce.bundle.weights import read_tensors, write_tensors
from transduce.config import SearchConfig, TransformerConfig, describe_file_error
from transduce.errors import BundleError, ParityError, UserError
from transduce.interop.bundle_tensors import TokenRows, arrange_token_matrices, make_config, make_search_config
from transduce.interop.channel_order import classify_positions
from transduce.interop.formats import (
    BATCH_TOKENS,
    SECTION,
    ExportedSettings,
    ImportedModel,
    Runtime,
    check_foreign_path,
    find_unsupported_network_features,
    find_unsupported_pieces,
    find_unsupported_sources,
    import_optional,
    refuse_import,
    render_export_card,
)
from transduce.interop.huggingface.layout import (
    OUTPUT_BIAS,
    POSITIONS,
    compute_query_scale,
    count_positions,
    from_huggingface,
    make_generation_settings,
    make_model_settings,
    make_tokenizer_settings,
    to_huggingface,
)
from transduce.interop.tokenizers import ForeignVocabulary
from transduce.model import EXCLUDED_TOKEN_BIAS
from transduce.storage import write_files
from transduce.text import Tokenizer
from transduce.translation import batch_by_length

Foreign = Any
"""An object of Transformers, which is untyped here."""


@contextmanager
def silence_transformers(transformers: ModuleType) -> Iterator[None]:
    """Transformers shows no progress bars and logs only errors within the block; the caller checks the rest."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # Marian's tokenizer warns if sacremoses is missing, although it does not use it.
            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


MAX_LOGITS = 2**26
"""Logits of a batch, padding included: a quarter of a gigabyte, and as much for their softmax."""

Rows = Sequence[Sequence[int]]


class TransformersRuntime:
    """Transformers with its own model and tokenizer loaded, as `Runtime`; without `rows`, its ids are the bundle's."""

    def __init__(self, model: Foreign, tokenizer: Foreign, rows: TokenRows | None = None) -> None:
        transformers = import_optional("transformers", "running a model in Transformers")
        self.name = f"Transformers {transformers.__version__}"
        self._model, self._tokenizer, self._config = model, tokenizer, model.config
        self._rows = rows or TokenRows(range(self._config.vocab_size), range(self._config.vocab_size))
        self._source_ids, self._target_ids = ({theirs: ours for ours, theirs in enumerate(side)} for side in self._rows)
        # The folder's settings may set a beam, or force the last token.
        self._model.generation_config = transformers.GenerationConfig(
            eos_token_id=self._config.eos_token_id,
            pad_token_id=self._config.pad_token_id,
            decoder_start_token_id=self._config.decoder_start_token_id,
            suppress_tokens=[self._config.pad_token_id],
        )

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        rows = self._tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
        return [[self._source_ids[theirs] for theirs in row] for row in rows]

    def decode(self, ids: Rows) -> list[str] | None:
        theirs = ((self._rows.targets[ours] for ours in row) for row in ids)
        rows = [[token for token in row if token >= 0] for row in theirs]
        return [self._tokenizer.decode(row, skip_special_tokens=True) for row in rows]

    def score_targets(self, sources: Rows, targets: Rows) -> list[list[float]]:
        """Scores without `<pad>` in the softmax; a token that targets do not have scores `EXCLUDED_TOKEN_BIAS`, as in
        Transduce.
        """
        theirs = [[self._rows.targets[ours] for ours in target] for target in targets]
        found: list[list[float]] = [[] for _ in sources]
        for indices in self._batches([max(map(len, pair)) for pair in zip(sources, targets, strict=True)]):
            scores = self._score(self._source(sources, indices), [theirs[index] for index in indices])
            for index, row in zip(indices, scores, strict=True):
                found[index] = [
                    EXCLUDED_TOKEN_BIAS if token < 0 else score for token, score in zip(theirs[index], row, strict=True)
                ]
        return found

    def translate_greedily(self, sources: Rows, max_lengths: Sequence[int]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in sources]
        for indices in self._batches([max(pair) for pair in zip(map(len, sources), max_lengths, strict=True)]):
            limit = max(max_lengths[index] for index in indices)
            outputs = self._model.generate(**self._source(sources, indices), max_new_tokens=limit).tolist()
            for index, output in zip(indices, outputs, strict=True):
                row = output[1:]  # without the start symbol
                end = row.index(self._config.eos_token_id) + 1 if self._config.eos_token_id in row else len(row)
                # Greedy search does not look ahead: a smaller limit only truncates the result.
                found[index] = [self._target_ids[token] for token in row[: min(end, max_lengths[index])]]
        return found

    @torch.inference_mode()
    def _score(self, source: dict[str, Tensor], targets: Rows) -> list[list[float]]:
        """The log-probability of each token; any number for one that is -1."""
        start, pad = self._config.decoder_start_token_id, self._config.pad_token_id
        read = [[pad if token < 0 else token for token in row] for row in targets]
        logits = self._model(**source, decoder_input_ids=self._pad([[start, *row[:-1]] for row in read])).logits
        logits = logits.float().index_fill(-1, torch.tensor([pad]), -torch.inf)
        scores = logits.log_softmax(dim=-1).gather(-1, self._pad(read)[..., None]).squeeze(-1).tolist()
        return [row[: len(target)] for row, target in zip(scores, targets, strict=True)]

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        longest, max_positions = max(lengths, default=0), self._config.max_position_embeddings
        if longest > max_positions:
            raise UserError(
                f"a sentence has {longest} tokens; {self.name} has positions for {max_positions} of this model"
            )
        return batch_by_length(lengths, min(BATCH_TOKENS, MAX_LOGITS // self._config.vocab_size))

    def _source(self, sources: Rows, indices: Sequence[int]) -> dict[str, Tensor]:
        ids = self._pad([[self._rows.sources[ours] for ours in sources[index]] for index in indices])
        return {"input_ids": ids, "attention_mask": (ids != self._config.pad_token_id).long()}

    def _pad(self, rows: Rows) -> Int[Tensor, "rows length"]:
        longest = max(map(len, rows))
        return torch.tensor([[*row, *[self._config.pad_token_id] * (longest - len(row))] for row in rows])


_MOST = {
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_hidden_layers"), 1000),
    "max_position_embeddings": 2**16,
}
"""The largest accepted values of these settings in config.json. Transformers makes as many layers and positions
before it looks at the weights, so that larger numbers in a damaged file would fill the memory."""


def _check_sizes(folder: Path) -> None:
    settings = _read_config(folder)
    for name, most in _MOST.items():
        found = settings.get(name, 0)
        if isinstance(found, int | float) and found > most:
            raise BundleError(f"{folder / 'config.json'}: {name} = {found}: at most {most:,} are accepted")


def _read_config(folder: Path) -> dict[str, Any]:
    """The settings in config.json; empty if they cannot be read."""
    try:
        settings = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return settings if isinstance(settings, dict) else {}


def load_folder(folder: Path, precision: str = "auto") -> tuple[Foreign, Foreign]:
    """Load the model and the tokenizer of a folder by the `Auto` classes of Transformers, for evaluation.

    Nothing outside the folder is read, and no code in it is run. `precision` "auto" is that of the file.
    """
    check_foreign_path(folder, "Transformers")
    _check_sizes(folder)
    transformers = import_optional("transformers", f"loading {folder}")
    place = {"pretrained_model_name_or_path": str(folder), "local_files_only": True, "trust_remote_code": False}
    try:
        with silence_transformers(transformers):
            model, found = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                **place, dtype=precision, weights_only=True, output_loading_info=True
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(**place)
    except Exception as error:
        if "weights_only" in str(error):  # of torch, which rejects such a pickle and explains how to load it anyway
            raise BundleError(
                f"{folder}: its weights are a pickle (.bin) with objects other than tensors, which could run arbitrary "
                "code; it was not read: obtain the model as model.safetensors"
            ) from error
        raise BundleError(f"{folder}: Transformers cannot load it: {error!s:.300}") from error
    for name in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if found[name]:
            keys = sorted(map(str, found[name]))
            more = f" and {len(keys) - 5:,} more" if len(keys) > 5 else ""
            raise BundleError(
                f"{folder}: Transformers has {name.replace('_', ' ')}: {', '.join(keys[:5])!s:.500}{more}"
            )
    return model.eval(), tokenizer


WEIGHTS = "model.safetensors"


class HuggingFaceFormat:
    """The `ExportFormat` and `ImportFormat` of Transformers 5.

    A folder that is written is one for `AutoModelForSeq2SeqLM` and `AutoTokenizer`.
    """

    precisions = ("float32", "float16", "bfloat16")
    suffix = ""
    packages = ("transformers",)

    def find_unsupported_features(self, bundle: Bundle) -> list[str]:
        return list(_find_obstacles(bundle.model_config, bundle.load_tokenizer()))

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        description, tokenizer = bundle.description, bundle.load_tokenizer()
        tensors = to_huggingface(
            description.model, collect_model_tensors(bundle.load_model()), count_positions(description)
        )
        rounded = {name: tensor.to(getattr(torch, precision)) for name, tensor in tensors.items()}
        # Transformers uses this to tell the file from one of Flax or TensorFlow.
        write_tensors(path / WEIGHTS, rounded, {"format": "pt"})
        settings = {
            "config.json": make_model_settings(description, tokenizer.end_id, precision),
            "generation_config.json": make_generation_settings(description, tokenizer.end_id),
            **make_tokenizer_settings(description, tokenizer),
        }
        languages = description.languages
        codes = list(dict.fromkeys(filter(None, (languages.source, languages.target))))
        files: dict[str, str | bytes] = {
            **{name: json.dumps(one, ensure_ascii=False, indent=2) + "\n" for name, one in settings.items()},
            "source.spm": tokenizer.model_bytes,
            "target.spm": tokenizer.target_model_bytes,
            "README.md": render_export_card(__file__, description, precision, codes=codes),
        }
        write_files(path, files)

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:  # noqa: ARG002 - its own tokenizer is in the folder
        return TransformersRuntime(*load_folder(path))

    def read_back(self, path: Path) -> Mapping[str, Tensor] | None:
        exported = ExportedSettings.of_section(json.loads((path / "config.json").read_bytes())[SECTION])
        if exported is None:
            return None
        tensors = read_tensors(path / WEIGHTS)
        for name in POSITIONS:
            if name in tensors and exported.model.positions != (kind := _classify_table(tensors[name])):
                raise ParityError(
                    f"{path / WEIGHTS}: {name} was exported as {kind}, expected {exported.model.positions}"
                )
        return from_huggingface(exported.model, tensors)

    def recognises(self, path: Path) -> bool:
        kind = _read_config(path).get("model_type")
        return isinstance(kind, str) and kind in NORM_ORDERS

    def read(self, path: Path, tokenizer: Path | None) -> ImportedModel:
        """Read a model; Transformers itself reads pickled weights (pytorch_model.bin), and runs no code in them."""
        if tokenizer is not None:
            raise UserError(f"{tokenizer}: {path} has its own tokenizer: leave this one out")
        model, their_tokenizer = load_folder(path, "float32")
        state, theirs, beam = model.state_dict(), model.config, model.generation_config.num_beams
        problems = list(_find_unknown_settings(theirs)) or list(_find_unknown_weights(theirs, state))
        refuse_import(path, problems)
        ours, rows = read_vocabulary(path, model, their_tokenizer)
        scale = 1.0 if theirs.scale_embedding else math.sqrt(theirs.d_model)
        source, target = (state[f"model.{stack}.embed_tokens.weight"] / scale for stack in ("encoder", "decoder"))
        matrices = arrange_token_matrices(source, target, state["lm_head.weight"], state[OUTPUT_BIAS][0], rows)
        exported = ExportedSettings.of_section(getattr(theirs, SECTION, None))
        table = state[POSITIONS[0]]
        positions = classify_positions(table), len(table)
        config = make_config(_read_network_settings(theirs, exported), matrices, positions, str(path))
        return ImportedModel(
            config=config,
            tensors=from_huggingface(config, _widen_feed_forward(state, config.d_ff), matrices),
            tokenizer=ours,
            runtime=TransformersRuntime(model, their_tokenizer, rows),
            source_language=_read_language(their_tokenizer.source_lang),
            target_language=_read_language(their_tokenizer.target_lang),
            search=_fit_search(path, theirs.max_position_embeddings, beam) if exported is None else exported.search,
        )


FORMAT = HuggingFaceFormat()


def _read_language(code: object) -> str:
    """Return a language code of tokenizer_config.json; "" where there is none."""
    return code if isinstance(code, str) and code.isprintable() else ""


def _fit_search(folder: Path, num_positions: int, beam: int | None) -> SearchConfig:
    try:
        return make_search_config(num_positions, beam)
    except ValidationError as error:
        raise BundleError(
            f"{folder / 'generation_config.json'}: num_beams = {beam!r}: {describe_file_error(error)}"
        ) from None


def _classify_table(table: Tensor) -> str:
    return classify_positions(table.float(), rounding=torch.finfo(table.dtype).eps)


def _find_obstacles(config: TransformerConfig, tokenizer: Tokenizer) -> Iterator[str]:
    yield from find_unsupported_network_features(config, "Transformers", has_head_width=False)
    if math.frexp(compute_query_scale(config))[0] != 0.5:
        yield (
            f'attention_score = "dot": Transformers divides by sqrt(d_k), and with d_k = {config.d_k} queries that '
            "compensate for it would be rounded"
        )
    if config.norm_order == "pre" and config.tied_embeddings != "three_way":
        yield (
            f'tied_embeddings = "{config.tied_embeddings}" and norm_order = "pre": the pre-norm model of Transformers, '
            f"Pegasus, has one matrix for source, target and output"
        )
    if config.norm_order == "post" and config.positions in {"learned", "none"}:
        yield (
            f'positions = "{config.positions}" and norm_order = "post": the post-norm model of Transformers, Marian, '
            f"computes sinusoids and keeps no other table"
        )
    yield from find_unsupported_sources(tokenizer, "its tokenizer")
    yield from find_unsupported_pieces(tokenizer.pieces(range(tokenizer.vocabulary)), "Transformers")


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
            yield f"{name} = {found}: Transformers only supports {value}"
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
    start, embedding = theirs.decoder_start_token_id, state["model.decoder.embed_tokens.weight"]
    if not 0 <= start < len(embedding):
        yield f"decoder_start_token_id = {start}: must be the id of a token, from 0 to {len(embedding) - 1}"
    elif embedding[start].any():
        yield (f"decoder_start_token_id = {start}: not supported: its start symbol must have a zero embedding")
    if not torch.equal(*(state[name] for name in POSITIONS)):
        yield "encoder and decoder have different tables of positions: a bundle has a single one"


def _read_network_settings(theirs: Foreign, exported: ExportedSettings | None) -> dict[str, Any]:
    """The fields of `TransformerConfig` that config.json decides."""
    # A bias of zeros, and queries that compensate for a division, are equivalent to none.
    said = exported.model if exported else TransformerConfig()
    return {
        "num_encoder_layers": theirs.encoder_layers,
        "num_decoder_layers": theirs.decoder_layers,
        "d_model": theirs.d_model,
        "d_ff": max(theirs.encoder_ffn_dim, theirs.decoder_ffn_dim),
        "num_heads": theirs.encoder_attention_heads,
        "attention_score": "dot" if said.attention_score == "dot" else "scaled_dot",
        "activation": ACTIVATIONS[theirs.activation_function],
        "norm_order": NORM_ORDERS[theirs.model_type],
        "output_bias": said.output_bias,
        "dropout": theirs.dropout,
    }


def _widen_feed_forward(state: Mapping[str, Tensor], d_ff: int) -> dict[str, Tensor]:
    """The weights with all feed-forward networks `d_ff` wide; added units are zero before and after the activation."""
    found = dict(state)
    for name, tensor in state.items():
        if ".fc1." in name:  # its outputs are rows
            found[name] = F.pad(tensor, (*(0, 0) * (tensor.ndim - 1), 0, d_ff - len(tensor)))
        elif name.endswith(".fc2.weight"):
            found[name] = F.pad(tensor, (0, d_ff - tensor.size(1)))
    return found


def read_vocabulary(folder: Path, model: Foreign, tokenizer: Foreign) -> tuple[Tokenizer, TokenRows]:
    """Make the bundle's tokenizer for a model and a tokenizer of Transformers, and the ids of its tokens there.

    Pieces are in their order in Transformers; see `ForeignVocabulary.make_tokenizer`. Ids of `tokenizer` without a
    piece get one.
    """
    if type(tokenizer).__name__ != "MarianTokenizer":
        raise BundleError(
            f"{folder}: its tokenizer is a {type(tokenizer).__name__}, but must be a MarianTokenizer, with source.spm, "
            f"target.spm and vocab.json; others cannot be imported"
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
        raise BundleError(f"{folder}: has {num_rows} source embeddings but {len(bias)} outputs for one vocabulary")
    # So that `tokenizer` can decode placeholders, too.
    tokenizer.decoder |= {index: piece for piece, index in target.items()}
    source_model, target_model = (Path(path).read_bytes() for path in tokenizer.spm_files)
    ours = ForeignVocabulary([*source], [*target]).make_tokenizer((source_model, target_model), str(folder))
    pieces = ours.pieces(range(ours.vocabulary))
    return ours, TokenRows(*([(side | special).get(piece, -1) for piece in pieces] for side in (source, target)))


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
    for piece, index in vocabulary.items():
        if type(index) is not int or index < 0:
            raise BundleError(f"{path}: gives {piece!r} the id {index!r}, but must be a whole number from 0 on")
    pieces = {index: piece for piece, index in vocabulary.items()}
    if len(pieces) < len(vocabulary):
        raise BundleError(
            f"{path}: gives {len(vocabulary):,} pieces {len(pieces):,} ids: each must have a distinct one"
        )
    if max(pieces) >= num_rows:
        raise BundleError(
            f"{path}: has the id {max(pieces)}, but the model's ids end at {num_rows - 1}: it belongs to another model"
        )
    return {pieces[index]: index for index in sorted(pieces.keys() - special.values())}


def _add_unnamed_ids(target: Mapping[str, int], special: Mapping[str, int], bias: Sequence[float]) -> dict[str, int]:
    """The pieces of targets, with placeholders for ids without a piece that take part in the softmax."""
    pieces = {index: piece for piece, index in target.items()}
    written = [index for index, added in enumerate(bias) if index in pieces or added > EXCLUDED_TOKEN_BIAS / 2]
    return {pieces.get(index, f"<id {index}>"): index for index in written if index not in special.values()}
