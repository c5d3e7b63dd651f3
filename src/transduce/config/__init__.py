"""What a run is made of: frozen, validated, documented settings, named presets, and reading and writing TOML."""

from transduce.config.model import SearchConfig, TransformerConfig
from transduce.config.presets import PRESETS, Preset
from transduce.config.run import RunConfig, first_problem, flatten, load_run_config, remove_settings, to_toml
from transduce.config.settings import Settings, setting_problem
from transduce.config.text import CorpusConfig, DataConfig, TextConfig
from transduce.config.training import SCHEDULES_BY_LENGTH, UNLIMITED_UPDATES, TrainingConfig, parse_duration

__all__ = [
    "PRESETS",
    "SCHEDULES_BY_LENGTH",
    "UNLIMITED_UPDATES",
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
    "parse_duration",
    "remove_settings",
    "setting_problem",
    "to_toml",
]
