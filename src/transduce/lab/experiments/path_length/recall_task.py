"""A task that needs what stands some positions back: to recall a token, after blanks and a cue.

The token is recalled within the target. The source says nothing, as attention connects target and source directly in
most networks, however far apart positions are.
"""

import statistics
import time
from collections.abc import Mapping
from functools import cache

import torch

from transduce.baselines import make_encoder_decoder
from transduce.config import TrainingConfig, TransformerConfig
from transduce.data import Batch
from transduce.kernels.device import use_one_thread
from transduce.lab.equal_parameters import match_rivals
from transduce.training import Updater

DISTANCES = (3, 6, 12, 24, 48, 96)
"""Distances over which a network has to recall a token."""

NUM_SECRETS = 16
BLANK, CUE, END, PAD = range(NUM_SECRETS, NUM_SECRETS + 4)
"""Ids of tokens: the first `NUM_SECRETS` are to be recalled, blanks lie between, and the cue asks for the secret."""

RATES = {"transformer": 3e-3, "recurrent": 2e-2, "convs2s": 2e-2, "bytenet": 3e-3}
"""Learning rate of each network: of 0.003, 0.01 and 0.02 the one with which it recalled best in single runs of 230
updates, at distances of 3 and 12 (recurrent), 6 (ConvS2S) and 48 (self-attention, where all were equal, and ByteNet).
"""

BATCH_ROWS = 16
NUM_TEST_ROWS = 400
PROBE_UPDATES = 7
"""Updates of which the median time is taken."""

SMALL = TransformerConfig(
    vocabulary=PAD + 1,
    num_encoder_layers=1,
    num_decoder_layers=2,
    d_model=32,
    d_ff=128,
    num_heads=4,
    dropout=0.0,
    max_positions=DISTANCES[-1] + 8,
)
"""The Transformer that recalls tokens; its rivals have as many parameters."""


def make_recall_batch(distance: int, rows: int, generator: torch.Generator) -> Batch:
    """Targets of a secret, blanks, the cue and the secret again, `distance` after the first; the source says nothing.

    The network predicts the secret from the cue, the last of its inputs; the first secret is the input `distance`
    positions before that one.
    """
    secrets = torch.randint(NUM_SECRETS, (rows,), generator=generator).tolist()
    targets = [[secret, *[BLANK] * (distance - 1), CUE, secret, END] for secret in secrets]
    return Batch.from_ids([[END]] * rows, targets, PAD)


@use_one_thread()  # the networks are so small that threads would only wait for each other
def train_recall(architecture: str, distance: int, updates: int, seed: int) -> Mapping[str, float]:
    """Train a network to recall a token at `distance`: "accuracy" on new sequences, and its number of parameters.

    Guessing has an accuracy of 1/`NUM_SECRETS`.
    """
    updater = _make_updater(architecture, updates, seed)
    generator = torch.Generator().manual_seed(seed)
    for number in range(1, updates + 1):
        updater.update(number, [make_recall_batch(distance, BATCH_ROWS, generator)])
    network = updater.model.eval()
    test = make_recall_batch(distance, NUM_TEST_ROWS, generator)
    with torch.no_grad():
        logits = network(test.source_ids, test.source_mask, test.target_ids, test.target_mask)
    place = distance + 1
    is_right = logits[:, place].argmax(dim=-1) == test.target_ids[:, place]
    return {"accuracy": float(is_right.double().mean()), "parameters": network.num_parameters}


@use_one_thread()
def measure_update(architecture: str) -> float:
    """Seconds of one update of a network for each of `DISTANCES`, in all."""
    updater, generator = _make_updater(architecture, PROBE_UPDATES, 1), torch.Generator().manual_seed(1)
    seconds = 0.0
    for distance in DISTANCES:
        times = []
        for number in range(1, PROBE_UPDATES + 1):
            started = time.perf_counter()
            updater.update(number, [make_recall_batch(distance, BATCH_ROWS, generator)])
            times.append(time.perf_counter() - started)
        seconds += statistics.median(times)
    return seconds


def _make_updater(architecture: str, updates: int, seed: int) -> Updater:
    torch.manual_seed(seed)
    training = TrainingConfig(
        updates=updates,
        schedule="linear",
        learning_rate=RATES[architecture],
        warmup=max(1, updates // 10),
        label_smoothing=0.0,
        clip_norm=1.0,
        precision="float32",
        device="cpu",
        seed=seed,
    )
    return Updater(make_encoder_decoder(_match_rivals()[architecture]), training, torch.device("cpu"))


@cache
def _match_rivals() -> dict[str, TransformerConfig]:
    return match_rivals(SMALL)
