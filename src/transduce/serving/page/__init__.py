"""Pages."""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from transduce.bundle import is_marked

_MEDIA_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_MARK = '<meta name="generator" content="transduce inspect, which replaces pages that have this line">'
_ENTRY = 'import "transduce/main";'


class PageFile(NamedTuple):
    """A file of the page as it is sent."""

    content: bytes
    media_type: str


def page() -> str:
    """The page as the server gives it at `/`: its files are at `page/NAME`, and it asks `v1/inspect` for documents."""
    styles = "\n".join(f'<link rel="stylesheet" href="./page/{name}">' for name in _names("css"))
    modules = "\n".join(f'<link rel="modulepreload" href="./page/{name}">' for name in _names("js"))
    # A module that is there before the map is read could not find what it imports, and would never ask again.
    import_map = f'<script type="importmap">{_served_import_map()}</script>'
    return _filled(f"{import_map}\n{styles}\n{modules}", '<script type="module" src="./page/main.js"></script>')


def page_file(name: str) -> PageFile | None:
    """The file of that name among the page's styles and modules; None if there is none."""
    kind = name.rpartition(".")[2]
    if kind not in _MEDIA_TYPES or name not in _names(kind):
        return None
    return PageFile(_text(name).encode("utf-8"), _MEDIA_TYPES[kind])


def content_security_policy() -> str:
    """The `Content-Security-Policy` of `page()`: its own files, its own server, and nothing else."""
    return _policy(
        script=f"'self' {_digest(_served_import_map())}", style="'self'", connect="'self'", frame_ancestors="'none'"
    )


def standalone_page(documents: Sequence[Mapping[str, Any]]) -> str:
    """The page as one file that opens from disk, without a network, with all that it shows.

    Args:
        documents: what `transduce.inspection.inspect_text` computed, one for each model or sentence; the first one is
            shown first, and any two can be looked at side by side.
    """
    style = "\n".join(_text(name) for name in _names("css"))
    import_map = _import_map({name: f"data:text/javascript;base64,{_base64(_text(name))}" for name in _names("js")})
    policy = _policy(script=f"{_digest(import_map)} {_digest(_ENTRY)} data:", style=_digest(style), connect="'none'")
    head = f'{_MARK}\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    scripts = (
        f'<script type="application/json" id="documents">{_embedded(documents)}</script>\n'
        f'<script type="importmap">{import_map}</script>\n<script type="module">{_ENTRY}</script>'
    )
    return _filled(head, scripts)


def is_standalone_page(path: Path) -> bool:
    """Whether the file at `path` is a `standalone_page`, and may be replaced by a newer one."""
    return is_marked(path, _MARK.encode())


def _folder() -> Traversable:
    return files("transduce.serving.page") / "files"


@cache
def _names(kind: str) -> tuple[str, ...]:
    return tuple(sorted(one.name for one in _folder().iterdir() if one.name.endswith(f".{kind}")))


@cache
def _text(name: str) -> str:
    return (_folder() / name).read_text(encoding="utf-8")


def _filled(head: str, scripts: str) -> str:
    # Split and joined, not replaced: what is put in may contain the other mark.
    before, _, rest = _text("index.html").partition("<!-- head -->")
    between, _, after = rest.partition("<!-- scripts -->")
    return f"{before}{head}{between}{scripts}{after}"


@cache
def _served_import_map() -> str:
    return _import_map({name: f"./page/{name}" for name in _names("js")})


def _import_map(addresses: Mapping[str, str]) -> str:
    imports = {f"transduce/{name.removesuffix('.js')}": address for name, address in addresses.items()}
    return json.dumps({"imports": imports}, separators=(",", ":"))


