"""Web pages: the page that translates, the page that shows the model at work, and the API reference at `/docs`.

The page that shows the model at work is made of `files/`: one HTML file, styles, and ES modules that import each other
by names such as `transduce/state`. An import map resolves these names to files beside the page where it is served, or
to `data:` URLs where the page is a single, standalone file. The page that translates has its own files in `translate/`,
with names such as `transduce/translate/output`, and shares some of the others. There is no build step, and nothing is
loaded from elsewhere.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader
from pydantic.alias_generators import to_camel

from transduce.storage import OwnFileKind

_MEDIA_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_MARK = '<meta name="generator" content="transduce inspect, which replaces pages that have this line">'
_ENTRY = 'import "transduce/main";'


Folder = Literal["files", "translate", "reference"]
"""A folder with files of a page."""


class PageSettings(NamedTuple):
    """Properties of the service that the page for translating shows or obeys.

    Args:
        max_alternatives: maximum number of alternatives to a translation.
        max_characters: maximum number of characters in a request.
        max_texts: maximum number of texts in a request.
        max_body_bytes: maximum size of a request, and so of a document.
        file_seconds: time for which a translated document can be downloaded.
        formats: endings of documents, as in ".docx".
        needs_key: whether an API key is required.
    """

    max_alternatives: int
    max_characters: int
    max_texts: int
    max_body_bytes: int
    file_seconds: float
    formats: tuple[str, ...]
    needs_key: bool


def render_translation_page(settings: PageSettings) -> str:
    """Render the page that the server shows at `/`, which loads `page/NAME` and `page/translate/NAME`."""
    styles = ["./page/base.css", "./page/frame.css", "./page/translate/translate.css"]
    values = {to_camel(name): value for name, value in settings._asdict().items()}
    data = f'<script type="application/json" id="settings">{_encode_json(values)}</script>\n'
    return _fill_template(
        f"{_make_import_map_element()}\n{_link_styles(styles)}",
        f'{data}<script type="module" src="./page/translate/main.js"></script>',
        "translate",
    )


def render_inspection_page() -> str:
    """Render the page that the server shows at `/inspect`, which loads `page/NAME` and asks `v1/inspect` for
    documents.
    """
    styles = _link_styles([f"./page/{name}" for name in _list_names("css")])
    modules = "\n".join(f'<link rel="modulepreload" href="./page/{name}">' for name in _list_names("js"))
    # A module that is loaded before the import map is read fails to resolve its imports, and is not loaded again.
    head = f"{_make_import_map_element()}\n{styles}\n{modules}"
    return _fill_template(head, '<script type="module" src="./page/main.js"></script>')


def get_page_file(name: str, folder: Folder = "files") -> tuple[bytes, str] | None:
    """Return the content and media type of a style or script of a page, or None if there is no such file."""
    kind = name.rpartition(".")[2]
    if kind not in _MEDIA_TYPES or name not in _list_names(kind, folder):
        return None
    return _read_text(name, folder).encode("utf-8"), _MEDIA_TYPES[kind]


def make_page_policy() -> str:
    """Make the `Content-Security-Policy` of the pages that are served: their own files, their own server, and nothing
    else.
    """
    return _make_policy(
        script=f"'self' {_hash(_make_served_import_map())}", style="'self'", connect="'self'", frame_ancestors="'none'"
    )


def render_standalone_page(documents: Sequence[Mapping[str, Any]]) -> str:
    """Render the page as one standalone file with all its documents, of which the first is shown first."""
    style = "\n".join(_read_text(name) for name in _list_names("css"))
    scripts = {name: b64encode(_read_text(name).encode("utf-8")).decode("ascii") for name in _list_names("js")}
    import_map = _make_import_map({name: f"data:text/javascript;base64,{text}" for name, text in scripts.items()})
    policy = _make_policy(script=f"{_hash(import_map)} {_hash(_ENTRY)} data:", style=_hash(style), connect="'none'")
    head = f'{_MARK}\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    elements = (
        f'<script type="application/json" id="documents">{_encode_json(list(documents))}</script>\n'
        f'<script type="importmap">{import_map}</script>\n<script type="module">{_ENTRY}</script>'
    )
    return _fill_template(head, elements)


STANDALONE_PAGE = OwnFileKind("page of transduce inspect", (_MARK,))
"""A page of `render_standalone_page`."""


_FOLDER = files("transduce.serving.page")


@cache
def _list_names(kind: str, folder: str = "files") -> tuple[str, ...]:
    return tuple(sorted(one.name for one in (_FOLDER / folder).iterdir() if one.name.endswith(f".{kind}")))


@cache
def _read_text(name: str, folder: str = "files") -> str:
    return (_FOLDER / folder / name).read_text(encoding="utf-8")


def _link_styles(addresses: Sequence[str]) -> str:
    return "\n".join(f'<link rel="stylesheet" href="{address}">' for address in addresses)


def _fill_template(head: str, scripts: str, folder: Folder = "files") -> str:
    # Split and joined, not replaced, as the inserted text may contain the other mark.
    before, _, rest = _read_text("index.html", folder).partition("<!-- head -->")
    between, _, after = rest.partition("<!-- scripts -->")
    return f"{before}{head}{between}{scripts}{after}"


@cache
def _make_served_import_map() -> str:
    names = [*_list_names("js"), *(f"translate/{name}" for name in _list_names("js", "translate"))]
    return _make_import_map({name: f"./page/{name}" for name in names})


def _make_import_map_element() -> str:
    return f'<script type="importmap">{_make_served_import_map()}</script>'


def _make_import_map(addresses: Mapping[str, str]) -> str:
    imports = {f"transduce/{name.removesuffix('.js')}": address for name, address in addresses.items()}
    return json.dumps({"imports": imports}, separators=(",", ":"))


def _encode_json(value: object) -> str:
    """Encode JSON that can be embedded in a script element: without "<" and line separators."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _make_policy(*, script: str, style: str, connect: str, frame_ancestors: str = "") -> str:
    # Framing can be forbidden by a header only: in a <meta> the directive would be a warning in the console.
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


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


