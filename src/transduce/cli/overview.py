"""`transduce info` and `transduce config`: descriptions of presets, recipes, runs and bundles."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.completion import FileName
from transduce.cli.console import print_json
from transduce.config import RunConfig, flatten, load_run_config, to_toml


def info(subject: FileName, /, *, vocabulary: int | None = None, json: bool = False) -> None:
    """Describe a preset, recipe, run or bundle: parameters, shapes, sizes, settings.

    Args:
        subject: the name of a preset, or the path of a recipe, a run or a bundle.
        vocabulary: number of token ids, for a preset or a recipe.
        json: print one JSON object.
    """
    from transduce.bundle import make_model_overview  # noqa: PLC0415 - loads torch, not needed by `config`

    found = make_model_overview(str(subject), vocabulary)
    if json:
        print_json(found.as_json())
    else:
        print(found.as_text())


def show(
    recipe: Path | None = None,
    /,
    *,
    settings: Annotated[list[str] | None, Parameter(name="--set", metavar="KEY=VALUE")] = None,
) -> None:
    """Print the resolved settings of a recipe as TOML; a comment gives the origin of each value that is not a default.

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
