"""Addition of binary numbers longer than those of training: Neural GPUs beside a Transformer (paper 2)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from transduce.lab.conclusion import Chart, Claim, Conclusion, Finding, Table
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.experiments.algorithms.training import (
    ExtendedNeuralGPUSettings,
    Measurements,
    NeuralGPUSettings,
    TrainingSettings,
    TransformerSettings,
    train_extended_neural_gpu,
    train_neural_gpu,
    train_transformer,
)
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Results
from transduce.lab.statistics import judge_above, judge_share_above
from transduce.training.reporting.charts import Series, draw_line_chart

NEURAL_GPU, EXTENDED, TRANSFORMER = "Neural GPU", "Extended Neural GPU", "Transformer"
NETWORKS = (NEURAL_GPU, EXTENDED, TRANSFORMER)

NEARLY_ALL = 0.9
"""Share of sums that are right to the last bit, above which a network counts as having learned to add."""

USUAL_BUDGET = 600.0
"""Seconds for which the numbers of updates are chosen, with one seed."""

TRAINING = TrainingSettings()
TRAINED, BEYOND = TRAINING.longest_length, 2 * TRAINING.longest_length
"""Bits of the longest numbers of training, and of those with which networks are tested beyond it."""

ADDS = Claim("Kaiser & Sutskever 2016", "A Neural GPU learns to add binary numbers from examples.")
GENERALISES = Claim("Kaiser & Sutskever 2016", "It adds numbers much longer than those of its training, without error.")
EXTENDED_ADDS = Claim(
    "Kaiser & Bengio 2016",
    "The Extended Neural GPU, whose decoder reads an output tape, learns algorithms, too.",
)
TRANSFORMER_FAILS = Claim(
    "Dehghani et al. 2019", "A Transformer does not add numbers longer than those of its training."
)


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """The trials: the three networks; with another budget, with more or fewer updates."""
    share = float(laboratory.remember("share", lambda: laboratory.budget / (USUAL_BUDGET * len(laboratory.seeds))))

    def scale(training: TrainingSettings) -> TrainingSettings:
        return replace(training, updates=max(10, round(training.updates * min(share, 4.0))))

    gpu, extended, transformer = NeuralGPUSettings(), ExtendedNeuralGPUSettings(), TransformerSettings()
    runs = {
        NEURAL_GPU: partial(train_neural_gpu, replace(gpu, training=scale(gpu.training))),
        EXTENDED: partial(train_extended_neural_gpu, replace(extended, training=scale(extended.training))),
        TRANSFORMER: partial(train_transformer, replace(transformer, training=scale(transformer.training))),
    }

    def measure(name: str, seed: int) -> Mapping[str, float]:
        return _name_figures(runs[name](seed, laboratory.folder / "runs" / f"{name}, seed {seed}", laboratory.report))

    return [Trial({"network": name}, partial(measure, name)) for name in NETWORKS]


def _name_figures(measured: Measurements) -> dict[str, float]:
    exact = {f"exact, {length} bits": share for length, share in measured.exact_accuracy.items()}
    sizes = {"parameters": float(measured.num_parameters), "longest": float(measured.longest_length)}
    return {**exact, **sizes, "seconds": measured.seconds}


def conclude(results: Results) -> Conclusion:
    """Verdicts on sums of the length of training and of twice that length, and accuracy over length."""

    def judge(claim: Claim, network: str, length: int, *, is_denied: bool = False) -> Finding:
        shares = results.by_seed(f"exact, {length} bits", network=network)
        num_all = len(shares) * TRAINING.num_tests
        num_right = round(sum(shares.values()) * TRAINING.num_tests)
        what = f"{network}: share of right sums of numbers of {length} bits"
        if is_denied and not _has_learned(results, network):
            return Finding(claim, f"{network}: has not learned to add numbers of {TRAINED} bits", "not decided")
        if len(shares) > 1:
            values = {seed: 1 - share for seed, share in shares.items()} if is_denied else shares
            return judge_above(claim, values, NEARLY_ALL, what.replace("right", "wrong") if is_denied else what)
        if is_denied:
            return judge_share_above(
                claim, num_all - num_right, num_all, NEARLY_ALL, what.replace("right sums", "wrong sums")
            )
        return judge_share_above(claim, num_right, num_all, NEARLY_ALL, what)

    findings = [
        judge(ADDS, NEURAL_GPU, TRAINED),
        judge(GENERALISES, NEURAL_GPU, BEYOND),
        judge(EXTENDED_ADDS, EXTENDED, TRAINED),
        judge(TRANSFORMER_FAILS, TRANSFORMER, BEYOND, is_denied=True),
    ]
    lengths = TRAINING.test_lengths
    series = [
        Series(
            network,
            [
                (float(length), results.mean(f"exact, {length} bits", network=network))
                for length in lengths
                if results.by_seed(f"exact, {length} bits", network=network)
            ],
        )
        for network in NETWORKS
    ]
    rows = [
        [
            network,
            *(f"{results.mean(f'exact, {length} bits', network=network):.0%}" for length in lengths),
            f"{results.mean('longest', network=network):.0f}",
            f"{results.mean('parameters', network=network):,.0f}",
            f"{results.mean('seconds', network=network):,.0f}",
        ]
        for network in NETWORKS
        if results.select(network=network).measurements
    ]
    heads = ["network", *(f"{length} bits" for length in lengths), "longest in training", "parameters", "seconds"]
    title = "Share of right sums over the length of the numbers"
    return Conclusion(
        findings,
        charts=[Chart(title, draw_line_chart(title, series, "bits", ""))],
        tables=[Table("Share of sums that are right to the last bit", heads, rows)],
        remarks=[REMARK],
    )


REMARK = (
    f"Numbers of training have up to {TRAINED} bits, fewer where a network did not get so far in its time. With one "
    "seed, intervals are those of the test sums: with another seed, a network may learn less, or not generalise. The "
    "three networks have about as many parameters, and different numbers of updates, chosen to take about as long."
)


def _has_learned(results: Results, network: str) -> bool:
    """Whether a network adds numbers of the length of training, with every seed."""
    shares = results.by_seed(f"exact, {TRAINED} bits", network=network)
    return bool(shares) and min(shares.values()) > NEARLY_ALL


EXPERIMENT = Experiment(
    title="Adding longer numbers than in training: Neural GPUs beside a Transformer",
    claims=[ADDS, GENERALISES, EXTENDED_ADDS, TRANSFORMER_FAILS],
    method=(
        "Networks of about the same number of parameters learn to add binary numbers, written with the lowest bit "
        f"first, by a curriculum of growing length up to {TRAINED} bits. Then they add numbers of other lengths, also "
        "longer ones, and a sum counts as right if all of its bits are."
    ),
    plan=plan,
    conclude=conclude,
    num_seeds=1,
)
