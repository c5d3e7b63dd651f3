"""What bundle.json says about a model."""

from typing import Literal

from pydantic import Field, JsonValue

from transduce import __version__
from transduce.bundle.manifest import FolderDescription
from transduce.config import SearchConfig, Settings, TransformerConfig


class Languages(Settings):
    """What the model translates; codes as in "en", empty where nobody said."""

    source: str = ""
    """Language of the text that goes in."""

    target: str = ""
    """Language of the text that comes out."""


class RecordedScore(Settings):
    """A figure of quality, with what is needed to compute it again."""

    metric: str
    """As in "BLEU"."""

    value: float
    """The figure itself."""

    low: float | None = None
    """Lower end of its 95 % confidence interval."""

    high: float | None = None
    """Upper end."""

    signature: str = ""
    """sacreBLEU's signature: tokenisation, smoothing, version."""

    data: str = ""
    """The text that was translated, as in "validation"."""


class BundleDescription(FolderDescription):
    """Everything about a trained model except its weights and its tokenizer."""

    format: Literal["transduce bundle"] = "transduce bundle"
    """Marks the folder as a bundle."""

    format_version: Literal[1] = 1
    """Version of the folder's layout."""

    library_version: str = __version__
    """The Transduce that saved it."""

    model: TransformerConfig
    """The network."""

    search: SearchConfig = Field(default_factory=SearchConfig)
    """How it translates unless told otherwise."""

    languages: Languages = Field(default_factory=Languages)
    """From which language to which."""

    data: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of each text the model was trained or measured with, by name."""

    scores: list[RecordedScore] = Field(default_factory=list)
    """Its figures, measured and not estimated."""

    training: dict[str, JsonValue] = Field(default_factory=dict)
    """How far training had come: update, epoch and what else the run wants to keep."""
