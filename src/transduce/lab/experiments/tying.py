"""Whether target embedding and pre-softmax projection are one matrix (paper 3.4; Press & Wolf 2017)."""

from collections.abc import Mapping, Sequence

from transduce.lab.conclusion import Claim, Conclusion
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import FEW_PAIRS, Laboratory
from transduce.lab.learning_curves import draw_learning_curves
from transduce.lab.measurements import Results, Value
from transduce.lab.statistics import judge_larger
from transduce.lab.variants import SAME_BLEU, judge_saved_parameters, plan_training, tabulate_variants

VARIANTS: Mapping[str, Mapping[str, Value]] = {
    "tied": {"model.tied_embeddings": "two_way", "model.dropout": 0.1},
    "untied": {"model.tied_embeddings": "none", "model.dropout": 0.1},
}
"""The models that are compared, by name. Both have the paper's dropout (5.4), against over-fitting few pairs."""
TIED, UNTIED = VARIANTS

PARAMETERS = Claim(
    "3.4",
    "Target embedding and pre-softmax projection share one matrix, which saves vocabulary · d_model parameters.",
)
PERPLEXITY = Claim("Press & Wolf 2017", "Tying input and output embedding lowers the perplexity of a language model.")
QUALITY = Claim("Press & Wolf 2017", "Tying makes translation models smaller without harming their translations.")


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: a model with tied matrices and one with untied ones; in both, the source has its own matrix."""
    return plan_training(laboratory.with_fewer_generated_pairs(FEW_PAIRS), VARIANTS)


def conclude(results: Results) -> Conclusion:
    """Verdicts on the number of parameters, the loss and BLEU."""
    return Conclusion(
        [
            judge_saved_parameters(PARAMETERS, results, UNTIED, TIED),
            judge_larger(
                PERPLEXITY,
                results.by_seed("loss", variant=UNTIED),
                results.by_seed("loss", variant=TIED),
                "loss (the logarithm of perplexity) of the untied model minus that of the tied one, in nats per token",
                form=".3f",
            ),
            judge_larger(
                QUALITY,
                results.by_seed("bleu", variant=TIED),
                results.by_seed("bleu", variant=UNTIED),
                "BLEU of the tied model minus BLEU of the untied one",
                margin=-SAME_BLEU,
                form=".2f",
            ),
        ],
        charts=[draw_learning_curves(results, [TIED, UNTIED])],
        tables=[tabulate_variants(results, ["parameters", "loss", "bleu", "chrf", "exact"])],
        remarks=[
            "The claim about perplexity was made of models that write text without a source; this one translates.",
            "The paper does not say what tying does to quality.",
        ],
    )


EXPERIMENT = Experiment(
    title="Target embedding and pre-softmax projection: one matrix, or two",
    claims=[PARAMETERS, PERPLEXITY, QUALITY],
    method=(
        "Two models are trained with the same text for the same number of updates. In one of them, the embeddings of "
        "the target and the projection to logits are the same matrix; in the other, they are two. The source has a "
        "matrix of its own in both. Parameters, loss on held-out text, and translations of unseen text are compared."
    ),
    plan=plan,
    conclude=conclude,
)
