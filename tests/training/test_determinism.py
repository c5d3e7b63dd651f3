import os

import pytest
import torch
from torch.utils import deterministic

from transduce.training.determinism import deterministic_kernels


def settings() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]  # a property of what is no mere module
    )


def test_a_gpu_gets_deterministic_kernels_and_then_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = settings()
    with deterministic_kernels(torch.device("cuda")):
        assert settings() == (True, False, False)
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert settings() == before


def test_what_the_user_says_of_cublas_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with deterministic_kernels(torch.device("cuda")):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_a_processor_needs_nothing() -> None:
    before = settings()
    with deterministic_kernels(torch.device("cpu")):
        assert settings() == before
