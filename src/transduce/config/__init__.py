"""What a run is made of: frozen, validated, documented settings, named presets, and reading and writing TOML."""

from transduce.config.keys import flatten, without_settings
from transduce.config.layers import load_run_config
from transduce.config.presets import PRESETS, Preset
from transduce.config.problems import first_problem
from transduce.config.run import RunConfig
from transduce.config.search import SearchConfig
from transduce.config.settings import Settings, setting_problem
from transduce.config.text import CorpusConfig, DataConfig, TextConfig
from transduce.config.toml import to_toml
from transduce.config.training import TrainingConfig, seconds_of
from transduce.config.transformer import TransformerConfig

__all__ = [
    "PRESETS",
    "CorpusConfig",
    "DataConfig",
    "Preset",
    "RunConfig",
    "SearchConfig",
    "Settings",
    "TextConfig",
    "TrainingConfig",
    "TransformerConfig",
    "first_problem",
    "flatten",
    "load_run_config",
    "seconds_of",
    "setting_problem",
    "to_toml",
    "without_settings",
]
