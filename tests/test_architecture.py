"""The rules of ARCHITECTURE.md, read from the source itself."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = SOURCE / "transduce"
LAYERS = {
    "errors": 0,
    "lazy_imports": 0,
    "config": 1,
    "kernels": 1,
    "pages": 1,
    "documents": 2,
    "storage": 2,
    "text": 2,
    "model": 2,
    "search": 2,
    "baselines": 3,
    "data": 4,
    "bundle": 4,
    "translation": 5,
    "doctor": 6,
    "evaluation": 6,
    "inspection": 6,
    "interop": 6,
    "bulk": 7,
    "training": 8,
    "demo": 9,
    "serving": 9,
    "lab": 10,
    "cli": 11,
    "__main__": 12,
    "transduce": 12,  # the package itself, which offers the public names; of it only __version__ may be imported
}
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def nodes() -> Iterator[tuple[str, ast.AST]]:
    return ((module, node) for module in MODULES for node in ast.walk(tree(module)))


def where(module: str, node: ast.AST) -> str:
    line, text = getattr(node, "lineno", 1), ast.unparse(node).split("\n")[0]
    return f"{MODULES[module].relative_to(SOURCE.parent)}:{line}: {text}"


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def imported(module: str, node: ast.AST) -> list[str]:
    """What an import statement names: modules of ours in full, others as they are."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    package = module.split(".") if MODULES[module].name == "__init__.py" else module.split(".")[:-1]
    base = package[: len(package) - node.level + 1] if node.level else []
    origin = ".".join([*base, *([node.module] if node.module else [])])
    names = [f"{origin}.{alias.name}" for alias in node.names]
    return [name if name in {*MODULES, "transduce.__version__"} else origin for name in names]


def imports() -> Iterator[tuple[str, ast.AST, str]]:
    """Every import statement, wherever it stands: in functions and under TYPE_CHECKING too."""
    return ((module, node, name) for module, node in nodes() for name in imported(module, node))


