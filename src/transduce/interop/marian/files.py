"""The files of a Marian model: settings in YAML, weights in a NumPy archive, and vocabularies."""

import json
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from torch import Tensor

from transduce.bundle import BundleDescription
from transduce.config import TransformerConfig
from transduce.errors import BundleError
from transduce.text.tokenizer import open_model

Value = str | list[str]

_MAX_CHARACTERS = 2**20
_PLAIN_TAGS = {"tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"}


def _node_text(node: yaml.Node, name: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _PLAIN_TAGS:
        raise BundleError(f"{name}, line {node.start_mark.line + 1}: must contain only values and lists of values")
    text: str = node.value
    return text


def read_numbered(text: str, name: str) -> Iterator[tuple[str, int]]:
    """Pieces with their numbers, a line each, as Marian writes a vocabulary. Errors call the file `name`.

    Lines are read one by one and not by PyYAML, which takes pieces such as "#" for comments and folds the line
    separators of Unicode within pieces; CTranslate2 reads vocabularies in the same way.
    """
    waiting: str | None = None  # a long piece has a line of its own, "? piece", and the next one has the number
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r")
        place = f"{name}, line {number}"
        if waiting is None and line.startswith("? "):
            waiting = _unquote(line[2:], place)
            continue
        piece, colon, digits = line.rpartition(":")
        if not line.strip() or (waiting is None and (line.startswith("# ") or line == "---")):
            continue
        if not colon or not digits.strip().isascii() or not digits.strip().isdigit() or bool(piece) == bool(waiting):
            raise BundleError(f"{place}: {line[:80]!r} is not a piece with its number, as in '</s>: 0'")
        yield (_unquote(piece, place) if waiting is None else waiting), int(digits)
        waiting = None


def _unquote(text: str, place: str) -> str:
    quote = text[:1]
    if quote not in {"'", '"'}:
        return text
    if len(text) < 2 or text[-1] != quote:
        raise BundleError(f"{place}: {text[:80]!r} has a quotation mark at one end only")
    if quote == "'":
        return text[1:-1].replace("''", "'")
    if "\\" not in text:
        return text[1:-1]
    try:
        unescaped: str = yaml.compose(text, Loader=yaml.BaseLoader).value
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise BundleError(f"{place}: {text[:80]!r} is not YAML: {getattr(error, 'problem', None) or error}") from None
    return unescaped


def quote(text: str) -> str:
    """`text` as YAML that Marian and CTranslate2 read alike."""
    return "'" + text.replace("'", "''") + "'"


MODEL_FILE = "model.npz"
NEW_MODEL_FILE = "transformer-new.npz"
DECODER_FILE = "decoder.yml"

NORM_ORDERS = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}
"""Orders by `transformer-preprocess`, `-postprocess` and `-postprocess-top`: d is dropout, a the sum, n the norm."""

_NORMS = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")


@dataclass(frozen=True)
class MarianSettings:
    """Settings of Marian by name; `name` is that of their file in error messages."""

    values: Mapping[str, Value]
    name: str

    @classmethod
    def parse(cls, text: str, name: str) -> "MarianSettings":
        """Parse settings in YAML: names, each with a value or a list of values. Errors call the file `name`.

        Every value is the text that stands there, so that `no` is a language and not false. PyYAML composes nodes and
        constructs no objects from them.
        """
        if len(text) > _MAX_CHARACTERS:
            raise BundleError(f"{name}: has {len(text):,} characters; at most {_MAX_CHARACTERS:,} are accepted")
        try:
            root = yaml.compose(text, Loader=yaml.BaseLoader)
        except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            problem = getattr(error, "problem", None) or str(error)
            raise BundleError(f"{name}, line {1 if mark is None else mark.line + 1}: is not YAML: {problem}") from None
        if root is None:
            return cls({}, name)
        if not isinstance(root, yaml.MappingNode) or root.flow_style:
            raise BundleError(f"{name}, line 1: must be names with values, as in 'type: transformer'")
        found: dict[str, Value] = {}
        for key_node, value_node in root.value:
            key = _node_text(key_node, name)
            if key in found:
                raise BundleError(f"{name}, line {key_node.start_mark.line + 1}: {key!r} occurs twice")
            if isinstance(value_node, yaml.SequenceNode) and value_node.tag in _PLAIN_TAGS:
                found[key] = [_node_text(item, name) for item in value_node.value]
            else:
                found[key] = _node_text(value_node, name)
        return cls(found, name)

    def text(self, key: str, default: str = "") -> str:
        """One value."""
        value = self.values.get(key, default)
        if isinstance(value, list):
            raise BundleError(f"{self.name}: {key} is a list, but must be one value")
        return value

    def texts(self, key: str) -> list[str]:
        """A list; empty where there is none."""
        value = self.values.get(key, [])
        if isinstance(value, list):
            return value
        return [value] if value else []

    def number(self, key: str) -> int:
        """A whole number."""
        value = self.text(key)
        if not (value.isascii() and value.isdigit()):
            raise BundleError(f"{self.name}: {key} = {value!r}, but must be a whole number")
        return int(value)

    def flag(self, key: str) -> bool:
        """Whether it is set."""
        value = self.text(key, "false")
        if value not in {"true", "false"}:
            raise BundleError(f"{self.name}: {key} = {value!r}, but must be true or false")
        return value == "true"

    def norm_order(self) -> str:
        """The order "post" or "pre"; empty where the layers have another one."""
        before, after, top = (self.text(name) for name in _NORMS)
        return NORM_ORDERS.get((before, after, top), "")


