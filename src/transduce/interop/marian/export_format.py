"""The export of bundles as models of Marian, with the files that `marian-decoder` needs."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from transduce.bundle import Bundle, model_tensors
from transduce.errors import ParityError
from transduce.interop.ctranslate2.export_format import num_positions
from transduce.interop.formats import Runtime, render_card, source_obstacles
from transduce.interop.marian.files import (
    DECODER_FILE,
    MODEL_FILE,
    NEW_MODEL_FILE,
    decoder_settings,
    model_settings,
    name_unnamed_row,
    new_model_settings,
    read_archive,
    read_vocabulary,
    to_marian_order,
    write_archive,
    write_vocabulary,
)
from transduce.interop.marian.layout import (
    NEW_POSITIONS,
    OUTPUT_BIAS,
    POSITIONS,
    Tokens,
    from_arrays,
    make_config,
    marian_rows,
    to_arrays,
    to_new_arrays,
    token_matrices,
)
from transduce.interop.marian.runtime import MarianPieces, MarianRuntime, find_marian, load_converted
from transduce.model import NEVER
from transduce.text import SOURCE_MODEL, TARGET_MODEL, VOCABULARY, Tokenizer

VOCABULARY_FILE = "vocab.yml"
VOCABULARY_FILES = ("source.vocab.yml", "target.vocab.yml")
SENTENCEPIECE_FILE = "vocab.spm"


class MarianFormat:
    """The `ExportFormat` of Marian: a folder with one model in Marian's two types of a Transformer.

    Marian 1.12 computes `transformer-new.npz` as Transduce does. Other programs read `model.npz`, of the type
    `transformer`; CTranslate2's converter computes it as Transduce does, but Marian itself has other positions there.
    """

    precisions = ("float32", "float16")
    suffix = ""

    def obstacles(self, bundle: Bundle) -> list[str]:
        config, found = bundle.model_config, []
        if {config.d_k, config.d_v} != {config.d_model / config.num_heads}:
            found.append(
                f"d_k = {config.d_k}, d_v = {config.d_v}: in Marian both are d_model / num_heads, "
                f"{config.d_model} / {config.num_heads}"
            )
        if config.attention_score != "scaled_dot":
            found.append(f'attention_score = "{config.attention_score}": Marian has "scaled_dot" alone')
        if config.normalization == "batch":
            found.append('normalization = "batch": Marian knows layer normalisation alone')
        if config.activation == "gelu":
            found.append('activation = "gelu": it is the exact one in some Marians, and x * sigmoid(1.702 x) in others')
        tokenizer = bundle.load_tokenizer()
        found += source_obstacles(tokenizer, "Marian")
        pieces = tokenizer.pieces(range(tokenizer.pad_id))
        twice, count = Counter(pieces).most_common(1)[0]
        if count > 1:
            found.append(f"the tokenizer has two tokens {twice!r}: Marian knows tokens by their names")
        if divided := next((piece for piece in pieces if set(piece) & {" ", "\n", "\r"}), None):
            found.append(f"the tokenizer has the token {divided!r}: Marian takes spaces and lines for ends of tokens")
        return found

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        """Numbers of 16 bits Marian and CTranslate2 compute with in float32, on a processor."""
        description, tokenizer, model = bundle.description, bundle.load_tokenizer(), bundle.load_model()
        config, length = description.model, num_positions(description.model, description.search)
        with torch.no_grad():
            arrays = to_arrays(config, model_tensors(model), model.positions(length))
        for name, settings, weights in (
            (MODEL_FILE, model_settings(config, length), arrays),
            (NEW_MODEL_FILE, new_model_settings(config, length), to_new_arrays(config, arrays)),
        ):
            write_archive(path / name, settings, _round_matrices(weights, getattr(torch, precision)))
        for name, content in tokenizer.files.items():
            (path / name).write_bytes(content)
        for name, pieces in _list_vocabularies(tokenizer).items():
            write_vocabulary(path / name, pieces)
        names = _vocabulary_names(tokenizer)
        if tokenizer.is_joint:
            (path / SENTENCEPIECE_FILE).write_bytes(to_marian_order(tokenizer.model_bytes))
        for name, text in {
            DECODER_FILE: decoder_settings(description, [SENTENCEPIECE_FILE] * 2 if tokenizer.is_joint else names),
            "README.md": render_card(__file__, description, precision, is_joint=tokenizer.is_joint),
        }.items():
            (path / name).write_text(text, encoding="utf-8", newline="\n")

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:
        """Load Marian if the package `pymarian` is installed, otherwise CTranslate2 by its converter."""
        models = [path / SENTENCEPIECE_FILE] * 2 if tokenizer.is_joint else [path / SOURCE_MODEL, path / TARGET_MODEL]
        source_model, target_model = (model.read_bytes() for model in models)
        source, target = (path / name for name in _vocabulary_names(tokenizer))
        known = read_vocabulary(source, tokenizer.pad_id)
        pieces = MarianPieces((source_model, target_model), known, tokenizer)
        if (marian := find_marian()) is not None:
            return MarianRuntime(marian, path / NEW_MODEL_FILE, (source, target), tokenizer, pieces)
        return load_converted(path / MODEL_FILE, (source, target), tokenizer, pieces)

    def read_back(self, path: Path) -> Mapping[str, Tensor]:
        """The weights of `model.npz`, after a check that the other file has the same."""
        archive = read_archive(path / MODEL_FILE)
        rows = marian_rows(archive.arrays[OUTPUT_BIAS].size(1) + 1)
        matrices = token_matrices(archive.settings, archive.arrays, rows, rows, NEVER)
        config = make_config(archive, Tokens(rows, rows))
        newer = read_archive(path / NEW_MODEL_FILE).arrays
        for name, array in to_new_arrays(config, archive.arrays).items():
            # Embeddings are multiplied there, and in 16 bits rounded once more.
            rounding = 2**-10 if name.endswith("Wemb") else 0.0
            if name not in newer or not torch.allclose(newer[name], array, rtol=rounding, atol=rounding**2):
                raise ParityError(f"{path / NEW_MODEL_FILE}: {name} is not what {MODEL_FILE} has")
        return from_arrays(config, archive.arrays, matrices)


FORMAT = MarianFormat()


def _vocabulary_names(tokenizer: Tokenizer) -> list[str]:
    """The files of source and target."""
    return [VOCABULARY_FILE] * 2 if tokenizer.is_joint else list(VOCABULARY_FILES)


def _list_vocabularies(tokenizer: Tokenizer) -> dict[str, list[str]]:
    """The pieces of each file in Marian's order; pieces that one side never has are placeholders there."""
    pieces = tokenizer.pieces(marian_rows(tokenizer.vocabulary)[:-1])
    if tokenizer.is_joint:
        return {VOCABULARY_FILE: pieces}
    lists = json.loads(tokenizer.files[VOCABULARY])
    others = zip(VOCABULARY_FILES, (set(lists["target"]), set(lists["source"])), strict=True)
    return {
        name: [name_unnamed_row(row) if piece in other else piece for row, piece in enumerate(pieces)]
        for name, other in others
    }


def _round_matrices(arrays: Mapping[str, Tensor], precision: torch.dtype) -> dict[str, Tensor]:
    """Matrices in `precision`; vectors and tables of positions stay in float32, being small."""

    def is_small(name: str, array: Tensor) -> bool:
        return array.ndim == 1 or len(array) == 1 or name.endswith((POSITIONS, NEW_POSITIONS))

    return {name: array if is_small(name, array) else array.to(precision) for name, array in arrays.items()}
