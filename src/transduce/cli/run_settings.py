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

    return choose_settings_for_run(_locate_run(given, settings), time, restart=restart)


def _locate_run(given: Mapping[str, str], settings: Sequence[str]) -> dict[str, object]:
    """The folder, text, starting model and preset of the run, as given, from which automatic settings are derived."""
    known = ("TRANSDUCE_DATA_", "TRANSDUCE_OUTPUT", "TRANSDUCE_TRAINING_START_FROM", "TRANSDUCE_PRESET")
    environment = {name: value for name, value in os.environ.items() if name.startswith(known)}
    given = {key: value for key, value in given.items() if not key.startswith("training.")}
    own = ("data.", "output", "training.start_from", "preset")
    located = [setting for setting in settings if setting.lstrip().startswith(own)]
    config, origins = load_run_config(None, settings=located, environment=environment, arguments=given)
    run: dict[str, object] = {"output": config.output, "training.start_from": config.training.start_from}
    if "preset" in origins:
        run["preset"] = config.preset
    return run | {f"data.{key}": value for key, value in config.data}
