"""CTranslate2 folders as other converters write them, with random weights and vocabularies of their own."""

import io
import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from torch import Tensor

from transduce.interop.ctranslate2.layout import TYPES, read_model_file

D_MODEL, D_FF, NUM_HEADS = 16, 24, 2
SOURCES = [f"the small dog number {number} runs home" for number in range(60)]
TARGETS = [f"der kleine Hund Nummer {number} geht heim" for number in range(60)]


def sentencepiece_model(lines: Sequence[str], size: int = 60) -> bytes:
    """With `<unk>` 0, `<s>` 1 and `</s>` 2, as its trainer makes it unless told otherwise."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=size, hard_vocab_limit=False, minloglevel=2
    )
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    """All pieces that texts can have."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(index) for index in range(3, processor.get_piece_size())]


def marian_pieces(model: bytes) -> list[str]:
    """In Marian's order."""
    return ["</s>", "<unk>", *pieces_of(model)]


class ForeignModel:
    """A model to be changed and then saved; `spec` is CTranslate2's own description of it."""

    def __init__(self, sources: Sequence[str], targets: Sequence[str], num_layers: int = 2, **settings: Any) -> None:
        from ctranslate2 import specs

        self.spec = specs.TransformerSpec.from_config(
            num_layers, NUM_HEADS, **{"pre_norm": False, "activation": specs.Activation.SWISH, **settings}
        )
        self._random = np.random.default_rng(7)
        self.spec.encoder.embeddings[0].weight = self.random(len(sources), D_MODEL) / math.sqrt(D_MODEL)
        self.spec.decoder.embeddings.weight = self.random(len(targets), D_MODEL) / math.sqrt(D_MODEL)
        self.spec.decoder.projection.weight = self.random(len(targets), D_MODEL)
        for stack in (self.spec.encoder, self.spec.decoder):
            if hasattr(stack, "layer_norm"):
                self._norm(stack.layer_norm)
            for layer in stack.layer:
                self._attention(layer.self_attention, 3)
                if hasattr(layer, "attention"):
                    self._attention(layer.attention, 1, 2)
                self._norm(layer.ffn.layer_norm)
                self._linear(layer.ffn.linear_0, D_FF, D_MODEL)
                self._linear(layer.ffn.linear_1, D_MODEL, D_FF)
        self.spec.decoder.start_from_zero_embedding = True
        self.spec.config.add_source_eos = True
        self.spec.config.decoder_start_token = "</s>"
        self.tokens = list(sources), list(targets)

    def random(self, *shape: int) -> np.ndarray:
        return self._random.normal(scale=0.5, size=shape).astype(np.float32)

    def positions(self, table: np.ndarray) -> None:
        for stack in (self.spec.encoder, self.spec.decoder):
            stack.position_encodings.encodings = table

    def save(self, folder: Path, quantization: str | None = None) -> Path:
        folder.mkdir(parents=True)
        self.spec.register_source_vocabulary(self.tokens[0])
        self.spec.register_target_vocabulary(self.tokens[1])
        self.spec.validate()
        self.spec.optimize(quantization)
        self.spec.save(str(folder))
        return folder

    def _attention(self, attention: Any, *widths: int) -> None:
        self._norm(attention.layer_norm)
        for linear, width in zip(attention.linear, (*widths, 1), strict=True):
            self._linear(linear, width * D_MODEL, D_MODEL)

    def _norm(self, norm: Any) -> None:
        norm.gamma = 1 + self.random(D_MODEL)
        if hasattr(norm, "beta"):
            norm.beta = self.random(D_MODEL)

    def _linear(self, linear: Any, outputs: int, inputs: int) -> None:
        linear.weight = self.random(outputs, inputs)
        linear.bias = self.random(outputs)


def as_before_version_3(folder: Path) -> None:
    """The same model as CTranslate2 2 wrote it, with its settings in model.bin alone and a token on each line."""
    path = folder / "model.bin"
    file = read_model_file(path)
    shared = {f"encoder/{name}": name for name in ("num_heads", "pre_norm", "activation", "embeddings_merge")}
    shared |= {f"decoder/{name}": name for name in ("alignment_layer", "alignment_heads")}
    names = {name: shared.get(name, name).replace("embeddings_0/", "embeddings/") for name in file.unread()}
    variables = {older: file.raw(name) for name, older in names.items()}
    for name in ("decoder/num_heads", "decoder/pre_norm", "decoder/activation"):
        variables.pop(name)
    for stack in ("encoder", "decoder"):
        variables[f"{stack}/embeddings/multiply_by_sqrt_depth"] = variables.pop(f"{stack}/scale_embeddings")
    for name, value in (("with_source_bos", 0), ("with_target_bos", 1)):
        variables[name] = torch.tensor(value, dtype=torch.int8)
    path.write_bytes(model_file(5, 4, variables))
    (folder / "config.json").unlink()
    vocabulary = folder / "shared_vocabulary.json"
    tokens = json.loads(vocabulary.read_text("utf-8"))
    vocabulary.unlink()
    vocabulary.with_suffix(".txt").write_text("\n".join(tokens) + "\n", "utf-8")


def model_file(version: int, revision: int, variables: Mapping[str, Tensor]) -> bytes:
    """The bytes of model.bin, without aliases."""

    def text(content: str) -> bytes:
        return struct.pack("<H", len(content.encode()) + 1) + content.encode() + b"\0"

    parts = [struct.pack("<I", version), text("TransformerSpec"), struct.pack("<II", revision, len(variables))]
    for name, tensor in variables.items():
        content = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        shape = struct.pack(f"<B{tensor.ndim}I", tensor.ndim, *tensor.shape)
        parts += [text(name), shape, struct.pack("<BI", TYPES.index(tensor.dtype), len(content)), content]
    return b"".join([*parts, struct.pack("<I", 0)])


def change_config(folder: Path, **changes: Any) -> None:
    """Other settings in config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")
