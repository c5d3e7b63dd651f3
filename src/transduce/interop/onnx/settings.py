"""The config.json of an exported ONNX folder: what its graphs do not say themselves."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from transduce import __version__
from transduce.bundle import BundleDescription, Languages
from transduce.config import SearchConfig, Settings, TransformerConfig, first_problem
from transduce.errors import BundleError
from transduce.interop.onnx.network import LAST_IDS, LOG_PROBABILITIES, SOURCE_IDS, SOURCE_MASK, cache_names
from transduce.text import Tokenizer

CONFIG_FILE = "config.json"
ENCODER_FILE = "encoder.onnx"
DECODER_STEP_FILE = "decoder_step.onnx"


class GraphNames(Settings):
    """A graph and what goes into it and comes out."""

    file: str
    """The graph."""

    inputs: tuple[str, ...]
    """Names of all inputs."""

    outputs: tuple[str, ...]
    """Names of all outputs, in their order."""


class OnnxSettings(Settings):
    """Everything that a program needs which runs the graphs."""

    format: Literal["transduce onnx"] = "transduce onnx"
    """Marks the file."""

    format_version: Literal[1] = 1
    """Version of names, axes and meanings of inputs and outputs."""

    library_version: str = __version__
    """The Transduce that exported it."""

    precision: Literal["float32", "float16", "int8"]
    """Of the weights."""

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
    """How it translates unless told otherwise."""

    languages: Languages
    """From which language to which."""

    @classmethod
    def of(cls, description: BundleDescription, precision: str) -> "OnnxSettings":
        """Those of a bundle, exported in `precision`."""
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
    """Those in the config.json of `folder`.

    Raises:
        BundleError: there is no such file, or `transduce export` has not written it.
    """
    path = folder / CONFIG_FILE
    try:
        return OnnxSettings.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}): give a folder that was exported") from None
    except ValidationError as error:
        raise BundleError(
            f"{path}: {first_problem(error)}: give a folder that transduce export --to onnx has written"
        ) from None
