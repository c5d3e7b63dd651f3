"""Settings of a run: those that options of `train` and `distill` stand for, and those that fit the text."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from transduce.cli.completion import FileName
from transduce.cli.corpus_options import TextFlags
from transduce.config import load_run_config, parse_duration
from transduce.errors import UserError


def get_text_settings(texts: TextFlags | None, output: FileName | None, time: str | None) -> dict[str, str]:
    """The settings of a run, by dotted names, that these flags give.

    Raises:
        UserError: `time` is not a duration.
    """
    given: dict[str, str] = (texts or TextFlags()).settings
    if output is not None:
        given["output"] = str(output)
    if time is not None:
        given["training.time_limit"] = time
        try:
            parse_duration(time)
        except ValueError as error:
            raise UserError(f"--time: {error}") from None
    return given


def choose_automatic_settings(
    given: Mapping[str, str], settings: Sequence[str], time: str | None, *, restart: bool
) -> dict[str, Any]:
    """The settings that fit the text of a run without a recipe; see `choose_settings_for_run`."""
    from transduce.training import choose_settings_for_run  # noqa: PLC0415 - loads PyTorch; other commands have texts, too

    given = {key: value for key, value in given.items() if not key.startswith("training.")}
    deciding = [setting for setting in settings if setting.lstrip().startswith(DECIDING_SETTINGS)]
    variables = tuple(f"TRANSDUCE_{name.replace('.', '_').upper()}" for name in DECIDING_SETTINGS)
    environment = {name: value for name, value in os.environ.items() if name.startswith(variables)}
    run, origins = load_run_config(None, settings=deciding, environment=environment, arguments=given)
    return choose_settings_for_run(run, run.preset if "preset" in origins else None, time, restart=restart)


DECIDING_SETTINGS = ("data.", "output", "preset", "text.drop_", "text.max_", "training.start_")
"""What the names of the settings begin with from which automatic settings are derived."""
