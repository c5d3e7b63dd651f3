"""What a Marian model and its decoder.yml say: written, and read where we import."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transduce.bundle import BundleDescription
from transduce.config import TransformerConfig
from transduce.errors import BundleError
from transduce.interop.marian.yaml import Value, read_settings

MODEL_FILE = "model.npz"
NEW_MODEL_FILE = "transformer-new.npz"
DECODER_FILE = "decoder.yml"

NORM_ORDERS = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}
"""By `transformer-preprocess`, `-postprocess` and `-postprocess-top`: d is dropout, a the sum, n the normalisation."""

_NORMS = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")


@dataclass(frozen=True)
class MarianSettings:
    """Settings as Marian names them.

    Args:
        values: by name.
        name: what errors call the place that they are from.
    """

    values: Mapping[str, Value]
    name: str

    @classmethod
    def parsed(cls, text: str, name: str) -> "MarianSettings":
        """Those in `text`.

        Raises:
            BundleError: it is not written as Marian writes it.
        """
        return cls(read_settings(text, name), name)

    def text(self, key: str, default: str = "") -> str:
        """One value.

        Raises:
            BundleError: it is a list.
        """
        value = self.values.get(key, default)
        if isinstance(value, list):
            raise BundleError(f"{self.name}: {key} is a list, must be one value")
        return value

    def texts(self, key: str) -> list[str]:
        """A list; empty where there is none."""
        value = self.values.get(key, [])
        return [value] if isinstance(value, str) else value

    def number(self, key: str) -> int:
        """A whole number.

        Raises:
            BundleError: there is none.
        """
        value = self.text(key)
        if not (value.isascii() and value.isdigit()):
            raise BundleError(f"{self.name}: {key} = {value!r}, must be a whole number")
        return int(value)

    def flag(self, key: str) -> bool:
        """Whether it is set.

        Raises:
            BundleError: it is neither true nor false.
        """
        value = self.text(key, "false")
        if value not in {"true", "false"}:
            raise BundleError(f"{self.name}: {key} = {value!r}, must be true or false")
        return value == "true"

    def norm_order(self) -> str:
        """Ours, "post" or "pre"; empty where the layers are of neither kind."""
        before, after, top = (self.text(name) for name in _NORMS)
        return NORM_ORDERS.get((before, after, top), "")


def model_settings(config: TransformerConfig, num_positions: int) -> str:
    """The settings in a model of the type `transformer`, as YAML."""
    orders = {order: norms for norms, order in NORM_ORDERS.items()}
    return _yaml(
        {
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
    )


def new_model_settings(config: TransformerConfig, num_positions: int) -> str:
    """The settings in a model of the type `transformer-new`, whose table of positions is among its weights."""
    changed = {
        "type": "transformer-new",
        "transformer-train-position-embeddings": True,
        "tied-embeddings": False,
        "tied-embeddings-src": config.tied_embeddings == "three_way",
        "tied-embeddings-all": False,
    }
    lines = model_settings(config, num_positions).splitlines()
    kept = [line for line in lines if line.partition(":")[0] not in changed]
    return "\n".join(kept) + "\n" + _yaml(changed)


def decoder_settings(description: BundleDescription, vocabularies: Sequence[str]) -> str:
    """What decoder.yml says: how Marian translates with the exact model, as far as it has words for our search."""
    search = description.search
    return (
        "# Usage: marian-decoder -c decoder.yml < input > output\n"
        "# More than one sentence at a time gives wrong translations: Marian 1.12 takes the mask of another batch.\n"
        + _yaml(
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


def _yaml(settings: Mapping[str, object]) -> str:
    """Values of JSON are values of YAML; so quoted, "n" is no truth value."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
