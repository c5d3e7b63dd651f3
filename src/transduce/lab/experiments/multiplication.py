"""Multiplication of binary numbers: Neural GPUs beside a Transformer (paper 2)."""

from dataclasses import replace

from transduce.lab.conclusion import Claim
from transduce.lab.experiments.algorithms.comparison import Operation, make_experiment
from transduce.lab.experiments.algorithms.training import (
    ExtendedNeuralGPUSettings,
    NeuralGPUSettings,
    TrainingSettings,
    TransformerSettings,
)

LONGEST, TEST_LENGTHS = 5, (2, 3, 4, 5, 6, 8, 10)
"""Bits of the longest numbers of training, and of those of the tests."""


def _make_training(usual: TrainingSettings, updates: int) -> TrainingSettings:
    return replace(usual, task="multiplication", updates=updates, longest_length=LONGEST, test_lengths=TEST_LENGTHS)


MULTIPLICATION = Operation(
    verb="multiply",
    result="product",
    neural_gpu=NeuralGPUSettings(training=_make_training(NeuralGPUSettings().training, 4500)),
    extended=ExtendedNeuralGPUSettings(training=_make_training(ExtendedNeuralGPUSettings().training, 2000)),
    transformer=TransformerSettings(training=_make_training(TransformerSettings().training, 9000)),
    learns=Claim("Kaiser & Sutskever 2016", "A Neural GPU learns to multiply binary numbers from examples."),
    generalizes=Claim(
        "Kaiser & Sutskever 2016",
        "It multiplies numbers much longer than those of its training: here, more than 90 % of those twice as long.",
    ),
    remark=(
        "Kaiser & Sutskever 2016 trained with up to 20 bits, many more updates and the best of many seeds, and found "
        f"no error, however long the numbers. Of pairs of numbers of {LONGEST} bits there are {4**LONGEST:,}, all of "
        "which occur in training; longer ones are new."
    ),
)

EXPERIMENT = make_experiment(MULTIPLICATION, "Multiplication of binary numbers: Neural GPUs beside a Transformer")
