"""Whether target embedding and pre-softmax projection are one matrix (paper 3.4; Press & Wolf 2017)."""

from collections.abc import Mapping, Sequence

from transduce.lab.conclusion import Claim, Conclusion, Finding
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import FEW_PAIRS, SETTINGS, Laboratory
from transduce.lab.learning_curves import draw_learning_curves
from transduce.lab.measurements import Results, Value
from transduce.lab.statistics import compare, judge_exactly, judge_larger
from transduce.lab.variants import find_losses, plan_training, tabulate_variants

VARIANTS: Mapping[str, Mapping[str, Value]] = {
    "tied": {"model.tied_embeddings": "two_way", "model.dropout": 0.1},
    "untied": {"model.tied_embeddings": "none", "model.dropout": 0.1},
}
"""Dropout is the paper's (5.4), as each of the few pairs is seen many times."""
TIED, UNTIED = VARIANTS

SAME_BLEU = 1.0
"""Points of BLEU by which a model may be worse without harm: less than the 95 % interval of the score on some hundred
sentences."""

PARAMETERS = Claim(
    "3.4",
    "Target embedding and pre-softmax projection share one matrix, which saves vocabulary · d_model parameters.",
)
PERPLEXITY = Claim("Press & Wolf 2017", "Tying input and output embedding lowers the perplexity of a language model.")
QUALITY = Claim("Press & Wolf 2017", "Tying makes translation models smaller without harming their translations.")


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """A model with tied matrices and one with untied ones; in both, the source has a matrix of its own."""
    return plan_training(laboratory.with_fewer_generated_pairs(FEW_PAIRS), VARIANTS)


def conclude(results: Results) -> Conclusion:
    """Verdicts on the number of parameters, the loss and BLEU."""
    return Conclusion(
        [
            _judge_parameters(results),
            judge_larger(
                PERPLEXITY,
                find_losses(results, UNTIED),
                find_losses(results, TIED),
                "loss (the logarithm of perplexity) of the untied model minus that of the tied one, in nats per token",
                form=".3f",
            ),
            judge_larger(
                QUALITY,
                results.by_seed("bleu", variant=TIED),
                results.by_seed("bleu", variant=UNTIED),
                f"BLEU of the tied model minus BLEU of the untied one, where {-SAME_BLEU} is no harm",
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


def _judge_parameters(results: Results) -> Finding:
    numbers = [results.by_seed("parameters", variant=variant) for variant in (UNTIED, TIED)]
    saved, expected = compare(*numbers), int(SETTINGS["text.vocabulary"]) * int(SETTINGS["model.d_model"])
    if not saved.num_seeds:
        return Finding(PARAMETERS, "the number of parameters was not measured", "not decided")
    return judge_exactly(
        PARAMETERS,
        f"{saved.mean:,.0f} parameters fewer; vocabulary · d_model = {expected:,}",
        holds=saved.mean == expected,
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
