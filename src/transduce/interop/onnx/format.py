"""Exported ONNX folders: their files, a program that translates text by them, and ONNX Runtime, which runs them."""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from torch import Tensor

from transduce import __version__
from transduce.bundle import Bundle, BundleDescription, Languages
from transduce.bundle.bundle import WEIGHTS
from transduce.config import SearchConfig, Settings, TransformerConfig, first_problem
from transduce.errors import BundleError, ConfigError, MissingExtraError, UserError
from transduce.interop.formats import Runtime, render_card, source_obstacles
from transduce.interop.onnx.network import (
    CONSTANT,
    LAST_IDS,
    LOG_PROBABILITIES,
    OPSET,
    SOURCE_IDS,
    SOURCE_MASK,
    cache_names,
    decoder_step_graph,
    encoder_graph,
    import_onnx,
)
from transduce.text import Tokenizer
from transduce.translation import NetworkEngine, batch_by_length

CONFIG_FILE = "config.json"
ENCODER_FILE = "encoder.onnx"
DECODER_STEP_FILE = "decoder_step.onnx"


class GraphNames(Settings):
    """A graph with its inputs and outputs."""

    file: str
    """The graph."""

    inputs: tuple[str, ...]
    """Names of all inputs."""

    outputs: tuple[str, ...]
    """Names of all outputs, in their order."""


class OnnxSettings(Settings):
    """The config.json of an export: everything that a program needs to run the graphs."""

    format: Literal["transduce onnx"] = "transduce onnx"
    """Marks the file."""

    format_version: Literal[1] = 1
    """Version of names, axes and meanings of inputs and outputs."""

    library_version: str = __version__
    """The Transduce that exported it."""

    precision: Literal["float32", "float16", "int8"]
    """The precision of the weights."""

    unknown_id: int
    """`<unk>`, in place of what has no piece."""

    end_id: int
    """`</s>`, the last token of every source and target."""

    pad_id: int
    """`<pad>`: fills the ends of short sources; the last id of a row before its first token."""

    max_positions: int | None = Field(ge=1)
    """Most tokens of a source or a target, `</s>` included; null where there is no limit."""

    encoder: GraphNames
    """Reads the source."""

    decoder_step: GraphNames
    """Takes every row one token further."""

    model: TransformerConfig
    """The network."""

    search: SearchConfig
    """The settings of the search unless others are given."""

    languages: Languages
    """From which language to which."""

    @classmethod
    def of(cls, description: BundleDescription, precision: str) -> "OnnxSettings":
        """The settings of a bundle that is exported in `precision`."""
        model = description.model
        memory, past, present = (
            tuple(name for pair in cache_names(kind, model.num_decoder_layers) for name in pair)
            for kind in ("memory", "past", "present")
        )
        return cls.model_validate(
            {
                "precision": precision,
                "unknown_id": Tokenizer.unknown_id,
                "end_id": Tokenizer.end_id,
                "pad_id": model.vocabulary - 1,
                "max_positions": model.max_positions if model.positions == "learned" else None,
                "encoder": GraphNames(file=ENCODER_FILE, inputs=(SOURCE_IDS,), outputs=(SOURCE_MASK, *memory)),
                "decoder_step": GraphNames(
                    file=DECODER_STEP_FILE,
                    inputs=(LAST_IDS, SOURCE_MASK, *memory, *past),
                    outputs=(LOG_PROBABILITIES, *present),
                ),
                "model": model,
                "search": description.search,
                "languages": description.languages,
            }
        )


def read_settings(folder: Path) -> OnnxSettings:
    """Read the config.json of `folder`."""
    path = folder / CONFIG_FILE
    try:
        return OnnxSettings.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}): give a folder that was exported") from None
    except ValidationError as error:
        raise BundleError(
            f"{path}: {first_problem(error)}: give a folder that transduce export --to onnx has written"
        ) from None


