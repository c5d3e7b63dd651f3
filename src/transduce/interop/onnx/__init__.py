"""Exported ONNX folders: their files, a program that translates text by them, and ONNX Runtime, which runs them."""

import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from torch import Tensor

from transduce import __version__
from transduce.bundle import Bundle, BundleDescription, Languages
from transduce.bundle.bundle import WEIGHTS
from transduce.config import SearchConfig, Settings, TransformerConfig, describe_file_error
from transduce.errors import BundleError, ConfigError, UserError
from transduce.interop.formats import (
    NetworkRuntime,
    Runtime,
    check_foreign_path,
    find_unsupported_sources,
    import_optional,
    render_export_card,
)
from transduce.interop.onnx.network import (
    ATTENTION_SCORES_OF_GRAPHS,
    CONSTANT,
    LAST_IDS,
    LOG_PROBABILITIES,
    OPSET,
    SCALE,
    SOURCE_IDS,
    SOURCE_MASK,
    ZERO,
    build_decoder_step_graph,
    build_encoder_graph,
    list_cache_names,
)
from transduce.interop.tokenizers import SentencePieceCodec
from transduce.model import as_transformer
from transduce.storage import write_files
from transduce.text import Tokenizer
from transduce.translation import NetworkEngine

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
    """The config.json of an export: all settings needed to run the graphs."""

    format: Literal["transduce onnx"] = "transduce onnx"
    """Marks the file."""

    format_version: Literal[1] = 1
    """Version of names, axes and meanings of inputs and outputs."""

    library_version: str = __version__
    """Version of Transduce that exported it."""

    precision: Literal["float32", "float16", "int8"]
    """The precision of the weights."""

    unknown_id: int
    """`<unk>`, for text without a piece."""

    end_id: int
    """`</s>`, the last token of every source and target."""

    pad_id: int
    """`<pad>`: fills the ends of short sources; the last id of a row before its first token."""

    max_positions: int | None = Field(ge=1)
    """Maximum number of tokens of a source or a target, `</s>` included; null: no limit."""

    encoder: GraphNames
    """Reads the source."""

    decoder_step: GraphNames
    """Extends every row by one token."""

    model: TransformerConfig
    """The network."""

    search: SearchConfig
    """The default search settings."""

    languages: Languages
    """Source and target language."""

    @classmethod
    def of(cls, description: BundleDescription, precision: str) -> "OnnxSettings":
        """The settings of a bundle that is exported in `precision`."""
        model = description.model
        memory, past, present = (
            tuple(name for pair in list_cache_names(kind, model.num_decoder_layers) for name in pair)
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
        raise BundleError(f"{path}: cannot be read ({error.strerror}): give an exported folder") from None
    except ValidationError as error:
        raise BundleError(
            f"{path}: {describe_file_error(error)}: give a folder written by transduce export --to onnx"
        ) from None


Arrays = Mapping[str, NDArray[Any]]
"""By the names that they have in the graphs."""


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


def _select_rows(arrays: Arrays, rows: Int[np.ndarray, " chosen"]) -> Arrays:
    return {name: array.take(rows, axis=0) for name, array in arrays.items()}


class OnnxNetwork:
    """Both graphs of an export as `translation.Network`, each on one thread; several threads may call it at a time."""

    def __init__(self, folder: Path) -> None:
        onnxruntime = import_optional("onnxruntime", "running a model in ONNX Runtime")
        self.runtime = f"ONNX Runtime {onnxruntime.__version__}"
        self.settings = read_settings(folder)
        self.max_length = self.settings.max_positions or sys.maxsize
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_mem_pattern = False  # it would cache an allocation pattern for every new length
        self._encoder, self._decoder_step = (
            _open_session(onnxruntime, folder / graph.file, options)
            for graph in (self.settings.encoder, self.settings.decoder_step)
        )

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> _State:
        """Run the encoder, which recognises `<pad>` by itself and needs no mask."""
        del source_mask
        self._check_length(source_ids.size(1))
        outputs = self._encoder.run(None, {SOURCE_IDS: source_ids.numpy()})
        memory = dict(zip(self.settings.encoder.outputs, outputs, strict=True))
        model = self.settings.model
        past = {
            name: np.zeros((len(source_ids), model.num_heads, 0, width), np.float32)
            for pair in list_cache_names("past", model.num_decoder_layers)
            for name, width in zip(pair, (model.d_k, model.d_v), strict=True)
        }
        return _State(memory, past, 1)

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: _State
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], _State]:
        self._check_length(next(iter(state.past.values())).shape[2] + 1)
        inputs = {LAST_IDS: last_ids.flatten().numpy(), **state.memory, **state.past}
        log_probs, *present = self._decoder_step.run(None, inputs)
        past = dict(zip(state.past, present, strict=True))  # both in the order of the layers, keys before values
        return torch.from_numpy(log_probs).view(*last_ids.shape, -1), _State(state.memory, past, last_ids.size(1))

    def _check_length(self, length: int) -> None:
        if length > self.max_length:
            raise UserError(
                f"a sentence reaches position {length}; this model has learned positions up to {self.max_length} "
                f"(model.max_positions): split the sentence, or lower max_pieces"
            )


