"""Networks that learn an operation on binary numbers, and what they do with longer numbers than those of training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from transduce.lab.conclusion import Chart, Claim, ClaimResult, Conclusion
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
from transduce.lab.measurements import Results, keep_finite
from transduce.lab.statistics import judge_above, judge_share_above
from transduce.pages import Series, Table

NEURAL_GPU, EXTENDED, TRANSFORMER = "Neural GPU", "Extended Neural GPU", "Transformer"
NETWORKS = (NEURAL_GPU, EXTENDED, TRANSFORMER)

NEARLY_ALL = 0.9
"""Share of results that are right to the last bit, above which a network counts as having learned the operation."""

USUAL_SECONDS = 600.0
"""Seconds of a seed for which the numbers of updates are chosen."""

LEAST_SHARE = 0.01
"""Least part of the usual updates, some dozens."""

EXTENDED_LEARNS = Claim(
    "Kaiser & Bengio 2016", "The Extended Neural GPU, whose decoder reads an output tape, learns algorithms, too."
)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation on two binary numbers, and the networks that learn it."""

    verb: str
    """What the operation does, as in "add"."""
    result: str
    """What the operation makes, as in "sum"."""
    neural_gpu: NeuralGPUSettings
    extended: ExtendedNeuralGPUSettings
    transformer: TransformerSettings
    learns: Claim
    """The claim that the Neural GPU learns the operation."""
    generalizes: Claim
    """The claim that the Neural GPU then gives right results for longer numbers than those of training."""
    transformer_fails: Claim | None = None
    """The claim that a Transformer gives wrong results for longer numbers than those of training."""
    remark: str
    """How training differs from that of the claims' papers."""

    @property
    def training(self) -> TrainingSettings:
        """The training of the Neural GPU; that of the others has the same numbers."""
        return self.neural_gpu.training

    @property
    def longest(self) -> int:
        """Bits of the longest numbers of training."""
        return self.training.longest_length

    @property
    def beyond(self) -> int:
        """Bits of the numbers with which networks are tested beyond training."""
        return 2 * self.longest


def make_experiment(operation: Operation, title: str) -> Experiment:
    """The experiment that compares Neural GPU, Extended Neural GPU and Transformer with an operation."""
    claims = [operation.learns, operation.generalizes, EXTENDED_LEARNS]
    return Experiment(
        title=title,
        claims=[*claims, *([operation.transformer_fails] if operation.transformer_fails else [])],
        method=(
            f"Networks of about the same number of parameters learn to {operation.verb} binary numbers, written with "
            f"the lowest bit first, by a curriculum of growing length up to {operation.longest} bits. Then they "
            f"{operation.verb} numbers of other lengths, also longer ones, and a {operation.result} counts as right if "
            "all of its bits are."
        ),
        plan=partial(plan, operation),
        conclude=partial(conclude, operation),
        num_seeds=1,
    )


def plan(operation: Operation, laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: the three networks; with another budget, with more or fewer updates."""
    training_share = laboratory.decide_training_share(USUAL_SECONDS, least=LEAST_SHARE)

    def scale(training: TrainingSettings) -> TrainingSettings:
        return replace(training, updates=max(1, round(training.updates * training_share)))

    gpu, extended, transformer = operation.neural_gpu, operation.extended, operation.transformer
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


def conclude(operation: Operation, results: Results) -> Conclusion:
    """Verdicts on results of the length of training and of twice that length, and accuracy over length."""
    claim_results = [
        _judge(operation, results, operation.learns, NEURAL_GPU, operation.longest),
        _judge(operation, results, operation.generalizes, NEURAL_GPU, operation.beyond),
        _judge(operation, results, EXTENDED_LEARNS, EXTENDED, operation.longest),
    ]
    if operation.transformer_fails is not None:
        claim_results.append(_judge_failure(operation, results, operation.transformer_fails))
    title = f"Share of right {operation.result}s over the length of the numbers"
    shown = [network for network in NETWORKS if results.select(network=network).measurements]
    lengths = operation.training.test_lengths

    def find_share(network: str, length: int) -> float:
        return results.mean(f"exact, {length} bits", network=network)

    def find_curve(network: str) -> list[tuple[float, float]]:
        shares = [(float(length), find_share(network, length)) for length in lengths]
        return keep_finite(shares)

    curves = [Series(network, find_curve(network)) for network in shown]
    rows = [
        [
            network,
            *(f"{find_share(network, length):.0%}" for length in lengths),
            f"{results.mean('longest', network=network):.0f}",
            f"{results.mean('parameters', network=network):,.0f}",
            f"{results.mean('seconds', network=network):,.0f}",
        ]
        for network in shown
    ]
    heads = ["network", *(f"{length} bits" for length in lengths), "longest in training", "parameters", "seconds"]
    return Conclusion(
        claim_results,
        charts=[Chart.draw_lines(title, curves, "bits", "")],
        tables=[Table(f"Share of {operation.result}s that are right to the last bit", heads, rows)],
        remarks=[
            f"Training begins with one bit, and ends with {operation.longest} or as many as a network came to.",
            operation.remark,
            f"With one seed, intervals are those of the test {operation.result}s.",
            "The three networks have about as many parameters, and numbers of updates that take about as long.",
        ],
    )


def _judge(operation: Operation, results: Results, claim: Claim, network: str, length: int) -> ClaimResult:
    """The result for the claim that a network has nearly all results right for numbers of `length` bits."""
    shares = results.by_seed(f"exact, {length} bits", network=network)
    what = f"{network}: share of right {operation.result}s of numbers of {length} bits"
    return _judge_share(operation, claim, shares, what)


def _judge_failure(operation: Operation, results: Results, claim: Claim) -> ClaimResult:
    """The result for the claim that the Transformer has nearly all results wrong for numbers beyond training.

    Not decided unless it has learned the operation, with every seed.
    """
    learned = results.by_seed(f"exact, {operation.longest} bits", network=TRANSFORMER)
    if not learned or min(learned.values()) <= NEARLY_ALL:
        measured = f"{TRANSFORMER}: has not learned to {operation.verb} numbers of {operation.longest} bits"
        return ClaimResult(claim, measured, "not decided")
    shares = results.by_seed(f"exact, {operation.beyond} bits", network=TRANSFORMER)
    what = f"{TRANSFORMER}: share of wrong {operation.result}s of numbers of {operation.beyond} bits"
    return _judge_share(operation, claim, {seed: 1 - share for seed, share in shares.items()}, what)


def _judge_share(operation: Operation, claim: Claim, shares: Mapping[int, float], what: str) -> ClaimResult:
    """Judge a claim by the shares of the seeds; with a single seed, by its test numbers, one by one."""
    if len(shares) > 1:
        return judge_above(claim, dict(shares), NEARLY_ALL, what)
    num_all = len(shares) * operation.training.num_tests
    num_right = round(sum(shares.values()) * operation.training.num_tests)
    return judge_share_above(claim, num_right, num_all, NEARLY_ALL, what)
