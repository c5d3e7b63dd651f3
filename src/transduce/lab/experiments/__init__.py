"""The experiments, one module each, imported on demand."""

import importlib

from transduce.errors import UserError
from transduce.lab.experiment import Experiment

EXPERIMENTS = {
    "addition": "addition beyond the lengths of training: Neural GPUs and a Transformer (2)",
    "multiplication": "multiplication of binary numbers: Neural GPUs and a Transformer (2)",
    "stories": "questions about stories: a memory network, hop by hop, and a Transformer (2)",
    "residual": "layers with residual connections and without, over depth (3.1)",
    "normalization": "layer and batch normalisation; post-norm and pre-norm over depth and warm-up (3.1)",
    "scaling": "scores divided by sqrt(d_k), undivided, and additive ones (3.2.1)",
    "additive-cost": "time and memory of additive and of dot-product attention (3.2.1)",
    "heads": "one head and several at equal cost (3.2.2, Table 3 A)",
    "feed-forward": "the feed-forward network as two convolutions, and its width (3.3, Table 3 C)",
    "embedding-sharing": "one embedding matrix for source and target, or two (3.4)",
    "tying": "one matrix for target embedding and pre-softmax projection, or two (3.4)",
    "positions": "sinusoidal, learned and no positions, and longer sentences than in training (3.5, Table 3 E)",
    "path-length": "operations between two positions, and recall over a distance, for four networks (4, Table 1)",
    "regularization": "dropout and label smoothing on few pairs (5.4, Table 3 D)",
    "beam": "beam widths and length penalties (6.1)",
    "checkpoint-averaging": "the mean of the last checkpoints and single ones, with three learning rates (6.1)",
    "rivals": "the Transformer, recurrent layers, ConvS2S and ByteNet: quality, speed, training time (6.1)",
    "table3": "all rows of Table 3, scaled to the machine (6.2)",
    "since-then": "what later papers changed: pre-norm, RMS, gated networks, relative and rotary positions, GELU",
}
"""What each experiment compares, by name, in the paper's order. The experiment is `EXPERIMENT` in the module of this
name, with underscores.
"""


def find_experiment(name: str) -> Experiment:
    """The experiment of this name.

    Raises:
        UserError: there is none.
    """
    if name not in EXPERIMENTS:
        raise UserError(f"{name!r} is not an experiment; these exist: {', '.join(EXPERIMENTS)}")
    experiment: Experiment = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").EXPERIMENT
    return experiment
