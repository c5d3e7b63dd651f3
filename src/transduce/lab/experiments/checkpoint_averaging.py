"""Whether the mean of the last checkpoints is better than a single one (paper 6.1)."""

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from transduce.bundle import Bundle, list_checkpoints, save_bundle
from transduce.lab.conclusion import Chart, Claim, Conclusion
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import FEW_PAIRS, Laboratory
from transduce.lab.measurements import Results, Value, keep_finite
from transduce.lab.statistics import format_means, judge_larger
from transduce.pages import Series, Table
from transduce.training import RunFolder, average_run
from transduce.training.model_selection.checkpoint_averaging import average_checkpoints
from transduce.training.model_selection.validation import compute_teacher_forced_metrics

SCHEDULES: Mapping[str, Mapping[str, Value]] = {
    "inverse square root": {"training.schedule": "inverse_square_root"},
    "constant": {"training.schedule": "warmup_stable_decay", "training.decay_share": 1e-9},
    "linear to zero": {"training.schedule": "linear"},
}
"""Learning rates after the warm-up; the first is the paper's, in its form. The constant one is halved in the very last
update, as that schedule has a decay of at least one update."""
PAPER, CONSTANT, LINEAR = SCHEDULES

NUM_CHECKPOINTS = 50
"""Checkpoints of a run. The paper wrote some 70 in the 12 hours of its base model, one every ten minutes."""

AVERAGED = (2, 5, 10)
"""Numbers of checkpoints that are averaged; the paper took 5."""

LAST, BEST = "last checkpoint", f"best of the last {AVERAGED[-1]}"
MODELS = (LAST, BEST, *(f"mean of the last {number}" for number in AVERAGED))
MEAN_OF_FIVE = f"mean of the last {AVERAGED[1]}"

SECONDS_OF_SCORING = 20.0
"""Part of the budget for scoring single checkpoints and means of each seed."""

