"""The directive `public-names`, which describes the public names of a package from their docstrings.

Autodoc does most of it. Here, signatures are written as in the source, with shapes of arrays; docstrings are read as
plain text with Google's sections; and names of classes in signatures lead to their descriptions.
"""

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from docutils import nodes
from pydantic import BaseModel
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

SECTION = re.compile(r"(Args|Raises|Returns|Yields):")
"""The first line of one of Google's sections in a docstring."""

CLASSES = {"class", "exception", "type"}
"""What a class in a signature can be, in Sphinx's words."""


class PublicNames(SphinxDirective):
    """The description of a package and all its public names: ``{public-names} transduce.model``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Describe the package and each name of its `__all__`, in that order."""
        package = importlib.import_module(self.arguments[0])
        # The docstring of a constant is found in its own module alone.
        homes = {
            alias.name: statement.module
            for statement in ast.walk(ast.parse(inspect.getsource(package)))
            if isinstance(statement, ast.ImportFrom)
            for alias in statement.names
        }
        lines = [f".. automodule:: {package.__name__}", "   :no-members:", ""]
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isclass(value):
                lines += [f".. autoclass:: {package.__name__}.{name}", "   :members:"]
                lines += ["   :exclude-members: model_config", ""]  # of pydantic
                write_annotations(value)
            elif inspect.isfunction(value):
                lines += [f".. autofunction:: {package.__name__}.{name}", ""]
            else:
                lines += [f".. autodata:: {homes[name]}.{name}", "   :no-value:", ""]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


class ShapeWriter(ast.NodeTransformer):
    """Puts the shape in the place of a module's name for it: `Keys` becomes `Float[Tensor, "batch heads key d_k"]`."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The shape that the name stands for, or the name itself."""
        value = self.names.get(node.id)
        if inspect.isclass(value) and value.__module__ == "jaxtyping" and "[" in value.__name__:
            return ast.parse(value.__name__, mode="eval").body
        return node


def parse_definition(value: type | Callable[..., object]) -> ast.stmt | None:
    """The syntax tree of a class or function, or None if Python has made it without source."""
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    except (OSError, TypeError):
        return None
    names = vars(sys.modules[value.__module__])
    for node in ast.walk(definition):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            node.annotation = ShapeWriter(names).visit(node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            node.returns = ShapeWriter(names).visit(node.returns)
    return definition


def read_annotations(value: type) -> dict[str, ast.AnnAssign]:
    """The statements of a class that declare its attributes, as in `width: int = 3`, by name; none of its bases'."""
    definition = parse_definition(value)
    statements = definition.body if isinstance(definition, ast.ClassDef) else []
    return {ast.unparse(one.target): one for one in statements if isinstance(one, ast.AnnAssign)}


def write_annotations(value: type) -> None:
    """Let autodoc show the types of attributes as the source has them: it shows a class by its qualified name."""
    for name, statement in read_annotations(value).items():
        written = {"__module__": "builtins", "__qualname__": ast.unparse(statement.annotation)}
        value.__annotations__[name] = type("Written", (), written)


def write_fields(value: type) -> str | None:
    """The arguments of a dataclass or named tuple as its source has them, or None for other classes."""
    names = getattr(value, "_fields", None)
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.init]
    statements = {name: one for base in reversed(value.__mro__) for name, one in read_annotations(base).items()}
    return None if names is None else f"({', '.join(ast.unparse(statements[name]) for name in names)})"


def write_signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None] | None:
    """The signature as the source has it: names of types rather than what they stand for, but for shapes."""
    if inspect.isclass(value):
        if issubclass(value, BaseModel):  # its fields are described one by one
            return "", None
        own = parse_definition(vars(value)["__init__"]) if "__init__" in vars(value) else None
        if own is None and (of_fields := write_fields(value)) is not None:
            return of_fields, None
    else:
        own = parse_definition(inspect.unwrap(getattr(value, "__func__", value))) if inspect.isroutine(value) else None
    if not isinstance(own, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    if what != "function" and not any(ast.unparse(one) == "staticmethod" for one in own.decorator_list):
        del (own.args.posonlyargs or own.args.args)[0]  # self or cls
    returns = ast.unparse(own.returns) if own.returns is not None and what != "class" else None
    return f"({ast.unparse(own.args)})", returns


def read_docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Make reStructuredText of a plain docstring: nothing but backticks is markup, and indented blocks are verbatim."""
    result: list[str] = []
    in_section = is_verbatim = False
    for line in lines:
        is_indented = line.startswith(" ")
        if line and not is_indented:
            in_section, is_verbatim = bool(SECTION.fullmatch(line)), False
        if is_indented and not in_section and not is_verbatim and result and not result[-1]:
            result += ["::", ""]
            is_verbatim = True
        result.append(line if is_verbatim else escape_markup(line))
    if what in {"class", "exception", "function", "method"}:  # others have no sections
        result = GoogleDocstring(result, Config(), app, what, name, value, options).lines()
    lines[:] = result


def escape_markup(line: str) -> str:
    """A line in which nothing but backticks and what is between them means anything to reStructuredText."""
    parts = re.split(r"(`[^`]*`)", line)
    parts[::2] = [re.sub(r"([\\*|]|_\b)", r"\\\1", part) for part in parts[::2]]
    return re.sub(r"(`[^`]*`)(?=\w)", r"\1\\ ", "".join(parts))  # as in `Hypothesis`es


def find_by_short_name(
    app: Sphinx, environment: BuildEnvironment, node: addnodes.pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Lead from a name in a signature, which the source writes without its package, to its description."""
    name = node.get("reftarget", "").split(".")[-1]
    described = environment.domains.python_domain.objects
    found = [full for full, entry in described.items() if full.split(".")[-1] == name and entry.objtype in CLASSES]
    if node.get("refdomain") != "py" or len(found) != 1:
        return None
    entry = described[found[0]]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, found[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect everything to Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-process-signature", write_signature)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("missing-reference", find_by_short_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
