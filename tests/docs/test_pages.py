"""What pages of the site take from elsewhere is there: parts of other pages, of the code, and of messages."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = [path for path in sorted((PROJECT / "docs").rglob("*.md")) if "_build" not in path.parts]
PACKAGES = sorted(path.parent.name for path in (PROJECT / "src" / "transduce").glob("*/__init__.py"))
PACKAGES.remove("cli")  # docs/cli.md has its commands
DIRECTIVE = re.compile(r"^(`{3,}|:{3,})\{(include|literalinclude)\} *(\S+)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r'^:([\w-]+): *"?(.*?)"?$', re.MULTILINE)


def directives(page: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Every directive that includes a file: its name, the file, its options."""
    for _, name, file, options in DIRECTIVE.findall(page):
        yield name, file, {key: value.replace(r"\n", "\n") for key, value in OPTION.findall(options)}


def definitions(text: str) -> set[str]:
    """Functions, classes, their methods and nested classes, as in "Decoder" and "Decoder.forward"."""

    def names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from names(node.body, f"{prefix}{node.name}.")

    return set(names(ast.parse(text).body, ""))


def find_problem(name: str, file: Path, options: dict[str, str]) -> str | None:
    """What is wrong with a directive that includes a file; None if nothing is."""
    if not file.is_file():
        return "no such file"
    text = file.read_text(encoding="utf-8")
    if name == "include":
        markers = [options[key] for key in ("start-after", "end-before") if key in options]
        return next((f"{marker!r} does not occur once" for marker in markers if text.count(marker) != 1), None)
    if file.suffix == ".py" and options.get("pyobject") not in definitions(text):
        return f"of a module, a function or class is shown by :pyobject:, and there is no {options.get('pyobject')}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_what_a_page_includes_is_there(page: Path) -> None:
    found = directives(page.read_text(encoding="utf-8"))
    problems = [(file, find_problem(name, page.parent / file, options)) for name, file, options in found]
    assert not [(file, problem) for file, problem in problems if problem]


def test_directives_are_found_and_wrong_ones_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class A:\n    def b(self): ...\n", encoding="utf-8")
    (tmp_path / "a.md").write_text("# A\n\ntext\n", encoding="utf-8")
    page = '```{include} a.md\n:start-after: "# A\\n"\n```\n\n```{literalinclude} a.py\n:pyobject: A.b\n```\n'
    page += ":::{literalinclude} a.py\n:pyobject: A.c\n:::\n```{literalinclude} a.py\n:lines: 1\n```\n"
    page += '```{include} b.md\n```\n```{include} a.md\n:end-before: "# B"\n```\n'
    problems = [find_problem(name, tmp_path / file, options) for name, file, options in directives(page)]
    assert [problem is None for problem in problems] == [True, True, False, False, False, False]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_with_public_names_has_a_page(package: str) -> None:
    page = PROJECT / "docs" / "api" / f"{package}.md"
    has_names = bool(importlib.import_module(f"transduce.{package}").__all__)
    assert page.exists() is has_names
    assert not has_names or f"```{{public-names}} transduce.{package}\n" in page.read_text(encoding="utf-8")


def test_the_guide_quotes_warnings_that_exist() -> None:
    page = (PROJECT / "docs" / "guide" / "bad-translations.md").read_text(encoding="utf-8")
    quotes = re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE)
    folder = PROJECT / "src" / "transduce" / "training" / "diagnosis"
    nodes = [node for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    texts = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    assert len(quotes) > 5
    assert not [quote for quote in quotes if not any(quote in text for text in texts)]
