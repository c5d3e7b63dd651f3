from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.config import RunConfig, load_run_config


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[[str], Path]:
    """Write a recipe."""

    def write(text: str) -> Path:
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8", newline="\n")
        return path

    return write


@pytest.fixture
def load(recipe: Callable[[str], Path]) -> Callable[..., RunConfig]:
    """What a recipe and `--set` strings resolve to."""

    def resolve(text: str = "", *settings: str) -> RunConfig:
        return load_run_config(recipe(text), settings=settings)[0]

    return resolve
