"""What each layer of the decoder would predict if it were the last one."""

from collections.abc import Sequence

from torch import Tensor

from transduce.inspection.network_parts import LayerPredictions, Prediction
from transduce.inspection.passes import log_probabilities
from transduce.model import Transformer
from transduce.text import Tokenizer

NUM_PREDICTIONS = 3
"""Tokens that are named for each layer and position."""


def layer_predictions(model: Transformer, outputs: Sequence[Tensor], tokenizer: Tokenizer) -> LayerPredictions:
    """The logit lens (nostalgebraist 2020): the output projection, applied to what each layer hands on.

    Args:
        model: in evaluation mode.
        outputs: of each layer, [1, target, d_model] (`passes.decode`).
        tokenizer: names the tokens.
    """
    predictions, norms = [], []
    for output in outputs:
        probabilities = log_probabilities(model, output)[0].exp()
        best, tokens = probabilities.topk(min(NUM_PREDICTIONS, probabilities.size(1)), dim=1)
        predictions.append(
            [
                [
                    Prediction(piece=piece, probability=round(probability, 6))
                    for piece, probability in zip(tokenizer.pieces(row), row_best, strict=True)
                ]
                for row, row_best in zip(tokens.tolist(), best.tolist(), strict=True)
            ]
        )
        norms.append([round(norm, 4) for norm in output[0].float().norm(dim=-1).tolist()])
    return LayerPredictions(predictions=predictions, norms=norms)
