"""Addition of binary numbers longer than those of training: Neural GPUs beside a Transformer (paper 2)."""

from transduce.lab.conclusion import Claim
from transduce.lab.experiments.algorithms.comparison import Operation, make_experiment
from transduce.lab.experiments.algorithms.training import (
    ExtendedNeuralGPUSettings,
    NeuralGPUSettings,
    TransformerSettings,
)

ADDITION = Operation(
    verb="add",
    result="sum",
    neural_gpu=NeuralGPUSettings(),
    extended=ExtendedNeuralGPUSettings(),
    transformer=TransformerSettings(),
    learns=Claim("Kaiser & Sutskever 2016", "A Neural GPU learns to add binary numbers from examples."),
    generalizes=Claim(
        "Kaiser & Sutskever 2016",
        "It adds numbers much longer than those of its training: here, more than 90 % of those twice as long.",
    ),
    remark=(
        "Kaiser & Sutskever 2016 trained with numbers of as many bits, for many more updates, and found no error, "
        "however long the numbers."
    ),
    transformer_fails=Claim(
        "Dehghani et al. 2019", "A Transformer does not add numbers longer than those of its training."
    ),
)

EXPERIMENT = make_experiment(ADDITION, "Adding longer numbers than in training: Neural GPUs beside a Transformer")
