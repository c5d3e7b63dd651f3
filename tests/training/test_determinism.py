import torch
from torch.utils import deterministic

from transduce.training.determinism import deterministic_kernels


def settings() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]  # a property of what is no mere module
    )


def test_a_gpu_gets_deterministic_kernels_and_then_what_it_had() -> None:
    before = settings()
    with deterministic_kernels(torch.device("cuda")):
        assert settings() == (True, False, False)
    assert settings() == before


def test_a_processor_needs_nothing() -> None:
    before = settings()
    with deterministic_kernels(torch.device("cpu")):
        assert settings() == before
