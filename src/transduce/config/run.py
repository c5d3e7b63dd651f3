"""The configuration of a run: read from a recipe (defaults < preset < file < environment < command line), written to
TOML.

Settings are named "section.key", as in "training.updates", wherever they are given.
"""

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from transduce.config.model import SearchConfig, TransformerConfig
from transduce.config.presets import PRESETS
from transduce.config.settings import Section, Settings
from transduce.config.text import DataConfig, TextConfig
from transduce.config.training import TrainingConfig
from transduce.errors import ConfigError


class RunConfig(Section):
    """The settings of a recipe and the defaults of all others; a copy is saved with the run."""

    output: str = "runs/unnamed"
    """Folder of the run, relative to the working directory. Default: `runs/` and the recipe's name."""

    preset: str = "base"
    """Named configuration that the sections below start from."""

    data: DataConfig = Field(default_factory=DataConfig)
    """The parallel text."""

    text: TextConfig = Field(default_factory=TextConfig)
    """The tokenizer and the cleaning."""

    model: TransformerConfig = Field(default_factory=TransformerConfig)
    """The network."""

    training: TrainingConfig = Field(default_factory=TrainingConfig)
    """The training."""

    search: SearchConfig = Field(default_factory=SearchConfig)
    """The search for translations, in validation and as the bundle's default."""

    @model_validator(mode="after")
    def _check_preset_and_network(self) -> "RunConfig":
        if self.preset not in PRESETS:
            raise ValueError(f'preset = "{self.preset}" must be one of: {", ".join(PRESETS)}')
        if self.training.guided_alignment and self.model.architecture != "transformer":
            raise ValueError(
                f"training.guided_alignment = {self.training.guided_alignment} guides a head of a Transformer, and "
                f'model.architecture = "{self.model.architecture}" has none: set it to 0'
            )
        if self.training.optimizer == "muon" and self.model.architecture == "convs2s":
            raise ValueError(
                'training.optimizer = "muon" needs matrices that are not normalised, and model.architecture = '
                '"convs2s" has none: set training.optimizer to "adam"'
            )
        if self.training.r_drop and not self.model.dropout:
            raise ValueError(
                f"training.r_drop = {self.training.r_drop} has no effect with model.dropout = 0, as both passes over a "
                "batch predict the same: raise dropout, or set r_drop to 0"
            )
        return self

    @property
    def cache_folder(self) -> Path:
        """Folder of the prepared data: that of `data.cache`, or `.cache` beside the run."""
        return Path(self.data.cache) if self.data.cache else Path(self.output).parent / ".cache"

    def with_vocabulary(self, vocabulary: int) -> "RunConfig":
        """The configuration with a network for `vocabulary` token ids, once the size of the tokenizer is known."""
        return self.model_copy(update={"model": self.model.model_copy(update={"vocabulary": vocabulary})})

    def with_training(self, **changes: object) -> "RunConfig":
        """The configuration with other settings of training, which are not checked: `updates=100`, for instance."""
        return self.model_copy(update={"training": self.training.model_copy(update=changes)})


ENVIRONMENT_PREFIX = "TRANSDUCE_"
NON_SETTING_VARIABLES = ("TRANSDUCE_TRACEBACK", "TRANSDUCE_KERNELS")
"""Variables with the prefix that are not settings of a run: see `cli.app` and `kernels.native.library`."""


@cache
def list_setting_keys() -> dict[str, Any]:
    """Every setting by dotted key, with its type."""
    keys: dict[str, Any] = {}
    for name, info in RunConfig.model_fields.items():
        if name in list_sections():
            keys |= {f"{name}.{key}": inner.annotation for key, inner in list_sections()[name].model_fields.items()}
        else:
            keys[name] = info.annotation
    return keys


@cache
def list_sections() -> dict[str, type[Settings]]:
    """The tables of a recipe, by name."""
    annotations = {name: info.annotation for name, info in RunConfig.model_fields.items()}
    return {name: kind for name, kind in annotations.items() if isinstance(kind, type) and issubclass(kind, Settings)}