Arrays = Mapping[str, NDArray[Any]]
"""By the names that they have in the graphs."""


def import_onnxruntime(purpose: str) -> ModuleType:
    """Import the optional package `onnxruntime`; `purpose` says in the error what needs it."""
    try:
        import onnxruntime  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingExtraError("onnxruntime", "onnx", purpose) from None
    package: ModuleType = onnxruntime
    return package


class OnnxModel:
    """Both graphs of an export, each computing on one thread; several threads may call them at a time.

    Args:
        folder: a folder that `transduce export --to onnx` has written.
    """

    def __init__(self, folder: Path) -> None:
        onnxruntime = import_onnxruntime("running a model in ONNX Runtime")
        self.runtime = f"ONNX Runtime {onnxruntime.__version__}"
        self.settings = read_settings(folder)
        self.longest = self.settings.max_positions or sys.maxsize
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_mem_pattern = False  # it would remember something for every new length
        self._encoder, self._decoder_step = (
            _open_session(onnxruntime, folder / graph.file, options)
            for graph in (self.settings.encoder, self.settings.decoder_step)
        )
        num_layers = self.settings.model.num_decoder_layers
        past, present = (cache_names(kind, num_layers) for kind in ("past", "present"))
        self._past_of_present = {
            after: before
            for pair, grown in zip(past, present, strict=True)
            for before, after in zip(pair, grown, strict=True)
        }

    def read(self, source_ids: Int64[np.ndarray, "sentences source"]) -> Arrays:
        """Run the encoder: the source mask, and keys and values of the memory."""
        self._check_length(source_ids.shape[1])
        outputs = self._encoder.run(None, {SOURCE_IDS: source_ids})
        return dict(zip(self.settings.encoder.outputs, outputs, strict=True))

    def make_empty_past(self, rows: int) -> Arrays:
        """Keys and values of targets without a token."""
        model = self.settings.model
        return {
            name: np.zeros((rows, model.num_heads, 0, width), np.float32)
            for pair in cache_names("past", model.num_decoder_layers)
            for name, width in zip(pair, (model.d_k, model.d_v), strict=True)
        }

    def step(
        self, last_ids: Int64[np.ndarray, " rows"], memory: Arrays, past: Arrays
    ) -> tuple[Float[np.ndarray, "rows vocabulary"], Arrays]:
        """Run the decoder step: log-probabilities of the next ids, and the past with `last_ids`."""
        self._check_length(next(iter(past.values())).shape[2] + 1)
        outputs = self._decoder_step.run(None, {LAST_IDS: last_ids, **memory, **past})
        found = dict(zip(self.settings.decoder_step.outputs, outputs, strict=True))
        return found[LOG_PROBABILITIES], {before: found[after] for after, before in self._past_of_present.items()}

    def _check_length(self, length: int) -> None:
        if length > self.longest:
            raise UserError(
                f"a sentence reaches position {length}; this model has learned positions up to {self.longest} "
                f"(model.max_positions): split the sentence"
            )


def _open_session(onnxruntime: Any, path: Path, options: Any) -> Any:  # noqa: ANN401 - of an optional package without types
    if not path.is_file():
        raise BundleError(f"{path}: is missing; give a folder that transduce export --to onnx has written")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common parent
        raise BundleError(f"{path}: ONNX Runtime cannot read it: {error}; use an undamaged copy") from error


BATCH_TOKENS = 4096
MOST_ROWS = 64
"""Sentences of a batch: its log-probabilities should not take much memory."""


