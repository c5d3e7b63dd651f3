"""What the documentation says is so. `python tests/test_documentation.py` writes anew what is made of the program."""

import io
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
from cyclopts import CycloptsError
from pydantic.fields import FieldInfo
from rich.console import Console

from transduce import __version__
from transduce.cli.app import COMMANDS, app
from transduce.config import PRESETS, FilterName, RunConfig, load_run_config
from transduce.config.presets import Preset
from transduce.config.run import list_sections
from transduce.config.text import CorpusConfig
from transduce.data.settings_for_size import MAX_PAIRS_OF_PRESET, MEASURED_RUNS
from transduce.evaluation.scorecard import BEHAVIOURS
from transduce.lab import EXPERIMENTS

PROJECT = Path(__file__).parents[1]
MADE = {"_build", "build", "dist", "runs", "__pycache__"}
FILES = [
    path
    for top in sorted(PROJECT.iterdir())
    if top.name not in MADE and (not top.name.startswith(".") or top.name == ".ci" or top.suffix == ".yaml")
    for path in ([top] if top.is_file() else sorted(top.rglob("*")))
    if path.is_file() and not MADE & set(path.parts[len(PROJECT.parts) :])
]
PAGES = [path for path in FILES if path.suffix == ".md"]
CLI_PAGE = PROJECT / "docs" / "cli.md"
SETTINGS_PAGE = PROJECT / "docs" / "settings.md"
LAB_PAGE = PROJECT / "docs" / "lab" / "index.md"
EVALUATION_PAGE = PROJECT / "docs" / "guide" / "evaluating.md"
DOCTOR_PAGE = PROJECT / "docs" / "guide" / "checking-text.md"
SETTINGS_INTRODUCTION = """\
# Settings

A recipe is a TOML file with these settings; `--set training.updates=2000` overrides a single one. Unset values
take the default below, which is the paper's base model, or the preset's. `transduce config show recipe.toml` prints all
settings of a recipe with their origins. A test compares this page with the program.
"""
PRESETS_INTRODUCTION = """\
## Presets

A preset is a named set of settings. `--set preset=small`, or `preset = "small"` in a recipe, chooses one; every setting
may still be changed. The order of normalisation is the paper's (`post`: after each sub-layer) or the one with which
small networks train better (`pre`: before it). Without a recipe, the number of passes of the first two follows from the
number of pairs: of different ones that training keeps, each as often as an epoch has it. The rows of the paper's Table
3 depart from `base` in what the last column names; `transduce info table3-A-1` describes one.
"""
PURPOSES = {
    "low-resource": "without a recipe, up to {pairs} pairs; with `--time` of two hours or less, up to 500,000",
    "medium-resource": "without a recipe, up to {pairs} pairs",
    "tiny": "text like the 29,000 captions of Multi30k, with the paper's order of normalisation",
    "small": "text that cannot feed `base`, with the paper's order of normalisation; not measured",
    "base": "the paper's base model; without a recipe, up to {pairs} pairs",
    "big": "the paper's big model; without a recipe, for more pairs than that",
}
"""What each preset is for that is no row of Table 3."""
INTRODUCTION = """\
# Commands

This page contains the `--help` of every command; a test compares it with the program. Data go to standard output, and
messages and progress to standard error: a live line on a terminal, plain lines elsewhere.

| exit code | meaning |
|---|---|
| 0 | done; also `serve` after Ctrl-C or SIGTERM, unless a second one follows |
| 1 | failed: a full disk, training that diverged |
| 2 | usage error; the message says what to fix |
| 3 | `doctor` found something serious |
| 130 | interrupted; if training had begun, the same command, without `--restart`, resumes the run |
| 141 | the reader of the output closed the pipe, as `head` does |

`TRANSDUCE_<SECTION>_<KEY>` in the environment is also a setting, as in `TRANSDUCE_DATA_FOLDER`: it overrides the
recipe, and options and `--set` override it. `TRANSDUCE_TRACEBACK=1` shows the traceback of a bug. `TRANSDUCE_KERNELS`
chooses among the compiled kernels that translate on a processor: `off`, `portable`, `avx2`, `avx512`, `avx512_vnni` or
`amx`, on ARM `neon` or `neon_dot`; unless set, the fastest available.
"""


SUBCOMMANDS = [["config", "show"], ["config", "schema"], ["lab", "list"], ["lab", "run"], ["lab", "report"]]