def check_key(key: str, origin: str) -> None:
    """Raise `ConfigError` unless a setting `key` exists; it names the nearest one that does."""
    if key in list_setting_keys():
        return
    if key in list_sections():
        example = list(list_sections()[key].model_fields)[-1]
        raise ConfigError(f"{origin}: {key!r} is a section; give one of its settings, as in {key}.{example}")
    raise ConfigError(f"{origin}: unknown setting {key!r}; {_suggest_setting(key)}")


def _suggest_setting(key: str) -> str:
    section, _, name = key.rpartition(".")
    names = {known: known.rpartition(".")[2] for known in list_setting_keys()}
    own = {known: last for known, last in names.items() if section and known.startswith(f"{section}.")}
    same = {known: last for known, last in names.items() if last == name}  # a setting of another section
    for among in (same, own, names):
        if near := difflib.get_close_matches(name, among.values(), n=1, cutoff=0.6):
            return f"did you mean {next(known for known, last in among.items() if last == near[0])!r}?"
    return f"[{section}] has {', '.join(own.values())}" if own else "`transduce config schema` lists all of them"


def read_environment_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables in `environment` that are settings, by dotted key, in order of their names.

    Raises:
        ConfigError: a variable with the prefix names no setting.
    """
    by_name = {ENVIRONMENT_PREFIX + key.replace(".", "_").upper(): key for key in list_setting_keys()}
    settings = {}
    for name in sorted(filter(_is_setting, environment)):
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, n=1, cutoff=0.7)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"environment variable {name}: unknown setting{hint}")
        settings[by_name[name]] = name
    return settings


def remove_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """A copy of `environment` without settings, for a process whose settings are all in its recipe."""
    return {name: value for name, value in environment.items() if not _is_setting(name)}


def _is_setting(variable: str) -> bool:
    return variable.startswith(ENVIRONMENT_PREFIX) and variable not in NON_SETTING_VARIABLES


def parse_value(key: str, text: str) -> Any:  # noqa: ANN401 - a setting may have any type
    """The value of `text` for the setting `key`, as TOML; unquoted strings are accepted."""
    if list_setting_keys().get(key) in (str, str | None):
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # not TOML, a number of thousands of digits, or thousands of brackets
        return text
    return found["value"] if len(found) == 1 else text  # a second line would be parsed as another setting and dropped


def flatten(nested: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted settings of a recipe's sections; values that are tables themselves stay as they are."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        is_section = isinstance(value, Mapping) and name not in list_setting_keys()
        if is_section and (value or name in list_sections()):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The opposite of `flatten`."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        section, dot, name = key.partition(".")
        if dot:
            nested.setdefault(section, {})[name] = value
        else:
            nested[key] = value
    return nested


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file without checking its settings.

    Raises:
        ConfigError: the file cannot be read, is not UTF-8, or is not TOML; names the line of the syntax error.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        hint = f"; if it is a setting, give it as --set {path}" if "=" in path.name else ""
        raise ConfigError(f"{path}: there is no such file; give the path of a recipe (.toml){hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; give the path of a recipe (.toml)") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); a recipe must be a readable file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; a recipe is a TOML file in UTF-8") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, or a number that is too long for Python
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def to_toml(config: RunConfig, origins: Mapping[str, str] | None = None) -> str:
    """Write every setting that has a value, by section; with `origins`, a comment says where each came from.

    Reading the text back gives an equal `RunConfig`.
    """
    top, sections = [], []
    for name, value in config.model_dump().items():
        if isinstance(value, dict):
            lines = [
                _format_line(key, inner, f"{name}.{key}", origins) for key, inner in value.items() if inner is not None
            ]
            sections.append("\n".join([f"[{name}]", *lines]))
        else:
            top.append(_format_line(name, value, name, origins))
    return "\n\n".join(["\n".join(top), *sections]) + "\n"


def _format_line(name: str, value: Any, key: str, origins: Mapping[str, str] | None) -> str:  # noqa: ANN401 - of any type
    origin = (origins or {}).get(key, "")
    # The name of a file may contain a line end, which would end the comment.
    comment = origin if origin.isprintable() else ascii(origin)
    return f"{name} = {_format_value(value)}" + (f"  # {comment}" if comment else "")


def _format_value(value: Any) -> str:  # noqa: ANN401 - a setting may have any type
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_format_value(item) for item in value) + "]"
    if isinstance(value, dict):
        items = [f"{key} = {_format_value(inner)}" for key, inner in value.items() if inner is not None]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, float):
        return repr(value)
    # Strings, numbers and booleans are the same in JSON and TOML, except for one control character that JSON does not
    # escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


LIST_RULES = {
    "missing": "a list with more items",
    "too_long": "a list with fewer items",
    "tuple_type": "a list",
    "model_type": "a table",
    "extra_forbidden": "left out: unknown setting",
}
"""The requirement on a list and its items, by pydantic's name of the error."""