class OnnxRuntime:
    """Everything is computed by the step, token by token, as users will.

    Args:
        folder: what `transduce export --to onnx` has written.
    """

    def __init__(self, folder: Path) -> None:
        self._model = OnnxModel(folder)
        self._tokenizer = Tokenizer.load(folder)
        self._end_id, self._pad_id = self._model.settings.end_id, self._model.settings.pad_id

    @property
    def name(self) -> str:
        return self._model.runtime

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        return [[*ids, self._end_id] for ids in self._tokenizer.encode_all(texts)]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str] | None:
        return [self._tokenizer.decode(row) for row in ids]

    def forced_scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in sources]
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for indices in batch_by_length(lengths, BATCH_TOKENS, MOST_ROWS):
            memory, past = self._start([sources[index] for index in indices])
            last_ids = np.full(len(indices), self._pad_id, np.int64)
            for next_ids in np.ascontiguousarray(self._pad([targets[index] for index in indices]).T):
                log_probs, past = self._model.step(last_ids, memory, past)
                last_ids = next_ids
                for index, score in zip(indices, log_probs[np.arange(len(indices)), next_ids].tolist(), strict=True):
                    found[index].append(score)
        return [scores[: len(target)] for scores, target in zip(found, targets, strict=True)]

    def greedy(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in sources]
        for indices in batch_by_length([len(source) for source in sources], BATCH_TOKENS, MOST_ROWS):
            memory, past = self._start([sources[index] for index in indices])
            last_ids = np.full(len(indices), self._pad_id, np.int64)
            waiting = set(indices)
            while waiting:
                log_probs, past = self._model.step(last_ids, memory, past)
                last_ids = log_probs.argmax(axis=1)
                for index, last in zip(indices, last_ids.tolist(), strict=True):
                    if index in waiting:
                        found[index].append(last)
                        if last == self._end_id or len(found[index]) == max_lengths[index]:
                            waiting.remove(index)
        return found

    def _start(self, sources: Sequence[Sequence[int]]) -> tuple[Arrays, Arrays]:
        return self._model.read(self._pad(sources)), self._model.make_empty_past(len(sources))

    def _pad(self, rows: Sequence[Sequence[int]]) -> Int64[np.ndarray, "rows length"]:
        longest = max(map(len, rows))
        return np.array([[*row, *[self._pad_id] * (longest - len(row))] for row in rows], np.int64)


def load(folder: Path, device: str = "cpu") -> NetworkEngine:
    """Load the export in `folder` as an engine of Transduce's search; PyTorch computes nothing of the network.

    As many batches are under way as PyTorch has threads, each on one of them.

    Raises:
        ConfigError: the device is another than the CPU.
    """
    if device not in {"auto", "cpu"}:
        raise ConfigError(f"device = {device!r}: the engine onnx computes on the cpu")
    model = OnnxModel(folder)
    settings = model.settings
    return NetworkEngine(OnnxNetwork(model), settings.end_id, settings.model.vocabulary, longest=model.longest)


@dataclass(frozen=True)
class _State:
    memory: Arrays
    past: Arrays
    width: int

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "_State":
        chosen = torch.arange(len(parents)) if sentences is None else sentences
        rows = (chosen[:, None] * self.width + parents).flatten().numpy()
        memory = self.memory if sentences is None else _select_rows(self.memory, sentences.numpy())
        return _State(memory, _select_rows(self.past, rows), parents.size(1))


class OnnxNetwork:
    """An exported model as `translation.Network`."""

    def __init__(self, model: OnnxModel) -> None:
        self._model = model

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> _State:
        """Run the encoder, which recognises `<pad>` by itself and needs no mask."""
        del source_mask
        return _State(self._model.read(source_ids.numpy()), self._model.make_empty_past(len(source_ids)), 1)

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: _State
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], _State]:
        log_probs, past = self._model.step(last_ids.flatten().numpy(), state.memory, state.past)
        return torch.from_numpy(log_probs).view(*last_ids.shape, -1), _State(state.memory, past, last_ids.size(1))


def _select_rows(arrays: Arrays, rows: Int[np.ndarray, " chosen"]) -> Arrays:
    return {name: array.take(rows, axis=0) for name, array in arrays.items()}


