"""TOML: reading a recipe, and writing the resolved copy of a configuration that is saved with a run."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.config.run import RunConfig
from transduce.errors import ConfigError


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file says, not yet checked.

    Raises:
        ConfigError: the file cannot be read, is not UTF-8, or is not TOML; with the line where it stops being so.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; give the path of a recipe (.toml)") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; give the path of a recipe (.toml)") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); a recipe must be a readable file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; a recipe is a TOML file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def to_toml(config: RunConfig, origins: Mapping[str, str] | None = None) -> str:
    """Every setting that has a value, by section; with `origins`, where each came from as a comment.

    Reading the text back gives an equal `RunConfig`.
    """
    top, sections = [], []
    for name, value in config.model_dump().items():
        if isinstance(value, dict):
            lines = [_line(key, inner, f"{name}.{key}", origins) for key, inner in value.items() if inner is not None]
            sections.append("\n".join([f"[{name}]", *lines]))
        else:
            top.append(_line(name, value, name, origins))
    return "\n\n".join(["\n".join(top), *sections]) + "\n"


def _line(name: str, value: Any, key: str, origins: Mapping[str, str] | None) -> str:  # noqa: ANN401 - of any type
    origin = (origins or {}).get(key, "")
    # The name of a file may hold a line end, which would end the comment.
    comment = origin if origin.isprintable() else ascii(origin)
    return f"{name} = {_value(value)}" + (f"  # {comment}" if comment else "")


def _value(value: Any) -> str:  # noqa: ANN401 - a setting may have any type
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items() if inner is not None) + "}"
    if isinstance(value, float):
        return repr(value)
    # JSON's strings, numbers and booleans are TOML's, but for the one control character JSON leaves bare.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