def test_what_to_expect_is_what_train_says() -> None:
    page = (PROJECT / "README.md").read_text(encoding="utf-8")
    rows = [
        f"| {run.text} | {run.num_pairs:,} | {run.training} | {run.test_text} | {run.bleu:g} | {run.chrf:g} |"
        for run in MEASURED_RUNS
    ]
    assert "\n".join(rows) + "\n\n" in page


def cli_page() -> str:
    """The help of every command, as a terminal of 100 columns shows it."""
    commands = [[], *([name] for name in COMMANDS), *SUBCOMMANDS]
    sections = [INTRODUCTION]
    for command in commands:
        shown = io.StringIO()
        app.help_print(command, console=Console(file=shown, width=100, color_system=None))
        lines = "\n".join(line.rstrip() for line in shown.getvalue().rstrip().split("\n"))
        sections.append(f"## {' '.join(['transduce', *command])}\n\n```text\n{lines}\n```\n")
    return "\n".join(sections)


def settings_page() -> str:
    """A table for each section of a recipe: every setting, its default, and what it is."""
    parts = {"": RunConfig, "[[data.corpora]]": CorpusConfig}
    parts |= {f"[{name}]": kind for name, kind in list_sections().items()}
    pages = [SETTINGS_INTRODUCTION]
    for name, kind in sorted(parts.items(), key=lambda part: part[0].strip("[]")):
        rows = [
            f"| `{key}` | {default_of(field)} | {told(field)} |"
            for key, field in kind.model_fields.items()
            if name or key not in list_sections()
        ]
        heading = f"## `{name}`" if name else "## Above all sections"
        pages.append("\n".join([heading, "", "| setting | default | |", "|---|---|---|", *rows, ""]))
        if not name:
            pages.append(f"{PRESETS_INTRODUCTION}\n{presets_table()}")
    return "\n".join(pages)


def presets_table() -> str:
    """A row for each preset: the size of its network, its order of normalisation, its length, what it is for."""
    columns = ["preset", "layers", "`d_model`", "`d_ff`", "normalisation", "length", "what it is for"]
    rows = [columns, ["---"] * len(columns)]
    for name, settings in PRESETS.items():
        config, _ = load_run_config(None, settings=[f"preset={name}"])
        model, training = config.model, config.training
        length = f"{training.updates:,} updates" if training.epochs is None else f"{training.epochs:g} passes"
        layers = f"{model.num_encoder_layers} + {model.num_decoder_layers}"
        row = [
            f"`{name}`",
            layers,
            str(model.d_model),
            str(model.d_ff),
            model.norm_order,
            length,
            purpose_of(name, settings),
        ]
        rows.append(row)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def purpose_of(name: str, settings: Preset) -> str:
    """What a preset is for; of a row of Table 3, what it changes."""
    if name in PURPOSES:
        return PURPOSES[name].format(pairs=f"{MAX_PAIRS_OF_PRESET.get(name, 0):,}")
    changes = [f"`{key} = {json.dumps(value)}`" for section in settings.values() for key, value in section.items()]
    return f"Table 3: {', '.join(changes)}"


def lab_page() -> str:
    """The page of the laboratory, with a table of all experiments between its two comments, and all reports there."""
    page = LAB_PAGE.read_text(encoding="utf-8")
    pages = [name for name in EXPERIMENTS if lab_report(name).exists()]
    again = [name for name in pages if lab_report(f"again/{name}").exists()]
    longer = [name for name in pages if lab_report(f"longer/{name}").exists()]
    rows = [
        f"| `{name}` | {what} | {f'[report]({name}.md)' if name in pages else ''} | "
        f"{f'[{compare_verdicts(name)}](again/{name}.md)' if name in again else ''} | "
        f"{f'[report](longer/{name}.md)' if name in longer else ''} |"
        for name, what in EXPERIMENTS.items()
    ]
    shown = [*pages, *(f"again/{name}" for name in again), *(f"longer/{name}" for name in longer)]
    toctree = ["```{toctree}", ":hidden:", "", *shown, "```", ""]
    table = [
        "",
        "| name | what is compared | seeds 1 to 3 | seeds 4 to 6 | more seeds or time |",
        "|---|---|---|---|---|",
        *rows,
        "",
        *(toctree if shown else []),
    ]
    head, begin, rest = page.partition("<!-- experiments: begin -->\n")
    _, end, tail = rest.partition("<!-- experiments: end -->\n")
    return "".join([head, begin, "\n".join([*table, ""]), end, tail])


def lab_report(name: str) -> Path:
    return LAB_PAGE.parent / f"{name}.md"


