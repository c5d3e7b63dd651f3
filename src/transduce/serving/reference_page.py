"""The page at `/docs`: the OpenAPI document for people, without anything from elsewhere."""

import json
from collections.abc import Iterator
from html import escape
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_MEDIA_TYPES = {"reference.css": "text/css; charset=utf-8", "reference.js": "text/javascript; charset=utf-8"}

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def reference(request: Request) -> HTMLResponse:
    """The page."""
    return HTMLResponse(reference_page(request.app.openapi()), headers={"Content-Security-Policy": _POLICY})


@router.get("/docs/{name}")
async def reference_file(name: str) -> Response:
    """Its style and its script."""
    if name not in _MEDIA_TYPES:
        raise HTTPException(HTTPStatus.NOT_FOUND, "Not Found")
    content = (files("transduce.serving") / "reference_files" / name).read_bytes()
    return Response(content, media_type=_MEDIA_TYPES[name])


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
