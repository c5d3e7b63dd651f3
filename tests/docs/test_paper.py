"""The annotated paper includes code that exists, and its cells can be executed.

Its links and its commands are checked with those of all pages, by `tests/test_documentation.py`.
"""

import ast
import re
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import yaml

PAPER = Path(__file__).parents[2] / "docs" / "paper"
PAGES = sorted(PAPER.glob("*.md"))
NOTEBOOKS = [page for page in PAGES if page.read_text(encoding="utf-8").startswith("---\nfile_format: mystnb\n")]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
each_notebook = pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)

LARGEST_PICTURE = 100_000


class Directive(NamedTuple):
    """A block of a page: ```{name} argument, options, content."""

    name: str
    argument: str
    options: dict[str, str]
    content: str


def directives(page: Path) -> list[Directive]:
    """Every directive of a page, in order."""
    found = re.findall(
        r"^```\{([\w-]+)\} ?(.*)\n((?:.*\n)*?)```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return [Directive(name, argument, *split_options(block)) for name, argument, block in found]


def split_options(block: str) -> tuple[dict[str, str], str]:
    """The options of a directive and its content; of the metadata of a cell only those of its picture."""
    if block.startswith("---\n"):
        _, head, content = block.split("---\n", 2)
        return yaml.safe_load(head)["mystnb"]["image"], content
    options = re.findall(r"^:(\w+): *(.*)$", block, flags=re.MULTILINE)
    return dict(options), re.sub(r"^:.*\n", "", block, flags=re.MULTILINE)


def cells(page: Path) -> list[Directive]:
    """The code cells of a page."""
    return [one for one in directives(page) if one.name == "code-cell"]


def find_definition(tree: ast.Module, name: str) -> bool:
    """Whether a module defines a class, a function, or a method written as Class.method."""
    body: list[ast.stmt] = tree.body
    for part in name.split("."):
        named = [one for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == part]
        if not named:
            return False
        body = named[0].body
    return True


def test_there_are_pages() -> None:
    assert len(PAGES) >= 10
    assert len(NOTEBOOKS) >= 8


def test_directives_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    included = "```{literalinclude} a.py\n:pyobject: A.b\n```\n"
    cell = "```{code-cell} python\n---\nmystnb:\n  image:\n    alt: A.\n---\nx = 1\n```\n"
    page.write_text(f"{included}\ntext\n\n{cell}", encoding="utf-8")
    assert directives(page) == [
        Directive("literalinclude", "a.py", {"pyobject": "A.b"}, ""),
        Directive("code-cell", "python", {"alt": "A."}, "x = 1\n"),
    ]
    assert find_definition(ast.parse("class A:\n    def b(self): ..."), "A.b")
    assert not find_definition(ast.parse("class A:\n    def b(self): ..."), "A.c")


@each_page
def test_included_code_exists(page: Path) -> None:
    for one in directives(page):
        if one.name == "literalinclude":
            source = (page.parent / one.argument).resolve()
            assert source.is_file(), one.argument
            name = one.options["pyobject"]
            assert find_definition(ast.parse(source.read_text(encoding="utf-8")), name), f"{one.argument}: {name}"


def test_every_page_is_in_the_table_of_contents() -> None:
    (listed,) = (one.content.split() for one in directives(PAPER / "index.md") if one.name == "toctree")
    assert sorted(listed) == sorted(page.stem for page in PAGES if page.stem != "index")


@each_notebook
def test_cells_compile_and_pictures_have_alternative_texts(page: Path) -> None:
    assert cells(page)
    for cell in cells(page):
        compile(cell.content, page.name, "exec")
        if re.search(r"^(plt\.|figure\b|draw_)", cell.content, flags=re.MULTILINE):
            assert len(cell.options["alt"]) > 20, cell.content


@pytest.mark.exhaustive
@each_notebook
def test_a_page_can_be_executed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.syspath_prepend(str(PAPER))
    pyplot.switch_backend("agg")
    names: dict[str, object] = {"__name__": page.stem}
    gradients = torch.is_grad_enabled()
    try:
        for cell in cells(page):
            exec(compile(cell.content, page.name, "exec"), names)  # noqa: S102 - what the page shows
            assert len(pyplot.get_fignums()) == ("alt" in cell.options), cell.content
            if pyplot.get_fignums():
                picture = BytesIO()
                pyplot.savefig(picture, format="png", bbox_inches="tight")
                assert len(picture.getvalue()) < LARGEST_PICTURE
            pyplot.close("all")
    finally:
        torch.set_grad_enabled(gradients)
