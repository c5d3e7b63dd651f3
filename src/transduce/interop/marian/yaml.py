"""The YAML that Marian writes: settings, and vocabularies of one piece a line.

It is a small part of YAML, read strictly and without any guessing: a value is the text that stands there, so that
`no` is a language and no truth value.
"""

import re
from collections.abc import Iterator

from transduce.errors import BundleError

Value = str | list[str]

_ENTRY = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s'"\[{#&*!|>%@`][^:]*?)\s*:(?:\s+(.*))?""")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    " ": " ",
    '"': '"',
    "/": "/",
    "\\": "\\",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}


def read_settings(text: str, name: str) -> dict[str, Value]:
    """Names, each with a value or a list of values.

    Args:
        text: what was in the file.
        name: what errors call it.

    Raises:
        BundleError: there is anything else; names the line.
    """
    found: dict[str, Value] = {}
    last: Value = ""
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.rstrip()
        content = line.lstrip()
        place = f"{name}, line {number}"
        if not content or content.startswith("#") or line == "---":
            continue
        if isinstance(last, list) and content.startswith("- "):
            last.append(_scalar(content[2:].strip(), place))
        elif isinstance(last, list) and content.startswith("[") and line != content:
            last.extend(_flow(content, place))
        elif line == content and (entry := _ENTRY.fullmatch(line)):
            key, value = _scalar(entry[1], place), (entry[2] or "").strip()
            if key in found:
                raise BundleError(f"{place}: {key!r} stands there twice")
            # Without a value, it has those of the following lines.
            last = found[key] = _value(value, place) if value else []
        else:
            raise BundleError(f"{place}: {line[:80]!r} is neither a name with a value nor a value of a list")
    return found


def read_numbered(text: str, name: str) -> Iterator[tuple[str, int]]:
    """Pieces with their numbers.

    Args:
        text: what was in the file.
        name: what errors call it.

    Raises:
        BundleError: there is anything else; names the line.
    """
    waiting: str | None = None  # a long piece has a line of its own, "? piece", and the next one has the number
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r")
        place = f"{name}, line {number}"
        if waiting is None and line.startswith("? "):
            waiting = _scalar(line[2:], place)
            continue
        piece, colon, digits = line.rpartition(":")
        if not line.strip() or (waiting is None and (line.startswith("# ") or line == "---")):
            continue
        if not colon or not digits.strip().isascii() or not digits.strip().isdigit() or bool(piece) == bool(waiting):
            raise BundleError(f"{place}: {line[:80]!r} is no piece with its number, as in '</s>: 0'")
        yield (_scalar(piece, place) if waiting is None else waiting), int(digits)
        waiting = None


def quoted(text: str) -> str:
    """`text` as YAML, Marian and CTranslate2 alike read it."""
    return "'" + text.replace("'", "''") + "'"


def _value(text: str, place: str) -> Value:
    return _flow(text, place) if text.startswith("[") else _scalar(text, place)


def _flow(text: str, place: str) -> list[str]:
    """A list in one line, as in `[1, 2]`."""
    if not text.endswith("]"):
        raise BundleError(f"{place}: {text[:80]!r} is a list without end")
    inside = text[1:-1].strip()
    return [_scalar(item.strip(), place) for item in inside.split(",")] if inside else []


def _scalar(text: str, place: str) -> str:
    quote = text[:1]
    if quote not in {"'", '"'}:
        return text
    inside = text[1:-1]
    if len(text) < 2 or text[-1] != quote:
        raise BundleError(f"{place}: {text[:80]!r} has a quotation mark at one end only")
    return inside.replace("''", "'") if quote == "'" else _ESCAPE.sub(lambda found: _unescaped(found, place), inside)


def _unescaped(found: re.Match[str], place: str) -> str:
    code = found[1] or found[2] or found[3]
    if code is None and found[4] in _ESCAPED:
        return _ESCAPED[found[4]]
    if code is None or int(code, 16) > 0x10FFFF:
        raise BundleError(f"{place}: {found[0]!r} stands for no character")
    return chr(int(code, 16))
