"""The export of bundles as folders of Transformers: post-norm as a Marian model, pre-norm as a Pegasus model."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from transduce.bundle import Bundle, BundleDescription, model_tensors
from transduce.bundle.weights import read_tensors
from transduce.config import TransformerConfig
from transduce.errors import ParityError
from transduce.interop.conversion import classify_positions
from transduce.interop.formats import Runtime, render_card, source_obstacles
from transduce.interop.huggingface.layout import (
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
from transduce.interop.huggingface.runtime import TransformersRuntime, load_folder
from transduce.text import Tokenizer

WEIGHTS = "model.safetensors"


class HuggingFaceFormat:
    """The `ExportFormat` of Transformers 5: a folder for `AutoModelForSeq2SeqLM` and `AutoTokenizer`."""

    precisions = ("float32", "float16", "bfloat16")
    suffix = ""

    def obstacles(self, bundle: Bundle) -> list[str]:
        return list(_find_obstacles(bundle.model_config, bundle.load_tokenizer()))

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        description, tokenizer = bundle.description, bundle.load_tokenizer()
        tensors = to_huggingface(description.model, model_tensors(bundle.load_model()), num_positions(description))
        _write_weights(path / WEIGHTS, tensors, getattr(torch, precision))
        for name, settings in {
            "config.json": model_settings(description, tokenizer.end_id, precision),
            "generation_config.json": generation_settings(description, tokenizer.end_id),
            **tokenizer_settings(description, tokenizer),
        }.items():
            text = json.dumps(settings, ensure_ascii=False, indent=2) + "\n"
            (path / name).write_text(text, encoding="utf-8", newline="\n")
        (path / "source.spm").write_bytes(tokenizer.model_bytes)
        (path / "target.spm").write_bytes(tokenizer.target_model_bytes)
        card = huggingface_card(description, precision)
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


FORMAT = HuggingFaceFormat()


def huggingface_card(description: BundleDescription, precision: str) -> str:
    """The README.md of an exported folder, with the front matter that the Hugging Face Hub reads."""
    codes = [code for code in (description.languages.source, description.languages.target) if code]
    # Quoted, because YAML reads a bare "no" (Norwegian) as false.
    quoted = [json.dumps(code, ensure_ascii=False) for code in dict.fromkeys(codes)]
    return render_card(__file__, description, precision, codes=quoted)


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


def _write_weights(path: Path, tensors: Mapping[str, Tensor], precision: torch.dtype) -> None:
    path.touch()  # by itself safetensors makes a file that only its owner can read
    mode = path.stat().st_mode
    # Transformers wants to know that a file is not one of Flax or TensorFlow.
    save_file({name: one.detach().to(precision).contiguous() for name, one in tensors.items()}, path, {"format": "pt"})
    path.chmod(mode)
