"""The page that looks inside: served with its files, or written as one file that opens from disk.

Both are made of `page_files/`: one HTML, some CSS, and ES modules that import each other by names such as
`transduce/state`. An import map says what a name means: a file beside the page where it is served, the module's own
text as a `data:` address where there is only one file. Nothing is built, and nothing comes from elsewhere.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from transduce.bundle import has_mark

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
    return has_mark(path, _MARK.encode())


def _folder() -> Traversable:
    return files("transduce.serving") / "page_files"


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
