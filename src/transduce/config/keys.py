"""The names of settings, "section.key" as in "training.updates", wherever they are given."""

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from transduce.config.run import RunConfig
from transduce.config.settings import Settings
from transduce.errors import ConfigError

ENVIRONMENT_PREFIX = "TRANSDUCE_"
TRACEBACK = "TRANSDUCE_TRACEBACK"
"""Not a setting: it turns on tracebacks."""


@cache
def known_keys() -> dict[str, Any]:
    """Every setting by dotted key, with its type."""
    keys: dict[str, Any] = {}
    for name, info in RunConfig.model_fields.items():
        if name in sections():
            keys |= {f"{name}.{key}": inner.annotation for key, inner in sections()[name].model_fields.items()}
        else:
            keys[name] = info.annotation
    return keys


@cache
def sections() -> dict[str, type[Settings]]:
    """The tables of a recipe, by name."""
    annotations = {name: info.annotation for name, info in RunConfig.model_fields.items()}
    return {name: kind for name, kind in annotations.items() if isinstance(kind, type) and issubclass(kind, Settings)}


def check_key(key: str, origin: str) -> None:
    """Check that a setting `key` exists.

    Raises:
        ConfigError: it does not; names the nearest one that does.
    """
    if key in known_keys():
        return
    if key in sections():
        example = list(sections()[key].model_fields)[-1]
        raise ConfigError(f"{origin}: {key!r} is a section; give a setting of it, as in {key}.{example}")
    raise ConfigError(f"{origin}: there is no setting {key!r}; {_hint(key)}")


def _hint(key: str) -> str:
    """The setting that may have been meant by `key`."""
    section, _, name = key.rpartition(".")
    names = {known: known.rpartition(".")[2] for known in known_keys()}
    own = {known: last for known, last in names.items() if section and known.startswith(f"{section}.")}
    same = {known: last for known, last in names.items() if last == name}  # a setting of another section
    for among in (same, own, names):
        if near := difflib.get_close_matches(name, among.values(), n=1, cutoff=0.6):
            return f"did you mean {next(known for known, last in among.items() if last == near[0])!r}?"
    return f"[{section}] has {', '.join(own.values())}" if own else "`transduce config schema` lists all of them"


def environment_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables in `environment` that are settings, by dotted key, in order of their names.

    Raises:
        ConfigError: a variable with the prefix names no setting.
    """
    by_name = {ENVIRONMENT_PREFIX + key.replace(".", "_").upper(): key for key in known_keys()}
    settings = {}
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT_PREFIX) or name == TRACEBACK:
            continue
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, n=1, cutoff=0.7)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"environment variable {name}: there is no such setting{hint}")
        settings[by_name[name]] = name
    return settings


def remove_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """A copy of `environment` without settings, for a process whose settings are all in its recipe."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(ENVIRONMENT_PREFIX) or name == TRACEBACK
    }


def parse_value(key: str, text: str) -> Any:  # noqa: ANN401 - a setting may have any type
    """The value of `text` for the setting `key`: TOML, but words need no quotes."""
    if known_keys().get(key) in (str, str | None):
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if len(found) == 1 else text  # a second line would be another setting, and be lost


def flatten(nested: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted settings of a recipe's sections; values that are tables themselves stay as they are."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        is_section = isinstance(value, Mapping) and name not in known_keys()
        if is_section and (value or name in sections()):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The opposite of `flatten`."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        section, dot, name = key.partition(".")
        if dot:
            nested.setdefault(section, {})[name] = value
        else:
            nested[key] = value
    return nested