def make_model_settings(config: TransformerConfig, num_positions: int, *, is_new: bool = False) -> str:
    """The settings in a model of the type `transformer`, as YAML; `num_positions` are those of the longest sentence.

    `is_new`: of the type `transformer-new` instead, whose table of positions is among its weights.
    """
    orders = {order: norms for norms, order in NORM_ORDERS.items()}
    settings: dict[str, object] = {
        "type": "transformer",
        "dim-vocabs": [config.vocabulary - 1] * 2,
        "dim-emb": config.d_model,
        "enc-depth": config.num_encoder_layers,
        "dec-depth": config.num_decoder_layers,
        "transformer-heads": config.num_heads,
        "transformer-dim-ffn": config.d_ff,
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": config.activation,
        **dict(zip(_NORMS, orders[config.norm_order], strict=True)),
        "transformer-postprocess-emb": "d",
        "transformer-decoder-autoreg": "self-attention",
        "transformer-no-projection": False,
        "transformer-tied-layers": [],
        "transformer-guided-alignment-layer": "last",
        "transformer-train-position-embeddings": False,
        "tied-embeddings": config.tied_embeddings == "two_way",
        "tied-embeddings-src": False,
        "tied-embeddings-all": config.tied_embeddings == "three_way",
        # The array is there all the same, as older Marians ask for it.
        "output-omit-bias": not config.output_bias,
        "input-types": [],
        "right-left": False,
        "max-length": num_positions,
        "version": "v1.12.0",
    }
    if is_new:
        changed = {
            "type": "transformer-new",
            "transformer-train-position-embeddings": True,
            "tied-embeddings": False,
            "tied-embeddings-src": config.tied_embeddings == "three_way",
            "tied-embeddings-all": False,
        }
        settings = {name: value for name, value in settings.items() if name not in changed} | changed
    return _to_yaml(settings)


def make_decoder_settings(description: BundleDescription, vocabularies: Sequence[str]) -> str:
    """The content of decoder.yml: the search of a bundle, as far as Marian has such settings."""
    search = description.search
    return (
        "# Usage: marian-decoder -c decoder.yml < input > output\n"
        "# More than one sentence at a time gives wrong translations: Marian 1.12 takes the mask of another batch.\n"
        + _to_yaml(
            {
                "relative-paths": True,
                "models": [NEW_MODEL_FILE],
                "vocabs": list(vocabularies),
                "mini-batch": 1,
                "maxi-batch": 1,
                "cpu-threads": 1,
                "beam-size": search.beam,
                "normalize": search.length_penalty,
                "word-penalty": 0,
                "max-length-crop": True,
            }
        )
    )


