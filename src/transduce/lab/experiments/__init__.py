"""The experiments, one module each, imported on demand."""

import importlib

from transduce.errors import UserError
from transduce.lab.experiment import Experiment

EXPERIMENTS = {
    "scaling": "scores divided by sqrt(d_k), undivided, and additive ones (3.2.1)",
    "path-length": "operations between two positions, and recall over a distance, for four networks (4, Table 1)",
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
