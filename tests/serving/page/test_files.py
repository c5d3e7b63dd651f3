import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import sha256

import pytest

from transduce.serving.page import (
    Folder,
    PageSettings,
    get_page_file,
    make_page_policy,
    render_inspection_page,
    render_standalone_page,
    render_translation_page,
)


def render_page() -> str:
    """The page that translates, whose formats are no text that could leave its place."""
    return render_translation_page(PageSettings(1, 2, 3, 3, 4.0, (".txt", "</script><!-- scripts -->"), False))


def read_file(name: str) -> tuple[bytes, str] | None:
    """A file by its path below `page/`."""
    folder: Folder = "translate" if name.startswith("translate/") else "files"
    return get_page_file(name.removeprefix("translate/"), folder)


def inline(html: str, tag: str) -> list[str]:
    """The contents of all elements of that name that have some."""
    return [content for content in re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", html, re.DOTALL) if content]


def digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def import_map(html: str) -> dict[str, str]:
    (text,) = [content for content in inline(html, "script") if content.startswith('{"imports"')]
    return dict(json.loads(text)["imports"])


@pytest.mark.parametrize(
    ("render", "some"),
    [(render_page, {"translate/main.js", "frame.css"}), (render_inspection_page, {"main.js", "base.css"})],
)
def test_every_module_and_style_of_a_served_page_is_there(render: Callable[[], str], some: set[str]) -> None:
    html = render()
    names = set(re.findall(r'"\./page/([^"]+)"', html))
    assert some <= names
    for name in names:
        file = read_file(name)
        assert file is not None
        assert file[0]
        assert file[1].startswith("text/javascript" if name.endswith(".js") else "text/css")


@pytest.mark.parametrize("name", ["", "index.html", "../__init__.py", "main.js/", "no.js", "js"])
def test_nothing_else_is_a_file_of_the_page(name: str) -> None:
    assert get_page_file(name) is None


def test_modules_import_what_the_map_has() -> None:
    known = import_map(render_page())
    for address in known.values():
        file = read_file(address.removeprefix("./page/"))
        assert file is not None
        imported = re.findall(r'^import .*? from "([^"]+)";', file[0].decode(), re.MULTILINE)
        assert set(imported) <= known.keys()


@pytest.mark.parametrize("make", [render_page, render_inspection_page, lambda: render_standalone_page([])])
def test_the_map_is_read_before_any_module_is_there(make: Callable[[], str]) -> None:
    """One that is there before cannot find what it imports, and the page would not begin."""
    before, _, behind = make().partition('type="importmap"')
    assert not re.search(r'modulepreload|type="module"', before)
    assert 'type="module"' in behind


def test_the_policy_allows_what_is_inline_and_nothing_else() -> None:
    policy = make_page_policy()
    for html in (render_page(), render_inspection_page()):
        scripts = re.findall(r"<script(?! type=.application/json)[^>]*>(.+?)</script>", html, re.DOTALL)
        assert scripts
        assert all(digest(content) in policy for content in scripts)
        assert not inline(html, "style")
        assert not re.search(r'\s(?:on\w+|style)="', html)
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


def test_one_file_needs_no_other() -> None:
    html = render_standalone_page([{"a": 1}])
    assert not re.search(r'(?:src|href)="(?!data:|#)', html)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy
    data, *scripts = inline(html, "script")
    assert json.loads(data) == [{"a": 1}]
    assert all(digest(content) in policy for content in [*scripts, *inline(html, "style")])
    for name, address in import_map(html).items():
        file = get_page_file(f"{name.removeprefix('transduce/')}.js")
        assert file is not None
        assert b64decode(address.partition(",")[2]) == file[0]


def test_text_cannot_leave_its_place() -> None:
    text = "</script><script>alert(1)</script><!-- head -->\u2028<!-- scripts -->"
    html = render_standalone_page([{"source": {"text": text}}])
    data, *scripts = inline(html, "script")
    assert json.loads(data) == [{"source": {"text": text}}]
    assert not any("alert" in script for script in scripts)
    assert "\u2028" not in html


def test_settings_of_the_page_are_data() -> None:
    (data,) = [content for content in inline(render_page(), "script") if "maxCharacters" in content]
    assert json.loads(data) == {
        "maxAlternatives": 1,
        "maxCharacters": 2,
        "maxTexts": 3,
        "maxBodyBytes": 3,
        "fileSeconds": 4.0,
        "formats": [".txt", "</script><!-- scripts -->"],
        "needsKey": False,
    }


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render_standalone_page([{"score": float("nan")}])