def _open_session(onnxruntime: Any, path: Path, options: Any) -> Any:  # noqa: ANN401 - of an optional package without types
    if not path.is_file():
        raise BundleError(f"{path}: is missing; give a folder written by transduce export --to onnx")
    check_foreign_path(path, "ONNX Runtime")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common parent
        raise BundleError(f"{path}: ONNX Runtime cannot read it: {error}; use an undamaged copy") from error


def make_engine(network: OnnxNetwork) -> NetworkEngine:
    """Transduce's search with this network: as many concurrent batches as PyTorch has threads, each on one thread."""
    settings = network.settings
    return NetworkEngine(network, settings.end_id, settings.model.vocabulary, max_length=network.max_length)


def load(folder: Path, device: str = "cpu") -> NetworkEngine:
    """Load the export in `folder` as an engine; PyTorch computes nothing of the network.

    Raises:
        ConfigError: the device is not the CPU.
    """
    if device not in {"auto", "cpu"}:
        raise ConfigError(f"device = {device!r}: the engine onnx supports only cpu")
    return make_engine(OnnxNetwork(folder))


class _OnnxRuntime(NetworkRuntime):
    """ONNX Runtime with the export in `folder`; texts become ids, and ids texts, as in the program of the export."""

    def __init__(self, folder: Path) -> None:
        network, tokenizer = OnnxNetwork(folder), Tokenizer.load(folder)
        super().__init__(network.runtime, network, make_engine(network), tokenizer)
        self._codec = SentencePieceCodec(tokenizer)

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        return self._codec.encode(texts)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str] | None:
        return self._codec.decode(ids)


_JOINT_TOKENIZER = """\
TOKENIZER = SentencePieceProcessor(model_file=str(FOLDER / "tokenizer.model"))
encode, decode = TOKENIZER.encode, TOKENIZER.decode
"""


def render_onnx_card(settings: OnnxSettings, tags: Sequence[str] = ()) -> str:
    """The README.md of an exported folder; texts may begin with `tags`."""
    d_k, d_v = settings.model.d_k, settings.model.d_v
    widths = d_k if d_k == d_v else f"{d_k} (keys) or {d_v}"
    return render_export_card(__file__, settings, settings.precision, opset=OPSET, widths=widths, tags=tags)


def render_example_programs(tokenizer: Tokenizer) -> Mapping[str, str]:
    """The programs of an export by name; with two SentencePiece models or tags, `translate.py` imports a second
    module.
    """
    folder = Path(__file__).parent
    translate = (folder / "translate.txt").read_text(encoding="utf-8")
    if tokenizer.is_joint and not tokenizer.tags:
        return {"translate.py": translate}
    module = "tagged_tokenizer" if tokenizer.is_joint else "separate_tokenizer"
    imported = "from sentencepiece import SentencePieceProcessor", f"from {module} import decode, encode"
    return {
        "translate.py": translate.replace(_JOINT_TOKENIZER, "").replace(*imported),
        f"{module}.py": (folder / f"{module}.txt").read_text(encoding="utf-8"),
    }


