"""Whether a model can be trained in the memory that there is, computed before any of it is taken."""

import torch

from transduce.config import RunConfig, TransformerConfig
from transduce.errors import ConfigError
from transduce.kernels.memory import get_available_addresses, get_available_memory
from transduce.training.ranks import Ranks

BYTES_A_PARAMETER = 16
"""The weight, its gradient and Adam's two means, each a number of four bytes."""

_SETTINGS = {
    "vocabulary": "text.vocabulary",
    "num_encoder_layers": "model.num_encoder_layers",
    "num_decoder_layers": "model.num_decoder_layers",
    "d_model": "model.d_model",
    "d_ff": "model.d_ff",
    "num_heads": "model.num_heads",
    "d_k": "model.d_k",
    "d_v": "model.d_v",
    "max_positions": "model.max_positions",
}
"""What decides the number of parameters, and what users call it."""


def check_model_memory(config: RunConfig, device: torch.device, ranks: Ranks) -> None:
    """That the weights, their gradients and the optimiser of `config.model` fit into the memory beside `device`.

    Raises:
        ConfigError: they do not; names the setting that takes most of it.
    """
    free = [there for there in (get_available_memory(device), get_available_addresses(device)) if there is not None]
    training = config.training
    needed = config.model.num_parameters * (BYTES_A_PARAMETER + (4 if training.ema_decay else 0))
    if training.sharding == "fsdp":
        needed //= ranks.size
    if device.type == "cpu":
        needed *= ranks.num_here
    if not free or needed <= min(free):
        return
    name = _largest_setting(config.model)
    value = "" if name is None else f"{_SETTINGS[name]} = {getattr(config.model, name):,}: "
    raise ConfigError(
        f"{value}a model of {config.model.num_parameters:,} parameters needs at least {needed / 1e9:,.1f} GB to train "
        f"(weights, gradients and Adam's two means, without any text), and {min(free) / 1e9:,.1f} GB are there; "
        f"{'choose a smaller preset' if name is None else 'lower it'}"
    )


def _largest_setting(model: TransformerConfig) -> str | None:
    """The setting that alone, set back to the paper's base model, would save most; None if that would save nothing."""
    base = TransformerConfig()
    saved = {}
    for name in _SETTINGS:
        widths = {"d_k", "d_v"} if name == "d_model" else set[str]()  # which follow from it unless they are given
        changes = {one: min(getattr(model, one), getattr(base, one)) for one in {name} | widths}
        saved[name] = model.num_parameters - model.model_copy(update=changes).num_parameters
    largest = max(saved, key=lambda name: saved[name])
    return largest if saved[largest] > 0 else None