def called(node: ast.AST) -> str:
    """The function that a call names, as it is written; nothing for all other nodes."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def test_every_package_has_a_layer() -> None:
    assert set(PACKAGES) <= set(LAYERS)
    assert {package_of(module) for module in MODULES} <= set(LAYERS)


@pytest.mark.exhaustive
def test_imports_go_down_and_never_to_the_same_layer() -> None:
    wrong = [
        where(module, node)
        for module, node, name in imports()
        if name.split(".")[0] == "transduce" and name != "transduce.__version__"
        if package_of(module) != package_of(name) and LAYERS[package_of(name)] >= LAYERS[package_of(module)]
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_form_no_cycle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, _, name in imports():
        if name in MODULES:
            graph[module].add(name)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_config_and_errors_import_no_torch() -> None:
    heavy = {"torch", "numpy", "sentencepiece", "sacrebleu", "safetensors", "jaxtyping"}
    wrong = [
        where(module, node)
        for module, node, name in imports()
        if package_of(module) in {"config", "errors"} and name.split(".")[0] in heavy
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "program",
    [
        "import transduce",
        "import transduce.config, transduce.errors",
        "import sys, runpy; sys.argv[1:] = ['--help']; runpy.run_module('transduce', run_name='__main__')",
    ],
)
def test_loads_no_torch(program: str) -> None:
    watched = f"import atexit, sys; atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr)); {program}"
    result = subprocess.run(
        [sys.executable, "-c", watched],
        check=True,
        capture_output=True,
        encoding="utf-8",
        env={"PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "utf-8"},
    )
    assert result.stderr == "False\n"


def test_only_the_command_line_prints_and_exits() -> None:
    wrong = [
        where(module, node)
        for module, node in nodes()
        if package_of(module) not in {"cli", "__main__"}
        # It ends processes that it has forked itself.
        if (module, called(node)) != ("transduce.training.optimization.micro_batches", "os._exit")
        if called(node) in {"print", "input", "exit", "quit", "os._exit"}
        or (isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.exit", "sys.stdout", "sys.stderr"})
        or (isinstance(node, ast.Name) and node.id == "SystemExit")
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_is_a_drawer() -> None:
    drawers = {"util", "utils", "helper", "helpers", "common", "constants", "misc", "interface"}
    assert not [module for module in MODULES if drawers & set(module.split("."))]


@pytest.mark.parametrize("package_name", PACKAGES)
def test_packages_say_what_they_offer(package_name: str) -> None:
    name = f"transduce.{package_name}"
    package, offered = importlib.import_module(name), importlib.import_module(name).__all__
    imported_now = [node for node in tree(name).body if isinstance(node, ast.ImportFrom)]
    on_first_use = [
        node
        for block in tree(name).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    ]
    if on_first_use:  # then they are all, and the names of Python's modules are for the imports themselves
        imported_now = []
    bound = [alias.asname or alias.name for node in imported_now + on_first_use for alias in node.names]
    public = [node.name for node in tree(name).body if isinstance(node, FUNCTION | ast.ClassDef)]
    assert ast.get_docstring(tree(name))
    assert sorted(offered) == sorted(name for name in bound + public if not name.startswith("_"))
    assert offered == sorted(offered, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert all(hasattr(package, name) for name in offered)
    for node in on_first_use:  # editors and Python find the same
        module = importlib.import_module(str(node.module))
        assert all(getattr(package, alias.name) is getattr(module, alias.name) for alias in node.names)


def test_nothing_that_runs_what_it_reads() -> None:
    picklers = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    wrong = [where(module, node) for module, node, name in imports() if name.split(".")[0] in picklers]
    for module, node in nodes():
        keywords = {word.arg: ast.unparse(word.value) for word in node.keywords} if isinstance(node, ast.Call) else {}
        if (
            called(node) in {"eval", "exec", "torch.load", "torch.save", "os.system", "os.popen"}
            or (keywords.get("shell", "False") != "False" and called(node) != "app.generate_completion")
            or keywords.get("allow_pickle", "True" if called(node) in {"np.load", "numpy.load"} else "False") != "False"
        ):
            wrong.append(where(module, node))
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_for_later() -> None:
    later = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    assert not [str(path) for path in MODULES.values() if later.search(path.read_text(encoding="utf-8"))]


@cache
def definitions(module: str) -> set[str]:
    """Functions, classes and methods of a module, as in "beam_search" and "Translator.load"."""
    found = set()
    for node in tree(module).body:
        if isinstance(node, FUNCTION | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{method.name}" for method in node.body if isinstance(method, FUNCTION)}
    return found


def read_tours() -> list[list[tuple[str, str]]]:
    """Module and function of each step, in each table of ARCHITECTURE.md whose rows are numbered."""
    tours: list[list[tuple[str, str]]] = []
    text = (SOURCE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for number, path, name in re.findall(r"^\| (\d+) \| `([^`]+)` \| `([^`]+)` \|", text, re.MULTILINE):
        if number == "1":
            tours.append([])
        tours[-1].append((path, name))
    return tours


def test_the_tours_of_the_code_lead_somewhere() -> None:
    tours = read_tours()
    assert len(tours) == 2
    for tour in tours:
        assert 8 <= len(tour) <= 12
        for path, name in tour:
            module = "transduce." + path.removesuffix(".py").replace("/", ".")
            assert name in definitions(module), (path, name)


def test_every_name_in_the_description_of_the_code_exists() -> None:
    """Files, and names with an underscore, a capital or a point, which no word of English has."""
    text = re.sub(r"```.*?```", "", (SOURCE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    quoted = set(re.findall(r"`([^`\s]+)`", text))
    files = {one for one in quoted if re.search(r"\.(py|c|h)$", one) and not one.startswith("tests/")}
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*") if path.suffix in {".py", ".c", ".h"}
    )
    known = set(re.findall(r"\w+", code))
    everywhere = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*")]
    assert [one for one in files if not any(f"/{path}".endswith(f"/{one}") for path in everywhere)] == []
    names = {one.split("(")[0] for one in quoted - files if re.fullmatch(r"[A-Za-z_][\w.]*(\(.*\))?", one)}
    assert [one for one in names if not known.issuperset(one.split("."))] == []


# Words of the first versions, for which the field has terms of its own.
COINED_WORDS = [
    "TranslationWish",
    "LineOptions",
    "memory_attention",
    "LayerCache",
    "SideBySideState",
    "PreparedNetwork",
    "rectified",
    "computing_in",
    "settled_precision",
    "summed_later",
    "MergeDropout",
    "HeadSwitches",
    "SwitchedNetwork",
    "StopWish",
]
# These are common words: they are wrong as names of classes, functions, modules and arguments only.
WRONG_NAMES = [
    "Kept",
    "Wanted",
    "Habits",
    "Order",
    "Delivery",
    "Reception",
    "Door",
    "Product",
    "activations",
    "spread",
    "whole",
    "outlook",
    "pace",
    "patience",
    "say",
    "talk",
    "room",
    "floor",
    "started",
    "staying",
    "halvings",
    "wishes",
]
DOCUMENTS = [path for path in SOURCE.parent.glob("*.md") if path.name != "CHANGELOG.md"]
DOCUMENTS += sorted((SOURCE.parent / "docs").rglob("*.md"))
FORMER_NAMES = ("bundle/weights.py", "bundle/manifest.py", "training/checkpoints.py")
"""They read what earlier versions wrote."""


def test_terms_are_those_of_the_field() -> None:
    paths = [*MODULES.values(), *DOCUMENTS, *sorted(PACKAGE.rglob("*.js")), *sorted(PACKAGE.rglob("*.j2"))]
    names = {path.relative_to(SOURCE.parent).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    coined = re.compile(rf"\b({'|'.join(COINED_WORDS)})\b")
    assert not [name for name, text in names.items() if coined.search(text) and not name.endswith(FORMER_NAMES)]


def test_names_are_those_of_the_field() -> None:
    def names(node: ast.AST) -> set[str]:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                return {node.name.strip("_")}
            case ast.arg():
                return {node.arg.strip("_")}
            case _:
                return set()

    assert not [where(module, node) for module, node in nodes() if names(node) & set(WRONG_NAMES)]
    assert not [name for name in MODULES if set(name.split(".")) & set(WRONG_NAMES)]


def is_text_without_encoding(node: ast.AST) -> bool:
    """A call that reads or writes text in whatever encoding the machine prefers."""
    name = called(node).split(".")[-1]
    if not isinstance(node, ast.Call) or any(word.arg in {"encoding", None} for word in node.keywords):
        return False
    if name in {"read_text", "write_text"}:
        return True
    arguments = [*node.args, *(word.value for word in node.keywords if word.arg == "mode")]
    texts = [argument.value for argument in arguments if isinstance(argument, ast.Constant)]
    modes = [text for text in texts if isinstance(text, str) and re.fullmatch(r"[rwxabt+]{1,3}", text)]
    if called(node) == "open" or modes:
        return name in {"open", "fdopen"} and not any("b" in mode for mode in modes)
    # Of what is called open and given no mode, only a path is sure to be text: `path.open()`.
    return name == "open" and not node.args


def test_text_files_name_their_encoding() -> None:
    wrong = [where(module, node) for module, node in nodes() if is_text_without_encoding(node)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line", ["open(p)", "open(p, 'w')", "p.open()", "p.open('a')", "p.read_text()", "gzip.open(p, 'rt')"]
)
def test_text_without_encoding_is_noticed(line: str) -> None:
    assert is_text_without_encoding(ast.parse(line, mode="eval").body)


@pytest.mark.parametrize(
    "line", ["open(p, 'rb')", "p.open(encoding='utf-8')", "p.open('wb')", "Bundle.open(p)", "os.open(p, os.O_RDONLY)"]
)
def test_what_is_not_text_or_names_its_encoding_is_let_be(line: str) -> None:
    assert not is_text_without_encoding(ast.parse(line, mode="eval").body)
