"""What an exported ONNX folder holds for people: how it is used, and programs that use it."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from transduce.bundle import Bundle
from transduce.bundle.bundle import WEIGHTS
from transduce.errors import BundleError
from transduce.interop.formats import Runtime, source_obstacles
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

_CARD = """\
# Translation model for ONNX Runtime{languages}

Exported by Transduce {version}, weights in {precision}. `parity.json` says how far ONNX Runtime was found to compute
the same as the original.

```
pip install onnxruntime numpy sentencepiece
python translate.py < source.txt > translation.txt
```

`translate.py` needs nothing but this folder, and is short: begin with it to write a program of your own. It translates
a sentence a line; `python translate.py 4` keeps four hypotheses instead of one. The model was made for sentences of at
most {max_pieces} pieces: divide longer ones before.

## The graphs

Opset {opset}. Ids are int64, masks bool, all else float32. `config.json` has the ids of `<unk>`, `</s>` and `<pad>`,
the names of all inputs and outputs, and the shape of the model. N is a layer of the decoder, from 0 to {last_layer}.

| `encoder.onnx`, once for a source | axes |
|---|---|
| in: `source_ids`, each source ending with `</s>` and filled up with `<pad>` | sentences, source |
| out: `source_mask`, true at real tokens | sentences, source |
| out: `memory_keys_N`, `memory_values_N` | sentences, {num_heads}, source, {widths} |

| `decoder_step.onnx`, once for a token of the targets | axes |
|---|---|
| in: `last_ids`, the last token of each target so far, at first `<pad>` | rows |
| in: all that the encoder gives | |
| in: `past_keys_N`, `past_values_N`, at first of 0 positions | rows, {num_heads}, past, {widths} |
| out: `log_probabilities` of the next token, natural; of `<pad>`, -inf | rows, {vocabulary} |
| out: `present_keys_N`, `present_values_N`: the past of the next step | rows, {num_heads}, past + 1, {widths} |

Rows are the hypotheses of one sentence after the other: one for each sentence, or several, equally many for all.
{limit}{precision_note}
"""

_NO_LIMIT = "Lengths have no limit."
_LIMIT = "No source and no target may have more than {} tokens, `</s>` included."

_PRECISION_NOTES = {
    "float32": "",
    "float16": "\nMatrices are kept in 16 bits; everything is computed in float32.\n",
    "int8": (
        "\nMatrices are kept in 8 bits, and what they are multiplied with is rounded to 8 bits, too, by the largest "
        "number\nof the batch: a translation depends, a little, on what is translated together with it.\n"
    ),
}

_JOINT_TOKENIZER = """\
TOKENIZER = SentencePieceProcessor(model_file=str(FOLDER / "tokenizer.model"))
encode, decode = TOKENIZER.encode, TOKENIZER.decode
"""


def onnx_card(settings: OnnxSettings) -> str:
    """The README.md."""
    model, languages = settings.model, settings.languages
    limit = settings.max_positions
    card = _CARD.format(
        languages=f", from {languages.source} to {languages.target}" if languages.source and languages.target else "",
        version=settings.library_version,
        precision=settings.precision,
        max_pieces=settings.search.max_pieces,
        opset=OPSET,
        last_layer=model.num_decoder_layers - 1,
        num_heads=model.num_heads,
        widths=model.d_k if model.d_k == model.d_v else f"{model.d_k} (keys) or {model.d_v}",
        vocabulary=model.vocabulary,
        limit=_NO_LIMIT if limit is None else _LIMIT.format(limit),
        precision_note=_PRECISION_NOTES[settings.precision],
    )
    return card.rstrip() + "\n"


def example_programs(*, is_joint: bool) -> Mapping[str, str]:
    """By name: `translate.py`, and the module it imports where source and target have a SentencePiece model each."""
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
"""Of weights in one file: protocol buffers end at two gigabytes."""

_ROWS = re.compile(r"(?P<name>.+)\[(?P<start>\d+):\d+\]")


class OnnxFormat:
    """See `ExportFormat`: a folder with two graphs, the tokenizer, and a program that translates by them."""

    precisions = ("float32", "float16", "int8")
    suffix = ""

    def obstacles(self, bundle: Bundle) -> list[str]:
        """See `ExportFormat`. Every network can be expressed, up to some size."""
        found, size = source_obstacles(bundle.load_tokenizer(), "translate.py"), bundle.description.files[WEIGHTS].bytes
        if size <= MOST_BYTES:
            return found
        return [*found, f"{size / 2**30:.1f} GB of weights: a file of ONNX holds less than 2 GB"]

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        """See `ExportFormat`."""
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
        """See `ExportFormat`."""
        return OnnxRuntime(path)

    def read_back(self, path: Path) -> Mapping[str, Tensor] | None:
        """See `ExportFormat`. Bytes have their scales elsewhere in the graph.

        Raises:
            BundleError: the graphs have different values for the same weight.
        """
        if read_settings(path).precision == "int8":
            return None
        parts: dict[str, dict[int, Tensor]] = defaultdict(dict)
        for file in (ENCODER_FILE, DECODER_STEP_FILE):
            for label, tensor in _weights(path / file):
                rows = _ROWS.fullmatch(label)
                name, start = (label, 0) if rows is None else (rows["name"], int(rows["start"]))
                if not torch.equal(parts[name].setdefault(start, tensor), tensor):
                    raise BundleError(f"{path}: {label} is not the same in both graphs, and in this model it is one")
        return {name: torch.cat([tensor for _, tensor in sorted(found.items())]) for name, found in parts.items()}


def _weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    """The initializers that are weights, or some rows of one, by name."""
    onnx = import_onnx("reading ONNX graphs")
    for initializer in onnx.load(path).graph.initializer:
        if not initializer.name.startswith(CONSTANT):
            yield initializer.name, torch.from_numpy(onnx.numpy_helper.to_array(initializer).copy())


FORMAT = OnnxFormat()
