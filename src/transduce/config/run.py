"""Everything that decides a run, in one value."""

from pydantic import Field, model_validator

from transduce.config.presets import PRESETS
from transduce.config.search import SearchConfig
from transduce.config.settings import Section
from transduce.config.text import DataConfig, TextConfig
from transduce.config.training import TrainingConfig
from transduce.config.transformer import TransformerConfig


class RunConfig(Section):
    """The settings of a recipe and the defaults of all others; a copy is saved with the run."""

    output: str = "runs/unnamed"
    """Folder of the run, relative to the working directory; `runs/` and the recipe's name unless given."""

    preset: str = "base"
    """Named configuration that the sections below start from."""

    data: DataConfig = Field(default_factory=DataConfig)
    """The parallel text."""

    text: TextConfig = Field(default_factory=TextConfig)
    """The tokenizer and the cleaning."""

    model: TransformerConfig = Field(default_factory=TransformerConfig)
    """The network."""

    training: TrainingConfig = Field(default_factory=TrainingConfig)
    """The training."""

    search: SearchConfig = Field(default_factory=SearchConfig)
    """The search for translations, in validation and as the bundle's default."""

    @model_validator(mode="after")
    def _check_preset(self) -> "RunConfig":
        if self.preset not in PRESETS:
            raise ValueError(f'preset = "{self.preset}" must be one of: {", ".join(PRESETS)}')
        return self

    def with_vocabulary(self, vocabulary: int) -> "RunConfig":
        """The run with a network for `vocabulary` token ids, which are known once there is a tokenizer."""
        return self.model_copy(update={"model": self.model.model_copy(update={"vocabulary": vocabulary})})
