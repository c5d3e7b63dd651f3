"""Public names of packages that are imported on first use, so that programs that do not need PyTorch do not wait for
it.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def import_on_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The function `__getattr__` of a package (PEP 562), which imports a public name on first access.

    Type checkers and editors read the names from ordinary imports under `TYPE_CHECKING` beside it.

    Args:
        package: the full name of the package.
        homes: for each module, by its full name, the names that it defines, separated by spaces.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}

    def import_name(name: str) -> Any:  # noqa: ANN401 - a public name may have any type
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)  # later accesses do not call this function
        return value

    return import_name
