import os

import pytest
import torch

from transduce.errors import ConfigError
from transduce.kernels.device import find_device


def test_the_processor_is_always_there() -> None:
    assert find_device("cpu") == torch.device("cpu")


def test_auto_is_the_best_that_is_there() -> None:
    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert find_device("auto").type == expected


@pytest.mark.parametrize("name", ["", "warp drive", "gpu", "cpu:x", "meta", "xla", "cuda:99", "CPU"])
def test_other_devices_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cpu") as refused:
        find_device(name)
    assert f"device = {name!r}" in str(refused.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="this machine has no such device; it has: "):
        find_device("cuda")


@pytest.mark.parametrize(("said", "found"), [(None, ":4096:8"), (":16:8", ":16:8")])
@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_gpu_is_told_to_sum_products_in_the_same_order(
    monkeypatch: pytest.MonkeyPatch, name: str, said: str | None, found: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", said or "")
    if said is None:
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    assert find_device("cpu").type == "cpu"
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == said
    assert find_device(name).type == "cuda"
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == found


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_that_is_there() -> None:
    assert find_device("cuda:0").index == 0
