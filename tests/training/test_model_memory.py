import time
from typing import Any

import pytest
import torch

from transduce.config import RunConfig, TrainingConfig, TransformerConfig
from transduce.errors import ConfigError
from transduce.training import model_memory
from transduce.training.model_memory import BYTES_A_PARAMETER, check_model_memory
from transduce.training.ranks import ALONE

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def a_gigabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "get_available_memory", lambda _: 10**9)
    monkeypatch.setattr(model_memory, "get_available_addresses", lambda _: None)


def check(training: dict[str, Any] | None = None, **model: Any) -> None:
    config = RunConfig(model=TransformerConfig(**model), training=TrainingConfig(**(training or {})))
    check_model_memory(config, CPU, ALONE)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"d_model": 16_000}, "model.d_model = 16,000"),
        ({"d_model": 2**31 - 8}, "model.d_model = 2,147,483,640"),
        ({"d_ff": 100_000}, "model.d_ff = 100,000"),
        ({"num_decoder_layers": 10**9}, "model.num_decoder_layers = 1,000,000,000"),
        ({"vocabulary": 1_000_000}, "text.vocabulary = 1,000,000"),
        ({"positions": "learned", "max_positions": 10**6}, "model.max_positions = 1,000,000"),
        ({"num_heads": 1000, "d_k": 64, "d_v": 64}, "model.num_heads = 1,000"),
        ({"d_model": 1024, "d_ff": 50_000}, "model.d_ff = 50,000"),
    ],
)
def test_a_model_that_cannot_fit_is_refused_by_the_setting_that_is_the_cause(
    settings: dict[str, Any], name: str
) -> None:
    started = time.process_time()
    with pytest.raises(
        ConfigError, match=rf"^{name}: a model of [\d,]+ parameters needs at least [\d,.]+ GB .* 1.0 GB"
    ):
        check(**settings)
    assert time.process_time() - started < 1


def test_the_limit_is_what_the_parameters_need(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = BYTES_A_PARAMETER * TransformerConfig().num_parameters
    for there, is_enough in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(model_memory, "get_available_memory", lambda _, there=there: there)
        if is_enough:
            check()
        else:
            with pytest.raises(ConfigError, match=r"^a model of .*; choose a smaller preset$"):
                check()
    monkeypatch.setattr(model_memory, "get_available_memory", lambda _: needed)
    with pytest.raises(ConfigError):  # a fifth number for each
        check({"ema_decay": 0.9})
    monkeypatch.setattr(model_memory, "get_available_memory", lambda _: None)
    check(d_model=16_000)
