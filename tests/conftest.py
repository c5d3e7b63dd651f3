"""Type checks of the package under test, and fixtures that the tests of several packages share."""

import ast
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import is_dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from inspect import isgeneratorfunction
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, ModuleType
from typing import Any, get_type_hints

import pytest
import torch
from hypothesis import settings
from jaxtyping import jaxtyped

# beartype looks at one item of a list, drawn at random. A thread that still computes after its test must not draw
# from the generator that hypothesis watches.
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(random, "getrandbits", random.Random().getrandbits)  # noqa: S311 - nothing here is secret
    from beartype import beartype

SHAPES = jaxtyped("context")


class Checks:
    """Whether the lengths of axes are checked."""

    are_on = True


def check_types(checked: Any) -> Any:
    """The function, or the dataclass, with a check of its arguments and of what it returns.

    An axis has one length in all of them. jaxtyping's own decorator, which says the same, takes several times as long:
    it binds the arguments of every call, and checks them twice, also where no annotation has a shape.
    """
    if isinstance(checked, type):
        if is_dataclass(checked):
            checked.__init__ = check_types(checked.__init__)  # type: ignore[misc]
        return checked
    written = checked.__annotations__
    hints = {name: resolve(annotation, checked.__globals__) for name, annotation in written.items()}
    names = str(hints)
    # The length of an axis is an argument, or the arguments are not looked at before the first item is asked for.
    if "jaxtyping" in names and ("{" in names.removeprefix("{") or isgeneratorfunction(checked)):
        return jaxtyped(checked, typechecker=beartype)
    checked.__annotations__ = hints
    in_types = beartype(checked)
    checked.__annotations__ = in_types.__annotations__ = written
    if "jaxtyping" not in names:
        return in_types

    @wraps(checked)
    def in_shapes(*arguments: Any, **options: Any) -> Any:
        if not Checks.are_on:
            return checked(*arguments, **options)
        with SHAPES:
            return in_types(*arguments, **options)

    return in_shapes


def resolve(annotation: Any, namespace: dict[str, Any]) -> Any:
    """What an annotation means; anything, if it names what is imported for type checkers alone, or is not there yet."""

    def annotated() -> None: ...

    annotated.__annotations__ = {"hint": annotation}
    try:
        return get_type_hints(annotated, namespace, include_extras=True)["hint"]
    except Exception:  # noqa: BLE001 - whatever an expression raises
        return Any


class CheckEverything(ast.NodeTransformer):
    """Decorates each function, behind its other decorators, and each class, before them."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list.append(ast.copy_location(ast.Name("_check_types", ast.Load()), node))
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list.insert(0, ast.copy_location(ast.Name("_check_types", ast.Load()), node))
        return node


class CheckedLoader(SourceFileLoader):
    """Loads a module whose types are checked; its compiled code lies beside that of the module as it is."""

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        checked = ast.fix_missing_locations(CheckEverything().visit(ast.parse(data)))
        code: CodeType = compile(checked, path, "exec", dont_inherit=True, optimize=_optimize)
        return code

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["_check_types"] = check_types
        super().exec_module(module)

    def get_data(self, path: Any) -> bytes:
        return super().get_data(path.replace(".pyc", ".checked.pyc"))

    def set_data(self, path: Any, data: Any, **options: Any) -> None:
        super().set_data(path.replace(".pyc", ".checked.pyc"), data, **options)


class CheckedFinder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name.partition(".")[0] == "transduce" else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = CheckedLoader(spec.loader.name, spec.loader.path)
        return spec


assert "transduce" not in sys.modules
sys.meta_path.insert(0, CheckedFinder())

from transduce.kernels.native.build import BuildError, build_library, find_levels, find_platform  # noqa: E402
from transduce.kernels.native.library import Library, load_levels  # noqa: E402

# How long an example takes says more about the machine than about the code. `make test-all` takes the other profile.
settings.register_profile("suite", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=300)
settings.load_profile("suite")

# A shell without job control lets its background processes ignore Ctrl-C, and every process that they start in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def unchecked() -> Callable[[], AbstractContextManager[None]]:
    """A block in which axes are not checked: training a model for other tests takes half as long."""

    @contextmanager
    def leave_unchecked() -> Iterator[None]:
        Checks.are_on = False
        try:
            yield
        finally:
            Checks.are_on = True

    return leave_unchecked


@pytest.fixture
def unreadable_file() -> Iterator[Path]:
    """A file that may not be read, by root neither: for the time of the test, root is nobody."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "unreadable.toml"
        path.write_text("", encoding="utf-8")
        path.chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield path
        finally:
            os.seteuid(user)


@pytest.fixture
def time_growth() -> Callable[[Callable[[Any], object], Any, Any], float]:
    """How many times as much processor time a function takes for something larger, on any machine."""

    def measure(function: Callable[[Any], object], small: Any, large: Any) -> float:
        def seconds(given: Any) -> float:
            started = time.thread_time()
            function(given)
            return time.thread_time() - started

        shortest = min(seconds(small) for _ in range(3))
        return min(seconds(large) for _ in range(2)) / max(shortest, 0.002)  # less cannot be measured

    return measure


@pytest.fixture(scope="session")
def adds_up_alike() -> bool:
    """Whether the matrix library here gives a row the same bits in every product of a multiple of four rows.

    That is what `model.linear` builds on. It was seen to hold; where it does not, the same numbers come out up to
    rounding, and tests can ask for no more.
    """
    before = torch.get_num_threads()
    try:
        return all(_adds_up_alike(*shape, num_threads) for shape in PRODUCTS for num_threads in (1, 2))
    finally:
        torch.set_num_threads(before)


PRODUCTS = [(16, 24), (16, 48), (24, 50), (32, 16), (48, 16), (128, 384), (128, 256), (256, 128), (512, 129)]
"""Widths of the inputs and outputs of products."""


@torch.no_grad()
def _adds_up_alike(width: int, num_outputs: int, num_threads: int) -> bool:
    torch.set_num_threads(num_threads)
    inputs, weight = torch.randn(72, width), torch.randn(num_outputs, width)
    everything = torch.nn.functional.linear(inputs, weight)
    return all(
        torch.equal(torch.nn.functional.linear(inputs[:count], weight), everything[:count]) for count in range(4, 72, 4)
    )


@pytest.fixture(scope="session")
def levels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Library]:
    """The compiled kernels at all levels that this processor has: as installed, or else built here."""
    found = load_levels()
    if not found:
        try:
            found = load_levels(build_library(tmp_path_factory.mktemp("native") / "kernels.so"))
        except BuildError as error:
            pytest.skip(f"compiled kernels cannot be built here: {error}")
    return found


@pytest.fixture(scope="session", params=find_levels(find_platform()))
def library(request: pytest.FixtureRequest, levels: Mapping[str, Library]) -> Library:
    """The compiled kernels at one level after the other."""
    if request.param not in levels:
        pytest.skip(f"this processor has no {request.param}")
    return levels[request.param]
