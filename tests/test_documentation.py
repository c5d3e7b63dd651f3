"""What the documentation says is so. `python tests/test_documentation.py` writes docs/cli.md anew."""

import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import CycloptsError
from rich.console import Console

from transduce import __version__
from transduce.cli.app import COMMANDS, app
from transduce.config import load_run_config

PROJECT = Path(__file__).parents[1]
MADE = {"build", "dist", "runs", "__pycache__"}
FILES = [
    path
    for top in sorted(PROJECT.iterdir())
    if top.name not in MADE and (not top.name.startswith(".") or top.name == ".ci" or top.suffix == ".yaml")
    for path in ([top] if top.is_file() else sorted(top.rglob("*")))
    if path.is_file() and not MADE & set(path.parts[len(PROJECT.parts) :])
]
PAGES = [path for path in FILES if path.suffix == ".md"]
CLI_PAGE = PROJECT / "docs" / "cli.md"
INTRODUCTION = """\
# Commands

Every command says with `--help` what is printed here; a test compares this page with the program. Data go to standard
output, and everything said about them to standard error: a live line on a terminal, plain lines elsewhere.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed: a full disk, training that diverged |
| 2 | something to be corrected by whoever gave the command; the message says what |
| 130 | interrupted; if training had begun, the same command, without `--restart`, goes on from there |
| 141 | whoever read the output has left, as `head` does |

`TRANSDUCE_<SECTION>_<KEY>` in the environment is a setting, too, as in `TRANSDUCE_DATA_FOLDER`: above the recipe, below
options and `--set`. `TRANSDUCE_TRACEBACK=1` shows where a bug is.
"""


def cli_page() -> str:
    """The help of every command, as a terminal of 100 columns shows it."""
    commands = [[], *([name] for name in COMMANDS), ["config", "show"], ["config", "schema"]]
    sections = [INTRODUCTION]
    for command in commands:
        shown = io.StringIO()
        app.help_print(command, console=Console(file=shown, width=100, color_system=None))
        lines = "\n".join(line.rstrip() for line in shown.getvalue().rstrip().split("\n"))
        sections.append(f"## {' '.join(['transduce', *command])}\n\n```text\n{lines}\n```\n")
    return "\n".join(sections)


def test_the_page_of_commands_is_what_they_print() -> None:
    assert CLI_PAGE.read_text(encoding="utf-8") == cli_page(), "python tests/test_documentation.py writes it anew"


@pytest.mark.parametrize("recipe", sorted((PROJECT / "recipes").iterdir()), ids=lambda path: path.name)
def test_a_recipe_can_be_used(recipe: Path) -> None:
    config, origins = load_run_config(recipe)
    assert config.output == f"runs/{recipe.stem}"
    assert config.data.source or config.data.pairs
    assert str(recipe) in origins.values()


def examples(page: str) -> Iterator[list[str]]:
    """The words of every command of ours in blocks of code and between backticks."""
    blocks = re.findall(r"^```(?:|bash|sh|console)\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").split("\n")]
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL))
    for line in [*lines, *inline]:
        if not re.search(r"\b(transduce|make) ", line):
            continue
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, "|"]:
            if re.fullmatch(r"[|<>&;()]+", word):
                yield from ours(words)
                # What follows < or > is a file, and not a command.
                words = ["file"] if set(word) & set("<>") else []
            else:
                words.append(word)


def ours(words: list[str]) -> Iterator[list[str]]:
    """`words`, if they are a call of `transduce` or `make`, without variables before it and folders in its name."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words and (name := words[0].rpartition("/")[2]) in {"transduce", "make"}:
        yield [name, *words[1:]]


def test_examples_are_found() -> None:
    page = "a `make help`, b `transduce`\n```bash\n$ A=1 .venv/bin/transduce info base \\\n --json > a # b\n```\n```\n"
    page += "echo a | transduce translate 'my run' 2> b\nmake\n```\n```python\ntransduce no\n```\n"
    assert list(examples(page)) == [
        ["transduce", "info", "base", "--json"],
        ["transduce", "translate", "my run", "2"],
        ["make", "help"],
    ]


EXAMPLES = [
    pytest.param(words, id=f"{page.relative_to(PROJECT)}: {' '.join(words)}")
    for page in PAGES
    for words in examples(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("words", EXAMPLES)
def test_an_example_can_be_typed(words: list[str]) -> None:
    if words[0] == "make":
        targets = re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets)
    elif words[1:] not in [[name] for name in COMMANDS]:  # a name alone is no call
        try:
            app.parse_args(words[1:], exit_on_error=False, print_error=False)
        except CycloptsError as error:
            pytest.fail(f"{' '.join(words)}: {error}")


def test_a_wrong_example_is_noticed() -> None:
    with pytest.raises(CycloptsError):
        app.parse_args(["train", "--sauce", "a"], exit_on_error=False, print_error=False)


def test_the_changelog_knows_this_version() -> None:
    changelog = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "\n## [Unreleased]\n" in changelog or f"\n## [{__version__}]" in changelog


def anchors(page: Path) -> set[str]:
    """What can stand behind # in a link to the page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        place = (page.parent / name) if name else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            wrong.append(link)
    assert not wrong


def test_the_project_speaks_of_itself_alone() -> None:
    foreign = [b"/" + b"work/", b"spec" + b".md"]
    assert len(FILES) > 100
    assert not [str(path) for path in FILES if any(words in path.read_bytes() for words in foreign)]


if __name__ == "__main__":
    CLI_PAGE.write_text(cli_page(), encoding="utf-8", newline="\n")
