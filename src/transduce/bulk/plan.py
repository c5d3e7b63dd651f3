"""The plan of a bulk translation: what decides its output, recorded so that no other command goes on with it."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.bulk.block_translator import BlockTranslatorSettings
from transduce.bulk.inputs import InputFile
from transduce.errors import OutputError

_VERSION = 1


def make_plan(
    settings: BlockTranslatorSettings,
    digest: str,
    files: Sequence[InputFile],
    *,
    column: str | None,
    translation_column: str,
    block_lines: int,
) -> dict[str, Any]:
    """The plan: everything that decides the output, by names that a user knows.

    Block k of a file has its lines from `block_lines` · k on, so that blocks need not be listed.
    """
    from transduce import __version__  # noqa: PLC0415 - slow to find

    return {
        "format": _VERSION,
        "version of Transduce": __version__,
        "model": digest,
        "engine": settings.engine,
        "precision": settings.precision,
        "device": settings.device,
        "max_pieces": settings.max_pieces,
        "json": settings.json,
        "json_input": settings.json_input,
        "column": column,
        "translation_column": translation_column,
        "block_lines": block_lines,
        "options": settings.options.model_dump(mode="json"),
        "input": {file.name: [file.path, file.size, file.version] for file in files},
    }


def write_plan(plan: Mapping[str, Any]) -> bytes:
    """The plan as JSON; bytes of file names that are not UTF-8 become escapes of JSON."""
    return (json.dumps(plan, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")


def check_plan(before: bytes, now: bytes, folder: Path | str, work: Path | str, begun: Collection[int]) -> bool:
    """Whether an output folder has the plan of this translation; False if it has another one that may be replaced.

    Another plan may be replaced if nothing was translated by it yet, or if the two plans differ only in files of which
    nothing was translated yet.

    Args:
        before: the plan that the folder has.
        now: the plan of this translation.
        folder: the output folder or its URL, for the message.
        work: where the plan is, for the message.
        begun: numbers of the input files of which anything was translated by the plan that the folder has.

    Raises:
        OutputError: it has the translation of another plan, or the file is no plan.
    """
    old, new = _read_plan(before, work), json.loads(now)
    if not find_differences(old, new):
        return True
    if not begun:
        return False
    changed = {
        name: number
        for number, name in enumerate(old["input"])
        if name in new["input"] and new["input"][name] != old["input"][name]
    }
    others = find_differences({**old, "input": old["input"] | {name: new["input"][name] for name in changed}}, new)
    if others:
        raise OutputError(
            f"{folder}: has the translation of another command: {'; '.join(others)}. Give that command to go on with "
            f"it, or another output folder, or remove {work} and what was translated"
        )
    for name, number in changed.items():
        if number in begun:
            raise OutputError(
                f"{folder}: has the translation of {name}, or of its beginning, and {name} has changed since: to "
                f"translate it again, remove {work}/{number:06} and, if it is complete, its translation; or give "
                "another output folder"
            )
    return False


def _read_plan(content: bytes, work: Path | str) -> dict[str, Any]:
    try:
        found = json.loads(content)
        if isinstance(found, dict) and "input" in found and isinstance(found["input"], dict):
            return found
    except (ValueError, RecursionError):
        pass
    raise OutputError(f"{work}: has no plan of a translation: remove it, or give another output folder")


def find_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences between two plans, each as a phrase."""
    return [*_compare_values(before, now), *_compare_inputs(before["input"], now["input"])]


def _compare_values(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    old, new = ({**plan, **_as_mapping(plan.get("options"))} for plan in (before, now))
    for name in dict.fromkeys([*old, *new]):
        if name in {"options", "input"} or old.get(name) == new.get(name):
            continue
        if name == "model":
            yield "the model is another"
        else:
            yield f"{name} was {_shorten(old.get(name))} and is {_shorten(new.get(name))}"


def _compare_inputs(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for verb, names in (
        ("is no longer among the input", [name for name in before if name not in now]),
        ("is new among the input", [name for name in now if name not in before]),
        ("has changed", [name for name in now if name in before and before[name] != now[name]]),
    ):
        if names:
            more = f" (and {len(names) - 1:,} more)" if len(names) > 1 else ""
            yield f"{names[0]}{more} {verb}"


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _shorten(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"