def compare_verdicts(name: str) -> str:
    """How many verdicts of an experiment are the same with other seeds."""
    first, again = (
        re.findall(r"^Verdict: \*\*(.*)\*\*$", lab_report(place).read_text(encoding="utf-8"), re.MULTILINE)
        for place in (name, f"again/{name}")
    )
    pairs = list(zip(first, again, strict=True))
    same = sum(one == other for one, other in pairs)
    opposite = sum({one, other} == {"supported", "not supported"} for one, other in pairs)
    return f"{same} of {len(first)} verdicts are the same" + (f", {opposite} opposite" if opposite else "")


def evaluation_page() -> str:
    """The page of the guide about evaluation, with a table of all behaviours of a scorecard."""
    rows = "".join(f"| {one.name} | {one.description} |\n" for one in BEHAVIOURS)
    page = EVALUATION_PAGE.read_text(encoding="utf-8")
    return re.sub(r"(?<=\n\| behaviour \| what is right \|\n\|---\|---\|\n)(\|.*\n)*", lambda _: rows, page)


def doctor_page() -> str:
    """The page of the guide about text, whose table of findings says of each whether it is a filter, too."""
    filters = get_args(FilterName)
    page = DOCTOR_PAGE.read_text(encoding="utf-8")
    return re.sub(
        r"^(\| `(\w+)` \|.*\|)[^|\n]*\|$",
        lambda row: f"{row[1]} {'yes ' if row[2] in filters else ''}|",
        page,
        flags=re.MULTILINE,
    )


def finding_names() -> set[str]:
    """The names of all findings of the doctor, as its code has them."""
    names = set()
    calls = r'(?:\bFinding\(\s*name=|\b_Rule\(\s*|\b_(?:describe|conclude)\(\s*text,\s*)f?"([a-z_{}]+)"'
    for path in (PROJECT / "src" / "transduce" / "doctor").rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        for name in [*re.findall(calls, code), *re.findall(r'"(\w+)": _Problem\(', code)]:
            for side, other in (("source", "target"), ("target", "source")):
                names.add(name.format(side=side, other=other))
    return names


def test_the_guide_has_every_finding_of_the_doctor() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", DOCTOR_PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(listed) == sorted(finding_names())
    assert set(get_args(FilterName)) <= set(listed)


def default_of(field: FieldInfo) -> str:
    """As a recipe would say it; nothing where a setting has no value unless given."""
    if field.default_factory is not None:
        return ""  # made of other settings
    return "" if field.default is None or field.is_required() else f"`{json.dumps(field.default)}`"


def told(field: FieldInfo) -> str:
    """What the setting is, and which values it may have where it may not have any."""
    choices = [value for part in (field.annotation, *get_args(field.annotation)) for value in get_args(part)]
    words = [json.dumps(value) for value in choices if isinstance(value, str)]
    among = f" One of {', '.join(f'`{word}`' for word in words)}." if len(words) > 1 else ""
    return (" ".join((field.description or "").split()) + among).replace("|", r"\|")


WRITTEN_BY_PROGRAM: list[tuple[Path, Callable[[], str]]] = [
    (CLI_PAGE, cli_page),
    (SETTINGS_PAGE, settings_page),
    (LAB_PAGE, lab_page),
    (EVALUATION_PAGE, evaluation_page),
    (DOCTOR_PAGE, doctor_page),
]


@pytest.mark.parametrize(("path", "page"), WRITTEN_BY_PROGRAM)
def test_pages_are_what_the_program_says(path: Path, page: Callable[[], str]) -> None:
    assert path.read_text(encoding="utf-8") == page(), "python tests/test_documentation.py writes it anew"


@pytest.mark.parametrize("recipe", sorted((PROJECT / "recipes").iterdir()), ids=lambda path: path.name)
def test_a_recipe_can_be_used(recipe: Path) -> None:
    config, origins = load_run_config(recipe)
    assert config.output == f"runs/{recipe.stem}"
    assert config.data.source or config.data.pairs
    assert str(recipe) in origins.values()


def examples(page: str) -> Iterator[list[str]]:
    """The words of every command of ours in blocks of code and between backticks."""
    # All blocks are found, so that the end of one with another language is not taken for the beginning of one without.
    fenced = re.findall(r"^```(.*?)\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    blocks = [block for language, block in fenced if language in {"", "bash", "sh", "console"}]
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
        targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
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
    for path, page in WRITTEN_BY_PROGRAM:
        path.write_text(page(), encoding="utf-8", newline="\n")