def _embedded(documents: Sequence[Mapping[str, Any]]) -> str:
    """JSON in which nothing can end the element that it stands in, or a line of a script."""
    text = json.dumps(list(documents), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _policy(*, script: str, style: str, connect: str, frame_ancestors: str = "") -> str:
    # Frames can be ruled out by a header only: in a <meta> the directive would be a warning in the console.
    directives = {
        "default-src": "'none'",
        "script-src": script,
        "style-src": style,
        "img-src": "data:",
        "connect-src": connect,
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": frame_ancestors,
    }
    return "; ".join(f"{name} {sources}" for name, sources in directives.items() if sources)


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _base64(text: str) -> str:
    return b64encode(text.encode("utf-8")).decode("ascii")


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_REFERENCE_TYPES = {"reference.css": "text/css; charset=utf-8", "reference.js": "text/javascript; charset=utf-8"}

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def reference(request: Request) -> HTMLResponse:
    """The page."""
    return HTMLResponse(reference_page(request.app.openapi()), headers={"Content-Security-Policy": _POLICY})


@router.get("/docs/{name}")
async def reference_file(name: str) -> Response:
    """Its style and its script."""
    if name not in _REFERENCE_TYPES:
        raise HTTPException(HTTPStatus.NOT_FOUND, "Not Found")
    content = (files("transduce.serving.page") / "reference" / name).read_bytes()
    return Response(content, media_type=_REFERENCE_TYPES[name])


def reference_page(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document: all operations by tag, with what they take and give, and a way to try them."""
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    tags = list(dict.fromkeys(operation["tags"][0] for _, _, operation in operations))
    links = "".join(f'<li><a href="#{_anchor(tag)}">{escape(tag)}</a></li>' for tag in tags)
    sections = "".join(
        f'<section aria-labelledby="{_anchor(tag)}"><h2 id="{_anchor(tag)}">{escape(tag)}</h2>'
        + "".join(_operation(document, *one) for one in operations if one[2]["tags"][0] == tag)
        + "</section>"
        for tag in tags
    )
    title = f"{document['info']['title']} {document['info']['version']}: API"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="./docs/reference.css"><script src="./docs/reference.js" defer></script></head>'
        f"<body><header><h1>{escape(title)}</h1><p>{escape(document['info']['description'])}</p>"
        '<p>The same for programs: <a href="./openapi.json">openapi.json</a>.</p>'
        '<label>API key, if this service needs one <input id="key" type="password" autocomplete="off"></label>'
        f'<nav aria-label="Dialects"><ul>{links}</ul></nav></header><main>{sections}</main></body></html>'
    )


def _operation(document: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> str:
    name = f"<code>{escape(method.upper())} {escape(path)}</code>"
    body, example = _body(document, operation)
    query = "".join(
        _row(one["name"], one["schema"] | {"description": one["description"]}, is_needed=False)
        for one in operation.get("parameters", ())
    )
    answers = "".join(_answer(status, one) for status, one in operation["responses"].items())
    area = f'<label>Body <textarea rows="6" spellcheck="false">{escape(example)}</textarea></label>' if example else ""
    return (
        f'<details data-method="{escape(method)}" data-path="{escape(path)}"><summary>{name} '
        f"{escape(operation['summary'])}</summary><p>{escape(operation.get('description', ''))}</p>"
        f"{_table('Query', query)}{body}{area}<button type='button'>Send</button>"
        f'<pre aria-live="polite" hidden></pre><h3>Answers</h3><dl>{answers}</dl></details>'
    )


def _body(document: dict[str, Any], operation: dict[str, Any]) -> tuple[str, str]:
    """The table of what a body has, and an example of it."""
    contents = operation.get("requestBody", {}).get("content", {})
    if not contents:
        return "", ""
    content = contents["application/json"]
    schema = _resolved(document, content["schema"])
    needed = schema.get("required", ())
    rows = "".join(
        _row(name, _resolved(document, one), is_needed=name in needed) for name, one in schema["properties"].items()
    )
    example = content.get("example") or {
        name: one["examples"][0] for name, one in schema["properties"].items() if one.get("examples")
    }
    table = _table(f"Body: {', '.join(contents)}", rows)
    return table, json.dumps(example, ensure_ascii=False, indent=2)


def _table(caption: str, rows: str) -> str:
    if not rows:
        return ""
    head = "<tr><th scope='col'>Name</th><th scope='col'>Value</th><th scope='col'>Meaning</th></tr>"
    return f"<table><caption>{escape(caption)}</caption><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _row(name: str, schema: dict[str, Any], *, is_needed: bool) -> str:
    default = "" if schema.get("default") is None else f", {json.dumps(schema['default'])} unless given"
    value = ("needed: " if is_needed else "") + " or ".join(_kinds(schema)) + default
    meaning = escape(schema.get("description", ""))
    return f"<tr><th scope='row'><code>{escape(name)}</code></th><td>{escape(value)}</td><td>{meaning}</td></tr>"


def _kinds(schema: dict[str, Any]) -> Iterator[str]:
    """What a value may be, in words."""
    if "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _kinds(one)
        return
    if "enum" in schema:
        yield ", ".join(map(str, schema["enum"]))
        return
    bounds = [
        f"{words} {schema[name]:g}"
        for name, words in {
            "minimum": "from",
            "exclusiveMinimum": "above",
            "maximum": "to",
            "exclusiveMaximum": "below",
        }.items()
        if name in schema
    ]
    kinds = schema.get("type", schema.get("$ref", "").rpartition("/")[2] or "anything")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        of_items = f" of {' or '.join(_kinds(schema['items']))}" if kind == "array" and "items" in schema else ""
        yield " ".join([f"{kind}{of_items}", *([] if kind == "null" else bounds)])


def _answer(status: str, answer: dict[str, Any]) -> str:
    example = next((one["example"] for one in answer.get("content", {}).values() if "example" in one), None)
    shown = "" if example is None else f"<pre>{escape(json.dumps(example, ensure_ascii=False, indent=2))}</pre>"
    return f"<dt>{escape(status)}</dt><dd>{escape(answer.get('description', ''))}{shown}</dd>"


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """A schema itself, where another one names it."""
    found = document
    for name in schema.get("$ref", "#").split("/")[1:]:
        found = found[name]
    return schema if found is document else found


def _anchor(tag: str) -> str:
    return tag.lower().replace(" ", "-")