def _to_yaml(settings: Mapping[str, object]) -> str:
    """Settings as YAML. Values are written as JSON, which is YAML: a quoted "n" is no boolean."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())


_SETTINGS = "special:model.yml"

_DAMAGE = (
    *(ValueError, KeyError, EOFError, AttributeError, TypeError, OverflowError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, SyntaxError, TokenError),
)
"""The exceptions that NumPy raises when a file is damaged; it parses the headers of arrays as Python."""


_MAX_BYTES = 2**32
"""The largest size of an archive when it is unpacked."""


class Archive(NamedTuple):
    """The content of an .npz file of Marian.

    Args:
        settings: the settings of the network.
        arrays: the weights by Marian's names, in float32.
        text: the settings as YAML.
    """

    settings: MarianSettings
    arrays: dict[str, Tensor]
    text: str


def write_archive(path: Path, settings: str, arrays: Mapping[str, Tensor]) -> None:
    """Write `arrays` and `settings`, which are YAML, to the .npz file `path`."""
    contents: dict[str, Any] = {name: np.ascontiguousarray(array.detach().numpy()) for name, array in arrays.items()}
    # Marian requires a terminator after the text.
    contents[_SETTINGS] = np.frombuffer(settings.encode() + b"\0", dtype=np.int8)
    np.savez(path, **contents)


def read_archive(path: Path) -> Archive:
    """Read the .npz file at `path`; pickles are refused."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if (size := sum(entry.file_size for entry in file.zip.infolist())) > _MAX_BYTES:
                raise BundleError(f"{path}: has {size:,} bytes unpacked; at most {_MAX_BYTES:,} are accepted")
            arrays = {name: np.asarray(file[name]) for name in file.files}  # a member that is not an array is bytes
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror or error}") from None
    except _DAMAGE as error:
        raise BundleError(f"{path}: is not an archive of arrays: {error!s:.300}; give a Marian model (.npz)") from None
    if _SETTINGS not in arrays:
        raise BundleError(f"{path}: has no {_SETTINGS}; give a model of Marian, with its settings inside")
    try:
        text = arrays[_SETTINGS].tobytes().partition(b"\0")[0].decode("utf-8")
    except UnicodeDecodeError as error:
        raise BundleError(f"{path}: {_SETTINGS} is not text: {error}; use an undamaged copy") from None
    arrays = {name: array for name, array in arrays.items() if not name.startswith("special:")}
    for name, array in arrays.items():
        if array.dtype not in (np.float32, np.float16):
            raise BundleError(f"{path}: {name} has type {array.dtype}, but must be float32 or float16")
    tensors = {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}
    return Archive(MarianSettings.parse(text, f"{path}, {_SETTINGS}"), tensors, text)


SENTENCEPIECE = ".spm"
"""The ending by which Marian takes a vocabulary for a SentencePiece model."""

_LISTS = {".yml", ".yaml", ".json"}

_REMEDY = "give the vocabulary that the model was trained with"


def write_vocabulary(path: Path, pieces: Sequence[str]) -> None:
    """Write `pieces` with their numbers as YAML."""
    lines = [f"{quote(piece)}: {number}\n" for number, piece in enumerate(pieces)]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def read_vocabulary(path: Path, num_rows: int) -> list[str]:
    """Read the piece of each of `num_rows` rows; a row without a piece gets a placeholder."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from None
    if path.suffix not in _LISTS:
        processor = open_model(content, str(path), _REMEDY)
        numbers = [(processor.id_to_piece(number), number) for number in range(processor.get_piece_size())]
    else:
        numbers = _read_numbers(content, path)
    rows: dict[int, str] = {}
    for piece, number in numbers:
        if number in rows:
            raise BundleError(f"{path}: {piece!r} and {rows[number]!r} have the same number, {number}; {_REMEDY}")
        rows[number] = piece
    pieces = [rows.get(number) or name_unnamed_row(number) for number in range(num_rows)]
    if len(set(pieces)) < num_rows:
        twice = next(piece for index, piece in enumerate(pieces) if piece in pieces[:index])
        raise BundleError(f"{path}: has the piece {twice!r} twice; {_REMEDY}")
    if missing := {"<unk>", "</s>"}.difference(pieces):
        raise BundleError(f"{path}: has no {min(missing)!r} among its first {num_rows:,} pieces; {_REMEDY}")
    return pieces


def name_unnamed_row(number: int) -> str:
    """The placeholder for a row without a piece, which no text contains."""
    return f"<id {number}>"


def to_marian_order(model: bytes) -> bytes:
    """Exchange the first two pieces of a SentencePiece model: `<unk>` and `</s>` in a bundle, the reverse in Marian.

    Both models split texts alike. The file begins with the pieces, each a message of protobuf: a byte 10, the length,
    the content.
    """
    first = _end_of_piece(model, 0)
    second = _end_of_piece(model, first)
    return model[first:second] + model[:first] + model[second:]


def _read_numbers(content: bytes, path: Path) -> list[tuple[str, int]]:
    try:
        text = content.decode("utf-8")
        if path.suffix != ".json":
            return list(read_numbered(text, str(path)))
        found = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BundleError(f"{path}: is not a vocabulary: {error}; {_REMEDY}") from None
    if not isinstance(found, dict) or not all(type(number) is int for number in found.values()):
        raise BundleError(f"{path}: is not a JSON object of pieces with their numbers; {_REMEDY}")
    return list(found.items())


def _end_of_piece(model: bytes, start: int) -> int:
    """The end of the message at `start`, whose length has 7 bits a byte and ends with a byte below 128."""
    length, offset = 0, start + 1
    while True:
        length |= (model[offset] & 0x7F) << (7 * (offset - start - 1))
        offset += 1
        if model[offset - 1] < 0x80:
            return offset + length
