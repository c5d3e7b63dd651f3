"""`transduce config`: the settings of a recipe, and the schema of all settings."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.console import print_json
from transduce.config import RunConfig, flatten, load_run_config, to_toml


def show(
    recipe: Path | None = None,
    /,
    *,
    settings: Annotated[list[str] | None, Parameter(name="--set", metavar="KEY=VALUE")] = None,
) -> None:
    """Print the resolved settings of a recipe as TOML; comments name the origins of values that are no defaults.

    Args:
        recipe: a TOML file; without one, the paper's base model is shown.
        settings: change one setting, as in training.updates=2000; may be repeated.
    """
    config, origins = load_run_config(recipe, settings=settings or [], environment=os.environ)
    if config.training.start_from is not None:
        from transduce.bundle import apply_start_from  # noqa: PLC0415 - loads torch, not needed for settings alone

        before, (config, _) = config, apply_start_from(config)
        earlier = flatten(before.model_dump())
        adopted = [key for key, value in flatten(config.model_dump()).items() if value != earlier[key]]
        origins = dict.fromkeys(adopted, "training.start_from") | origins
    print(to_toml(config, origins), end="")


def schema() -> None:
    """Print the JSON Schema of all settings, with which an editor can complete and check a recipe."""
    print_json(RunConfig.model_json_schema())
