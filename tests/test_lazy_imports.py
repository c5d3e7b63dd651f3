import sys
from types import ModuleType

import pytest

from transduce.lazy_imports import import_on_first_use


def test_a_name_is_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("lazy_package")
    monkeypatch.setitem(sys.modules, "lazy_package", package)
    find = import_on_first_use("lazy_package", {"json": "dumps loads", "math": "pi"})
    import math

    assert find("pi") is math.pi
    assert vars(package)["pi"] is math.pi
    assert "dumps" not in vars(package)
    with pytest.raises(AttributeError, match="module 'lazy_package' has no attribute 'tau'"):
        find("tau")