def describe_errors(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """One line for each of the `values` that is not allowed, and for each contradiction between values.

    Defaults have no origin and get no line: they are invalid only because of another value.
    """
    contradictions, rules = [], dict[str, list[str]]()
    for problem in error.errors(include_url=False):
        key = _key(problem["loc"])
        if problem["type"] == "value_error":
            rule = problem["msg"].removeprefix("Value error, ")
            place = key + "".join(f", number {index + 1}" for index in problem["loc"][2:] if isinstance(index, int))
            contradictions.append(f"{place}: {rule}" if place else rule)
        elif key in origins:
            rule = LIST_RULES.get(problem["type"], problem["msg"].removeprefix("Input should be "))
            found = _describe_value_found(problem["loc"], key, values[key])
            rules.setdefault(f"{origins[key]}: {found}", []).append(rule)
    lines = [f"{found}: must be {' or '.join(dict.fromkeys(alternatives))}" for found, alternatives in rules.items()]
    problems = [*lines, *contradictions]
    more = [f"and {len(problems) - _MAX_PROBLEMS} more"] if len(problems) > _MAX_PROBLEMS else []
    return "\n".join([*problems[:_MAX_PROBLEMS], *more])


_MAX_PROBLEMS = 20
"""Lines of a message: hundreds of corpora may all have the same problem."""


def _key(location: tuple[int | str, ...]) -> str:
    """The setting or section; the rest of `location` is an item of a list or one of several allowed types."""
    key = ".".join(map(str, location[:2]))
    return key if key in list_setting_keys() else ".".join(map(str, location[:1]))


def _describe_value_found(location: tuple[int | str, ...], key: str, value: Any) -> str:  # noqa: ANN401 - a setting may have any type
    """The setting and its value; for a table in a list, as of `data.corpora`, the key in the table and its value."""
    match location[2:]:
        case [int(index), str(name), *_]:
            return f"{key}, number {index + 1}: {name} = {value[index][name]!r}"
        case _:
            return f"{key} = {value!r}"


ALTERNATIVES = [
    [{"data.source", "data.target"}, {"data.pairs"}, {"data.corpora"}],
    [{"data.validation_source", "data.validation_target"}, {"data.validation_pairs"}],
    [{"training.updates"}, {"training.epochs"}],
]
"""Groups of settings that exclude each other."""

ORIGIN_CORPUS_SIZE = "size of the corpus"
"""Origin of the settings that were chosen by the size of the corpus."""


def _find_exclusive_settings(key: str) -> set[str]:
    """The settings that `key` replaces if it is given later: those that exclude it, and the columns of pairs."""
    for ways in ALTERNATIVES:
        if any(key in way for way in ways):
            replaced = {other for way in ways if key not in way for other in way}
            return replaced | {other.replace("pairs", "columns") for other in replaced if other.endswith("pairs")}
    return set()


def _decided_vocabulary(values: Mapping[str, Any]) -> dict[str, int]:
    """The size of the network's vocabulary, if that of the tokenizer is known."""
    size = values.get("text.vocabulary", TextConfig().vocabulary)
    # The size of a fitted or imported tokenizer is known only later. In Python, a bool is an int.
    if type(size) is not int or values.get("text.tokenizer") is not None:
        return {}
    if values.get("model.vocabulary", size) != size:
        raise ConfigError(
            f"model.vocabulary = {values['model.vocabulary']!r} differs from text.vocabulary = {size}: "
            f"leave model.vocabulary out; the tokenizer determines it"
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
    """The run that a recipe describes, and the origin of each value that is not a default.

    Args:
        recipe: a TOML file, or None.
        settings: `key=value` strings, as `--set` gives them; they override everything else.
        environment: variables, of which `TRANSDUCE_<SECTION>_<KEY>` are settings.
        arguments: dotted settings from the command's own options.
        automatic: dotted settings chosen by the size of the corpus; everything else overrides them.

    Raises:
        ConfigError: a setting does not exist, or its value is not allowed; or the file cannot be read or is not TOML.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    layers: dict[str, str] = {}

    def add(added: Mapping[str, Any], origin: str, layer: str | None = None) -> None:
        """Override the settings of earlier layers, and remove those that these exclude."""
        layer = layer or origin
        for key, value in added.items():
            check_key(key, origin)
            for other in _find_exclusive_settings(key):
                if layers.get(other, layer) != layer:
                    del values[other], origins[other], layers[other]
            values[key], origins[key], layers[key] = value, origin, layer

    add(automatic or {}, ORIGIN_CORPUS_SIZE)
    if recipe is not None:
        add({"output": f"runs/{recipe.stem}"}, "name of the recipe")
        add(flatten(read_toml(recipe)), str(recipe))
    for key, name in read_environment_settings(environment or {}).items():
        add({key: parse_value(key, (environment or {})[name])}, f"environment variable {name}", "environment")
    add(arguments or {}, "command line")
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: must be key=value, as in --set training.updates=2000")
        add({key.strip(): parse_value(key.strip(), value.strip())}, "--set")
    return _resolve(values, origins)


def load_resolved_config(path: Path) -> RunConfig:
    """The run described by a file written by `to_toml`; settings that it does not contain have their defaults.

    Such a file contains all settings of its preset at the time of writing. The current preset is not applied: settings
    that a later version has added to it do not belong to that run.

    Raises:
        ConfigError: a setting does not exist, or its value is not allowed; or the file cannot be read or is not TOML.
    """
    return _validate_resolved(read_toml(path), str(path))


def parse_resolved_config(text: str) -> RunConfig:
    """The run described by a text that `to_toml` made, perhaps on another machine; as `load_resolved_config`."""
    return _validate_resolved(tomllib.loads(text), "the settings of the first rank")


def _validate_resolved(document: dict[str, Any], origin: str) -> RunConfig:
    values = flatten(document)
    for key in values:
        check_key(key, origin)
    try:
        return RunConfig.model_validate(unflatten(values))
    except ValidationError as error:
        raise ConfigError(describe_errors(error, values, dict.fromkeys(values, origin))) from None


def _resolve(given: dict[str, Any], origins: dict[str, str]) -> tuple[RunConfig, dict[str, str]]:
    """The run with these settings over the preset that they name, over the defaults; and the origins of its values."""
    preset = given.get("preset", "base")
    below = flatten(PRESETS.get(preset, {})) if isinstance(preset, str) else {}
    if given.get("training.schedule") == "paper":
        # The paper's schedule computes its own peak, and TOML cannot unset the preset's.
        below.pop("training.learning_rate", None)
    if given.get("model.architecture", "transformer") != "transformer":
        below.pop("training.guided_alignment", None)
    for key in given:
        for other in _find_exclusive_settings(key):
            below.pop(other, None)
    if given.get("training.start_from") is not None:
        # The network is that of the bundle; settings given in addition are compared with it.
        below = {key: value for key, value in below.items() if not key.startswith("model.")}
        fitted = {key for key in given if key.startswith("model.") and origins[key] == ORIGIN_CORPUS_SIZE}
        given = {key: value for key, value in given.items() if key not in fitted}
    values = below | given
    origins = dict.fromkeys(below, f'preset "{preset}"') | origins
    decided = _decided_vocabulary(values)
    try:
        config = RunConfig.model_validate(unflatten(values | decided))
    except ValidationError as error:
        raise ConfigError(describe_errors(error, values, origins)) from None
    if "text.vocabulary" in origins:
        origins = dict.fromkeys(decided, "text.vocabulary") | origins
    return config, origins