MAX_BYTES = 2**31 - 2**24
"""Bytes of weights in one file: protocol buffers end at two gigabytes."""

_ROWS = re.compile(r"(?P<name>.+)\[(?P<start>\d+):\d+\]")


class OnnxFormat:
    """The `ExportFormat` of ONNX: a folder with two graphs, the tokenizer, and a program that translates by them."""

    precisions = ("float32", "float16", "int8")
    suffix = ""
    packages = ("onnx", "onnxruntime")

    def find_unsupported_features(self, bundle: Bundle) -> list[str]:
        """Every Transformer with a known attention score can be expressed, unless positions are relative, up to some
        size.
        """
        found, size = (
            find_unsupported_sources(bundle.load_tokenizer(), "translate.py"),
            bundle.description.files[WEIGHTS].bytes,
        )
        config, score = bundle.description.model, bundle.description.model.attention_score
        if config.architecture != "transformer":
            return [*found, f'architecture = "{config.architecture}": there are graphs for a Transformer only']
        if config.positions == "relative":
            found = [*found, 'positions = "relative": the graphs have no vectors for the distances of positions']
        if score not in ATTENTION_SCORES_OF_GRAPHS:
            found = [
                *found,
                f'attention_score = "{score}": the graphs support only {", ".join(ATTENTION_SCORES_OF_GRAPHS)}',
            ]
        if size <= MAX_BYTES:
            return found
        return [*found, f"{size / 2**30:.1f} GB of weights: an ONNX file is limited to 2 GB"]

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        model, tokenizer = as_transformer(bundle.load_model(), "an ONNX graph"), bundle.load_tokenizer()
        settings = OnnxSettings.of(bundle.description, precision)
        files: dict[str, str | bytes] = {
            ENCODER_FILE: build_encoder_graph(model, precision),
            DECODER_STEP_FILE: build_decoder_step_graph(model, precision),
            **tokenizer.files,
            CONFIG_FILE: settings.model_dump_json(indent=2) + "\n",
            "README.md": render_onnx_card(settings, tokenizer.tags),
            **render_example_programs(tokenizer),
        }
        write_files(path, files)

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:  # noqa: ARG002 - the folder has its own
        return _OnnxRuntime(path)

    def read_back(self, path: Path) -> Mapping[str, Tensor] | None:
        """Read the weights of the model in the folder `path` back from its graphs, by their names in a bundle.

        Matrices in bytes are multiplied by their scales.
        """
        parts: dict[str, dict[int, Tensor]] = defaultdict(dict)
        for file in (ENCODER_FILE, DECODER_STEP_FILE):
            for label, tensor in _read_weights(path / file).items():
                rows = _ROWS.fullmatch(label)
                name, start = (label, 0) if rows is None else (rows["name"], int(rows["start"]))
                if not torch.equal(parts[name].setdefault(start, tensor), tensor):
                    raise BundleError(f"{path}: {label} differs between the graphs, but is shared in this model")
        return {name: torch.cat([tensor for _, tensor in sorted(found.items())]) for name, found in parts.items()}


def _read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a graph by their labels there; those of matrices in bytes are multiplied by their scales."""
    onnx = import_optional("onnx", "reading ONNX graphs")
    found = {
        initializer.name: torch.from_numpy(onnx.numpy_helper.to_array(initializer).copy())
        for initializer in onnx.load(path).graph.initializer
        if not initializer.name.startswith(CONSTANT)
    }
    rounded = [label for label, tensor in found.items() if tensor.dtype == torch.uint8]
    scales = {label: found.pop(f"{label}{SCALE}") for label in rounded}
    return found | {label: (found[label].float() - ZERO) * scale[:, None] for label, scale in scales.items()}


FORMAT = OnnxFormat()
