"""The export of bundles as ONNX graphs, with a program that translates text by them."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from transduce.bundle import Bundle
from transduce.bundle.bundle import WEIGHTS
from transduce.errors import BundleError
from transduce.interop.formats import Runtime, render_card, source_obstacles
from transduce.interop.onnx.graph import CONSTANT, OPSET, import_onnx
from transduce.interop.onnx.network import decoder_step_graph, encoder_graph
from transduce.interop.onnx.runtime import (
    CONFIG_FILE,
    DECODER_STEP_FILE,
    ENCODER_FILE,
    OnnxRuntime,
    OnnxSettings,
    read_settings,
)
from transduce.text import Tokenizer

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
    """The initializers that are weights, or some rows of one, with their names."""
    onnx = import_onnx("reading ONNX graphs")
    for initializer in onnx.load(path).graph.initializer:
        if not initializer.name.startswith(CONSTANT):
            yield initializer.name, torch.from_numpy(onnx.numpy_helper.to_array(initializer).copy())


FORMAT = OnnxFormat()
