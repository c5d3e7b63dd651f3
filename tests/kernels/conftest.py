"""The compiled library: the installed one, or where that is missing or of other sources, one that is built here."""

from collections.abc import Mapping

import pytest

from transduce.kernels.native.build import LEVELS, BuildError, build_library
from transduce.kernels.native.library import Library, load_levels


@pytest.fixture(scope="session")
def levels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Library]:
    """All levels that this processor has."""
    found = load_levels()
    if not found:
        try:
            found = load_levels(build_library(tmp_path_factory.mktemp("native") / "kernels.so"))
        except BuildError as error:
            pytest.skip(f"compiled kernels cannot be built here: {error}")
    return found


@pytest.fixture(scope="session", params=list(LEVELS))
def library(request: pytest.FixtureRequest, levels: Mapping[str, Library]) -> Library:
    """One level after the other."""
    if request.param not in levels:
        pytest.skip(f"this processor has no {request.param}")
    return levels[request.param]
