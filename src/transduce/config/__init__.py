"""The configuration of a run: frozen, validated, documented settings, named presets, and reading and writing TOML."""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.config.model import SearchConfig, TransformerConfig
    from transduce.config.presets import PRESETS, Preset
    from transduce.config.run import (
        RunConfig,
        flatten,
        load_resolved_config,
        load_run_config,
        parse_resolved_config,
        remove_settings,
        to_toml,
        unflatten,
    )
    from transduce.config.settings import Record, Settings, describe_file_error, describe_setting_error
    from transduce.config.text import TAG_PATTERN, CorpusConfig, DataConfig, FilterName, TextConfig
    from transduce.config.training import SCHEDULES_BY_LENGTH, UNLIMITED_UPDATES, TrainingConfig, parse_duration
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.config.model": "SearchConfig TransformerConfig",
            "transduce.config.presets": "PRESETS Preset",
            "transduce.config.run": (
                "RunConfig flatten load_resolved_config load_run_config parse_resolved_config remove_settings to_toml "
                "unflatten"
            ),
            "transduce.config.settings": "Record Settings describe_file_error describe_setting_error",
            "transduce.config.text": "CorpusConfig DataConfig FilterName TAG_PATTERN TextConfig",
            "transduce.config.training": "SCHEDULES_BY_LENGTH TrainingConfig UNLIMITED_UPDATES parse_duration",
        },
    )

__all__ = [
    "PRESETS",
    "SCHEDULES_BY_LENGTH",
    "TAG_PATTERN",
    "UNLIMITED_UPDATES",
    "CorpusConfig",
    "DataConfig",
    "FilterName",
    "Preset",
    "Record",
    "RunConfig",
    "SearchConfig",
    "Settings",
    "TextConfig",
    "TrainingConfig",
    "TransformerConfig",
    "describe_file_error",
    "describe_setting_error",
    "flatten",
    "load_resolved_config",
    "load_run_config",
    "parse_duration",
    "parse_resolved_config",
    "remove_settings",
    "to_toml",
    "unflatten",
]