REFERENCE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def render_reference_page(document: dict[str, Any]) -> str:
    """Render the API reference: all operations by tag, with parameters, responses, and a form to try them."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "reference"), autoescape=True, trim_blocks=True
    )
    operations: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parameters = operation.get("parameters", ())
            body = _describe_body(document, operation)
            described = {
                "description": "",
                **operation,
                "path": path,
                "method": method,
                "query": {one["name"]: one["schema"] | {"description": one["description"]} for one in parameters},
                "body": body,
                # The page sends JSON to paths without parameters.
                "can_be_sent": "{" not in path and (body is None or body["example"] is not None),
            }
            operations.setdefault(operation["tags"][0], []).append(described)
    info = document["info"]
    return environment.get_template("reference.html.jinja").render(
        title=f"{info['title']} {info['version']}: API",
        description=info["description"],
        operations=operations,
        describe_types=lambda schema: " or ".join(_describe_types(schema)),
        to_json=partial(json.dumps, ensure_ascii=False),
    )


def _describe_body(document: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any] | None:
    contents = operation.get("requestBody", {}).get("content", {})
    if not contents:
        return None
    content = contents.get("application/json") or next(iter(contents.values()))
    schema = _resolve(document, content["schema"])
    schemas = {name: _resolve(document, one) for name, one in schema["properties"].items()}
    example = content.get("example") or {
        name: one["examples"][0] for name, one in schema["properties"].items() if one.get("examples")
    }
    return {
        "media_types": ", ".join(contents),
        "schemas": schemas,
        "required": schema.get("required", ()),
        "example": json.dumps(example, ensure_ascii=False, indent=2) if "application/json" in contents else None,
    }


def _describe_types(schema: dict[str, Any]) -> Iterator[str]:
    if "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _describe_types(one)
        return
    if "enum" in schema:
        yield ", ".join(map(str, schema["enum"]))
        return
    bounds = [f"{words} {schema[name]:g}" for name, words in _BOUNDS.items() if name in schema]
    kinds = schema.get("type", schema.get("$ref", "").rpartition("/")[2] or "anything")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        of_items = (
            f" of {' or '.join(_describe_types(schema['items']))}" if kind == "array" and "items" in schema else ""
        )
        yield " ".join([f"{kind}{of_items}", *([] if kind == "null" else bounds)])


_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}


def _resolve(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    found = document
    for name in schema.get("$ref", "#").split("/")[1:]:
        found = found[name]
    return schema if found is document else found
