"""Dropout and label smoothing, on so few pairs that models over-fit (paper 5.4, Table 3 D)."""

from collections.abc import Mapping, Sequence
from functools import partial

from transduce.bundle import Bundle
from transduce.lab.conclusion import Chart, Claim, Conclusion
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Results, Value
from transduce.lab.statistics import format_means, judge_larger
from transduce.pages import Series, Table
from transduce.training.model_selection.validation import compute_teacher_forced_metrics

NUM_PAIRS = 1000
"""Pairs to train on, also of a user's text: so few that each is seen many times, and can be learned by heart."""

DROPOUT, SMOOTHING = 0.1, 0.1
"""The paper's values."""

DROPOUTS = (0.0, 0.1, 0.2)
SMOOTHINGS = (0.0, 0.1, 0.2)
"""Those of Table 3 D. Of each pair of values, one is the paper's."""

OVER_FITTING = Claim("6.2, Table 3 D", "Dropout is very helpful in avoiding over-fitting.")
DROPOUT_QUALITY = Claim("6.2, Table 3 D", "Without dropout, translations are worse.")
PERPLEXITY = Claim("5.4", "Label smoothing hurts perplexity.")
ACCURACY = Claim("5.4", "Label smoothing improves accuracy.")
BLEU = Claim("5.4", "Label smoothing improves BLEU.")


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: the paper's dropout with each label smoothing, and its label smoothing with each dropout."""
    laboratory = laboratory.with_fewer_pairs(NUM_PAIRS)
    choices = [(dropout, SMOOTHING) for dropout in DROPOUTS]
    choices += [(DROPOUT, smoothing) for smoothing in SMOOTHINGS if smoothing != SMOOTHING]
    updates = laboratory.plan_updates([_make_settings(*choice) for choice in choices])
    return [
        Trial(
            {"dropout": dropout, "smoothing": smoothing},
            partial(train_and_measure, laboratory, _make_settings(dropout, smoothing), updates),
        )
        for dropout, smoothing in choices
    ]


def _make_settings(dropout: float, smoothing: float) -> dict[str, Value]:
    return {"model.dropout": dropout, "training.label_smoothing": smoothing}


def train_and_measure(
    laboratory: Laboratory, settings: Mapping[str, Value], updates: int, seed: int
) -> Mapping[str, float]:
    """What `Laboratory.train` measures, and how well the tokens of two texts are predicted.

    Returns:
        The same, but "loss" is that on the test pairs; "accuracy": share of their tokens that are predicted; and
        "training loss": cross-entropy on the training text without dropout, in nats per token.
    """
    found = laboratory.train(settings, updates, seed)
    if "diverged" in found:
        return found
    bundle = Bundle.open(laboratory.find_run(settings, updates, seed) / "best")
    model, tokenizer = bundle.load_model(), bundle.load_tokenizer()
    held_out = set(laboratory.prepare(settings).validation)
    seen = [pair for pair in laboratory.training_pairs if pair not in held_out]
    loss, accuracy = compute_teacher_forced_metrics(model, tokenizer, laboratory.test_pairs)
    training = compute_teacher_forced_metrics(model, tokenizer, seen)
    return {**found, "loss": loss, "accuracy": accuracy, "training loss": training.loss}


def conclude(results: Results) -> Conclusion:
    """Verdicts on over-fitting by the loss, and on label smoothing by loss, accuracy and BLEU."""

    def find(quantity: str, dropout: float = DROPOUT, smoothing: float = SMOOTHING) -> dict[int, float]:
        return results.by_seed(quantity, dropout=dropout, smoothing=smoothing)

    return Conclusion(
        [
            judge_larger(
                OVER_FITTING,
                find("loss", dropout=0.0),
                find("loss"),
                f"loss on unseen text without dropout minus loss with dropout of {DROPOUT}, in nats per token",
                form=".3f",
            ),
            judge_larger(
                DROPOUT_QUALITY,
                find("bleu"),
                find("bleu", dropout=0.0),
                f"BLEU with dropout of {DROPOUT} minus BLEU without",
                form=".2f",
            ),
            judge_larger(
                PERPLEXITY,
                find("loss"),
                find("loss", smoothing=0.0),
                f"loss (the logarithm of perplexity) on unseen text with label smoothing of {SMOOTHING} minus loss "
                "without, in nats per token",
                form=".3f",
            ),
            judge_larger(
                ACCURACY,
                find("accuracy"),
                find("accuracy", smoothing=0.0),
                f"accuracy with label smoothing of {SMOOTHING} minus accuracy without",
                form=".4f",
            ),
            judge_larger(
                BLEU,
                find("bleu"),
                find("bleu", smoothing=0.0),
                f"BLEU with label smoothing of {SMOOTHING} minus BLEU without",
                form=".2f",
            ),
        ],
        charts=[
            _draw_losses(results, "dropout", smoothing=SMOOTHING),
            _draw_losses(results, "smoothing", dropout=DROPOUT),
        ],
        tables=[_tabulate(results)],
        remarks=[
            f"Models see {NUM_PAIRS:,} pairs, less a tenth for validation, many times each; the paper had 4.5 million.",
            "The loss of a finished model is measured without dropout and without label smoothing on both texts.",
        ],
    )


def _draw_losses(results: Results, setting: str, **fixed: float) -> Chart:
    title = "Loss over dropout" if setting == "dropout" else "Loss over label smoothing"
    series = [
        Series("unseen text", results.curve(setting, "loss", **fixed)),
        Series("training text", results.curve(setting, "training loss", **fixed)),
    ]
    return Chart.draw_lines(title, series, setting, "nats per token")


def _tabulate(results: Results) -> Table:
    quantities = {"loss": ".3f", "training loss": ".3f", "accuracy": ".1%", "bleu": ".2f", "chrf": ".2f"}
    choices = [(one.settings["dropout"], one.settings["smoothing"]) for one in results.measurements]
    rows = [
        [str(dropout), str(smoothing), *format_means(results, quantities, dropout=dropout, smoothing=smoothing)]
        for dropout, smoothing in dict.fromkeys(choices)
    ]
    return Table(
        "Models after training: mean over the seeds (95 % confidence interval)",
        ["dropout", "label smoothing", "loss, nats per token", "loss on training text", "accuracy", "BLEU", "chrF"],
        rows,
        num_texts=2,
    )


EXPERIMENT = Experiment(
    title="Dropout and label smoothing on few pairs",
    claims=[OVER_FITTING, DROPOUT_QUALITY, PERPLEXITY, ACCURACY, BLEU],
    method=(
        f"Models are trained on {NUM_PAIRS:,} pairs for the same number of updates, with the values of dropout and of "
        "label smoothing in Table 3 D. Their loss is measured on the training text and on unseen text: the more the "
        "second exceeds the first, the more a model over-fits. Accuracy is the share of tokens that are predicted, "
        "given the tokens before them in the reference; BLEU is that of translations."
    ),
    plan=plan,
    conclude=conclude,
)