_JOINT_TOKENIZER = """\
TOKENIZER = SentencePieceProcessor(model_file=str(FOLDER / "tokenizer.model"))
encode, decode = TOKENIZER.encode, TOKENIZER.decode
"""


def onnx_card(settings: OnnxSettings) -> str:
    """The README.md of an exported folder."""
    d_k, d_v = settings.model.d_k, settings.model.d_v
    widths = d_k if d_k == d_v else f"{d_k} (keys) or {d_v}"
    return render_card(__file__, settings, settings.precision, opset=OPSET, widths=widths)


def example_programs(*, is_joint: bool) -> Mapping[str, str]:
    """The programs of an export by name; with two SentencePiece models, `translate.py` imports a second module."""
    folder = Path(__file__).parent
    translate = (folder / "translate.txt").read_text(encoding="utf-8")
    if is_joint:
        return {"translate.py": translate}
    imported = "from sentencepiece import SentencePieceProcessor", "from separate_tokenizer import decode, encode"
    tokenizer = (folder / "separate_tokenizer.txt").read_text(encoding="utf-8")
    return {
        "translate.py": translate.replace(_JOINT_TOKENIZER, "").replace(*imported),
        "separate_tokenizer.py": tokenizer,
    }


MOST_BYTES = 2**31 - 2**24
"""Bytes of weights in one file: protocol buffers end at two gigabytes."""

_ROWS = re.compile(r"(?P<name>.+)\[(?P<start>\d+):\d+\]")


class OnnxFormat:
    """The `ExportFormat` of ONNX: a folder with two graphs, the tokenizer, and a program that translates by them."""

    precisions = ("float32", "float16", "int8")
    suffix = ""

    def obstacles(self, bundle: Bundle) -> list[str]:
        """Every network can be expressed, up to some size."""
        found, size = source_obstacles(bundle.load_tokenizer(), "translate.py"), bundle.description.files[WEIGHTS].bytes
        if size <= MOST_BYTES:
            return found
        return [*found, f"{size / 2**30:.1f} GB of weights: a file of ONNX holds less than 2 GB"]

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        model, tokenizer = bundle.load_model(), bundle.load_tokenizer()
        (path / ENCODER_FILE).write_bytes(encoder_graph(model, precision))
        (path / DECODER_STEP_FILE).write_bytes(decoder_step_graph(model, precision))
        for name, content in tokenizer.files.items():
            (path / name).write_bytes(content)
        settings = OnnxSettings.of(bundle.description, precision)
        texts = {
            CONFIG_FILE: settings.model_dump_json(indent=2) + "\n",
            "README.md": onnx_card(settings),
            **example_programs(is_joint=tokenizer.is_joint),
        }
        for name, text in texts.items():
            (path / name).write_text(text, encoding="utf-8", newline="\n")

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:  # noqa: ARG002 - the folder has its own
        return OnnxRuntime(path)

    def read_back(self, path: Path) -> Mapping[str, Tensor] | None:
        """Bytes have their scales elsewhere in the graph."""
        if read_settings(path).precision == "int8":
            return None
        parts: dict[str, dict[int, Tensor]] = defaultdict(dict)
        for file in (ENCODER_FILE, DECODER_STEP_FILE):
            for label, tensor in _read_weights(path / file):
                rows = _ROWS.fullmatch(label)
                name, start = (label, 0) if rows is None else (rows["name"], int(rows["start"]))
                if not torch.equal(parts[name].setdefault(start, tensor), tensor):
                    raise BundleError(f"{path}: {label} is not the same in both graphs, and in this model it is one")
        return {name: torch.cat([tensor for _, tensor in sorted(found.items())]) for name, found in parts.items()}


def _read_weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    onnx = import_onnx("reading ONNX graphs")
    for initializer in onnx.load(path).graph.initializer:
        if not initializer.name.startswith(CONSTANT):
            yield initializer.name, torch.from_numpy(onnx.numpy_helper.to_array(initializer).copy())


FORMAT = OnnxFormat()
