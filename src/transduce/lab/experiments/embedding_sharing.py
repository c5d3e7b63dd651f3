"""Whether source and target embeddings are one matrix (paper 3.4; Press & Wolf 2017)."""

from collections.abc import Mapping, Sequence

from transduce.lab.conclusion import Claim, Conclusion
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import FEW_PAIRS, SETTINGS, Laboratory
from transduce.lab.learning_curves import draw_learning_curves
from transduce.lab.measurements import Results, Value
from transduce.lab.statistics import judge_larger
from transduce.lab.variants import SAME_BLEU, judge_saved_parameters, plan_training, tabulate_variants

VARIANTS: Mapping[str, Mapping[str, Value]] = {
    "one matrix for source and target": {"model.tied_embeddings": "three_way", "model.dropout": 0.1},
    "two matrices": {"model.tied_embeddings": "two_way", "model.dropout": 0.1},
}
"""The models that are compared, by name. Both have the paper's dropout (5.4), against over-fitting few pairs."""
ONE, TWO = VARIANTS

SAME_LOSS = 0.02
"""Nats per token by which the loss may be higher without harm: a perplexity that is 2 % higher."""

PARAMETERS = Claim(
    "3.4",
    "The embeddings of source and target share one matrix, which saves vocabulary · d_model parameters.",
)
LOSS = Claim("Press & Wolf 2017", "Sharing the matrix of source and target does not make the loss higher.")
QUALITY = Claim("Press & Wolf 2017", "Sharing the matrix of source and target does not harm translation.")


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: a model with each number of matrices."""
    return plan_training(laboratory.with_fewer_generated_pairs(FEW_PAIRS), VARIANTS)


def conclude(results: Results) -> Conclusion:
    """Verdicts on the number of parameters, the loss and BLEU."""
    return Conclusion(
        [
            judge_saved_parameters(PARAMETERS, results, TWO, ONE),
            judge_larger(
                LOSS,
                results.by_seed("loss", variant=TWO),
                results.by_seed("loss", variant=ONE),
                "loss with two matrices minus loss with one, in nats per token",
                margin=-SAME_LOSS,
                form=".3f",
            ),
            judge_larger(
                QUALITY,
                results.by_seed("bleu", variant=ONE),
                results.by_seed("bleu", variant=TWO),
                "BLEU with one matrix minus BLEU with two",
                margin=-SAME_BLEU,
                form=".2f",
            ),
        ],
        charts=[draw_learning_curves(results, [ONE, TWO])],
        tables=[tabulate_variants(results, ["parameters", "loss", "bleu", "chrf", "exact"])],
        remarks=[
            "The paper does not say what sharing does to quality.",
            f"With {SETTINGS['text.vocabulary']} tokens, a matrix is a smaller part of the model than with 37,000.",
        ],
    )


EXPERIMENT = Experiment(
    title="One embedding matrix for source and target, or two",
    claims=[PARAMETERS, LOSS, QUALITY],
    method=(
        "Two models are trained with the same text for the same number of updates. In one of them, the embeddings of "
        "the source, the embeddings of the target and the projection to logits are the same matrix; in the other, the "
        "source has a matrix of its own. Parameters, loss on held-out text, and translations of unseen text are "
        "compared."
    ),
    plan=plan,
    conclude=conclude,
)
