"""From a recipe to a `RunConfig`: defaults < preset < file < environment < command line, each checked by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from transduce.config.keys import check_key, environment_settings, flatten, nest, parse
from transduce.config.presets import PRESETS
from transduce.config.problems import describe
from transduce.config.run import RunConfig
from transduce.config.text import TextConfig
from transduce.config.toml import read_toml
from transduce.errors import ConfigError

ALTERNATIVES = [
    [{"data.source", "data.target"}, {"data.pairs"}, {"data.corpora"}],
    [{"data.validation_source", "data.validation_target"}, {"data.validation_pairs"}],
    [{"training.updates"}, {"training.epochs"}],
]
"""Settings one of which is given instead of the others."""


@dataclass
class Layers:
    """Settings laid over each other: the later layer wins, and every value remembers where it came from."""

    values: dict[str, Any] = field(default_factory=dict)
    """Dotted key, as in "training.updates", to value."""

    origins: dict[str, str] = field(default_factory=dict)
    """Dotted key to the name of the layer that gave its value."""

    def lay(self, values: Mapping[str, Any], origin: str) -> None:
        """Put dotted `values` on top; instead of what they are an alternative to, if that is given below.

        Raises:
            ConfigError: a key does not exist; the message names the nearest one that does.
        """
        for key, value in values.items():
            check_key(key, origin)
            for other in _alternatives(key):
                if self.origins.get(other, origin) != origin:
                    del self.values[other], self.origins[other]
            self.values[key] = value
            self.origins[key] = origin

    def resolve(self) -> tuple[RunConfig, dict[str, str]]:
        """Everything given, over the preset it names, over the defaults; and where it came from.

        Raises:
            ConfigError: a value has the wrong type, is out of range or contradicts another.
        """
        preset = self.values.get("preset", "base")
        below = flatten(PRESETS.get(preset, {})) if isinstance(preset, str) else {}
        if self.values.get("training.schedule") == "paper":
            # The paper's schedule has a peak of its own, and TOML has no word to take back the preset's.
            below.pop("training.learning_rate", None)
        for key in self.values:
            for other in _alternatives(key):
                below.pop(other, None)
        if self.values.get("training.start_from") is not None:
            # The network is that of the bundle; what is given beside it is compared with it.
            below = {key: value for key, value in below.items() if not key.startswith("model.")}
        values = below | self.values
        origins = dict.fromkeys(below, f'preset "{preset}"') | self.origins
        decided = _decided_vocabulary(values)
        try:
            config = RunConfig.model_validate(nest(values | decided))
        except ValidationError as error:
            raise ConfigError(describe(error, values, origins)) from None
        if "text.vocabulary" in origins:
            origins = dict.fromkeys(decided, "text.vocabulary") | origins
        return config, origins


def _alternatives(key: str) -> set[str]:
    """The settings that `key` is given instead of."""
    for ways in ALTERNATIVES:
        if any(key in way for way in ways):
            return {other for way in ways if key not in way for other in way}
    return set()


def _decided_vocabulary(values: Mapping[str, Any]) -> dict[str, int]:
    """The size of the network's vocabulary, as soon as that of the tokenizer is settled."""
    size = values.get("text.vocabulary", TextConfig().vocabulary)
    # A size that fits the corpus, or that of a tokenizer made elsewhere, shows later. A bool is an int to Python.
    if type(size) is not int or values.get("text.tokenizer") is not None:
        return {}
    if values.get("model.vocabulary", size) != size:
        raise ConfigError(
            f"model.vocabulary = {values['model.vocabulary']!r} differs from text.vocabulary = {size}: "
            f"leave model.vocabulary out, the tokenizer decides it"
        )
    return {"model.vocabulary": size}


def load_run_config(
    recipe: Path | None,
    *,
    settings: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    automatic: Mapping[str, Any] | None = None,
) -> tuple[RunConfig, dict[str, str]]:
    """The run that a recipe describes, and where each value that is not a default came from.

    Args:
        recipe: a TOML file, or None.
        settings: `key=value` strings, as `--set` gives them; the last word.
        environment: variables, of which `TRANSDUCE_<SECTION>_<KEY>` are taken.
        arguments: dotted settings from the command's own options.
        automatic: dotted settings found out from the corpus; everything else goes over them.

    Raises:
        ConfigError: see `Layers`; also when the file cannot be read or is not TOML.
    """
    layers = Layers()
    layers.lay(automatic or {}, "size of the corpus")
    if recipe is not None:
        layers.lay({"output": f"runs/{recipe.stem}"}, "name of the recipe")
        layers.lay(flatten(read_toml(recipe)), str(recipe))
    for key, name in environment_settings(environment or {}).items():
        layers.lay({key: parse(key, (environment or {})[name])}, f"environment variable {name}")
    layers.lay(arguments or {}, "command line")
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: must be key=value, as in --set training.updates=2000")
        layers.lay({key.strip(): parse(key.strip(), value.strip())}, "--set")
    return layers.resolve()