BETTER = Claim(
    "Gao et al. 2022",
    "The mean of several checkpoints translates better than a single one: here, of the last 5, as in the paper, than "
    "the last.",
)
STEADY = Claim("Hägele et al. 2024", "With a constant learning rate, averaging the last weights lowers the loss.")
DECAY = Claim(
    "Hägele et al. 2024", "Averaging gains more with a constant learning rate than with one that falls to zero."
)


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: a run with each schedule, then its last checkpoints and their means."""
    laboratory = laboratory.with_fewer_generated_pairs(FEW_PAIRS)
    updates = laboratory.plan_updates([*SCHEDULES.values()], reserve=SECONDS_OF_SCORING * len(laboratory.seeds))
    trials = []
    for name, schedule in SCHEDULES.items():
        settings = {
            **schedule,
            "model.dropout": 0.1,  # the paper's (5.4), as each of the few pairs is seen many times
            "training.checkpoint_every": max(1, updates // NUM_CHECKPOINTS),
            "training.keep_checkpoints": AVERAGED[-1],
        }
        trials.append(Trial({"schedule": name}, partial(laboratory.train, settings, updates)))
        trials += [
            Trial(
                {"schedule": name, "model": model},
                partial(_score_model, laboratory, settings, updates, model),
                cost=0.1,
            )
            for model in MODELS
        ]
    return trials


def _score_model(
    laboratory: Laboratory, settings: Mapping[str, Value], updates: int, model: str, seed: int
) -> Mapping[str, float]:
    run = laboratory.find_run(settings, updates, seed)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        if model == BEST:
            save_best_checkpoint(run, laboratory.prepare(settings).validation, bundle)
        else:
            average_run(run, {LAST: 1, **dict(zip(MODELS[2:], AVERAGED, strict=True))}[model], bundle)
        opened = Bundle.open(bundle)
        prediction = compute_teacher_forced_metrics(opened.load_model(), opened.load_tokenizer(), laboratory.test_pairs)
        return {"loss": prediction.loss, **laboratory.score(bundle, beam=4)}


def save_best_checkpoint(run: Path, pairs: Sequence[tuple[str, str]], output: Path) -> int:
    """Write the checkpoint of a run with the lowest loss on `pairs` as a bundle; return its update."""
    folder, bundle = RunFolder(run), Bundle.open(run / "last")
    tokenizer, losses = bundle.load_tokenizer(), {}
    for update in list_checkpoints(folder.checkpoints):
        model = average_checkpoints(folder, [update], bundle.model_config)
        losses[update] = compute_teacher_forced_metrics(model, tokenizer, pairs).loss
    best = min(losses, key=lambda update: losses[update])
    save_bundle(output, average_checkpoints(folder, [best], bundle.model_config), tokenizer, bundle.description)
    return best


def conclude(results: Results) -> Conclusion:
    """Verdicts on BLEU with the paper's schedule, and on the loss with a constant and with a decaying rate."""

    def find(quantity: str, schedule: str, model: str) -> dict[int, float]:
        return results.by_seed(quantity, schedule=schedule, model=model)

    def find_gain(schedule: str) -> dict[int, float]:
        last, mean = (find("loss", schedule, model) for model in (LAST, MEAN_OF_FIVE))
        return {seed: last[seed] - mean[seed] for seed in last.keys() & mean.keys()}

    return Conclusion(
        [
            judge_larger(
                BETTER,
                find("bleu", PAPER, MEAN_OF_FIVE),
                find("bleu", PAPER, LAST),
                "BLEU of the mean of 5 minus BLEU of the last checkpoint, with a rate that falls with the inverse "
                "square root",
                form=".2f",
            ),
            judge_larger(
                STEADY,
                find("loss", CONSTANT, LAST),
                find("loss", CONSTANT, MEAN_OF_FIVE),
                "loss of the last checkpoint minus loss of the mean of 5, with a constant rate, in nats per token",
                form=".4f",
            ),
            judge_larger(
                DECAY,
                find_gain(CONSTANT),
                find_gain(LINEAR),
                "what the mean of 5 gains over the last checkpoint with a constant rate, minus what it gains with a "
                "rate that falls to zero, in nats per token",
                form=".4f",
            ),
        ],
        charts=[_draw_over_number(results, "loss", "nats per token"), _draw_over_number(results, "bleu", "BLEU")],
        tables=[_tabulate_models(results)],
        remarks=[
            "The paper scores means of its last checkpoints (6.1), and does not say that they are better.",
            f"Each run has {NUM_CHECKPOINTS} checkpoints, so that the last 5 are those of the last tenth of the run.",
            "The best checkpoint is that with the lowest loss on the validation text, models are compared on other.",
        ],
    )


def _draw_over_number(results: Results, quantity: str, unit: str) -> Chart:
    numbers = dict(zip((LAST, *MODELS[2:]), (1, *AVERAGED), strict=True))
    series = []
    for schedule in SCHEDULES:
        means = [(float(n), results.mean(quantity, schedule=schedule, model=model)) for model, n in numbers.items()]
        series.append(Series(schedule, keep_finite(means)))
    title = f"{'BLEU' if quantity == 'bleu' else 'Loss'} of the mean of the last checkpoints"
    return Chart.draw_lines(title, series, "checkpoints averaged", unit)


def _tabulate_models(results: Results) -> Table:
    quantities = {"loss": ".4f", "bleu": ".2f", "chrf": ".2f", "exact": ".1%"}
    rows = [
        [schedule, model, *format_means(results, quantities, schedule=schedule, model=model)]
        for schedule in SCHEDULES
        for model in MODELS
    ]
    return Table(
        "Models on the test pairs: mean over the seeds (95 % confidence interval)",
        ["learning rate", "model", "loss, nats per token", "BLEU", "chrF", "exact matches"],
        rows,
        num_texts=2,
    )


EXPERIMENT = Experiment(
    title="The mean of the last checkpoints against a single one",
    claims=[BETTER, STEADY, DECAY],
    method=(
        "Models are trained with a learning rate that falls with the inverse square root of the update, as the paper's "
        "does, with a constant one, and with one that falls linearly to zero. Of each run, the last checkpoint, the "
        f"best of the last {AVERAGED[-1]}, and the means of the weights of the last "
        f"{', '.join(map(str, AVERAGED))} checkpoints (as of `transduce average`) are compared by their loss and by "
        "their translations of unseen text with a beam of 4."
    ),
    plan=plan,
    conclude=conclude,
)
