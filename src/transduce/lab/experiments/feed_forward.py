"""The position-wise feed-forward network as two convolutions, and what it is for (paper 3.3, Table 3 C)."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.lab.conclusion import Chart, Claim, ClaimResult, Conclusion
from transduce.lab.cost import measure_seconds
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import SETTINGS, Laboratory
from transduce.lab.measurements import Results, Value
from transduce.lab.statistics import confidence_interval, judge_exactly, judge_larger
from transduce.lab.variants import plan_training, tabulate_variants
from transduce.model import FeedForward
from transduce.pages import Series, Table, draw_line_chart

PAPER = TransformerConfig()
"""The network whose feed-forward network is compared with convolutions: the paper's base model."""

ROUNDING = 1e-12
"""Largest relative difference, in double precision, that comes from rounding alone: its unit is 1.1e-16, and a sum of
d_ff = 2048 products is off by some dozens to hundreds of them."""

NUM_POSITIONS = (64, 256, 1024)
"""Numbers of positions whose time is measured."""

PRODUCTS, CONVOLUTIONS = "matrix products", "convolutions"

D_FF = int(SETTINGS["model.d_ff"])
SIZES = (1, D_FF // 4, D_FF, 4 * D_FF)
"""Values of d_ff with which models are trained; a single hidden unit is nearly no feed-forward network."""

MAX_SECONDS = 4.0
"""Most time for which the computations for one number of positions are repeated."""

SEPARATELY = Claim("3.3", "The network is applied to each position separately and identically.")
AS_CONVOLUTIONS = Claim("3.3", "It can also be described as two convolutions with kernel size 1.")
SMALLER = Claim("6.2, Table 3 (C)", "With a d_ff smaller than the base model's, a model is worse.")
LARGER = Claim("6.2, Table 3 (C)", "With a d_ff larger than the base model's, a model is better.")

SETTING = (
    f"A model of d_model = {SETTINGS['model.d_model']} on easy text stands for the paper's; all models are trained for "
    "the same number of updates. A network with one hidden unit takes the place of none at all, which the model does "
    "not have."
)
LAYOUT = (
    f"Convolutions are compared at the paper's d_model = {PAPER.d_model} and d_ff = {PAPER.d_ff}, each in the memory "
    "layout of its own kind."
)


class Convolutions(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 as two convolutions of width 1, with the parameters of a `FeedForward`.

    Inputs and outputs are [batch, d_model, length], as convolutions have them.
    """

    def __init__(self, network: FeedForward) -> None:
        super().__init__()
        d_ff, d_model = network.inner.weight.shape
        self.inner = nn.Conv1d(d_model, d_ff, kernel_size=1)
        self.outer = nn.Conv1d(d_ff, d_model, kernel_size=1)
        with torch.no_grad():
            for own, other in ((self.inner, network.inner), (self.outer, network.outer)):
                own.weight.copy_(other.weight[:, :, None])
                own.bias.copy_(other.bias)  # type: ignore[union-attr]

    def forward(self, inputs: Tensor) -> Tensor:
        """Transform all positions."""
        outputs: Tensor = self.outer(self.inner(inputs).relu())
        return outputs


def measure_equality(seed: int, config: TransformerConfig = PAPER) -> Mapping[str, float]:
    """How far convolutions are from the model's feed-forward network, relative to the largest number of each tensor.

    Returns:
        "outputs" and "gradients" (the largest difference of those of inputs, matrices and biases), in double precision
        and in "outputs, float32" and "gradients, float32"; "neighbours", by how much the outputs change at other
        positions if one position changes; "order", by how much outputs differ if all positions change places, and the
        outputs change back.
    """
    torch.manual_seed(seed)
    found: dict[str, float] = {}
    for name, dtype in ((", float32", torch.float32), ("", torch.float64)):
        network = FeedForward(config).to(dtype)
        convolutions = Convolutions(network).to(dtype)
        inputs = torch.randn(4, 32, config.d_model, dtype=dtype)
        outer = torch.randn_like(inputs)
        products, gradients = _differentiate(network, inputs, outer)
        convolved, other_gradients = _differentiate(convolutions, inputs.transpose(1, 2), outer.transpose(1, 2))
        found[f"outputs{name}"] = _difference(products, convolved.transpose(1, 2))
        other_gradients[0] = other_gradients[0].transpose(1, 2)
        found[f"gradients{name}"] = max(
            _difference(one, other.reshape(one.shape)) for one, other in zip(gradients, other_gradients, strict=True)
        )
    with torch.no_grad():
        changed = inputs.clone()
        changed[:, 7] += 1.0
        others = torch.arange(inputs.size(1)) != 7
        order = torch.randperm(inputs.size(1))
        found["neighbours"] = _difference(network(inputs)[:, others], network(changed)[:, others])
        found["order"] = _difference(network(inputs)[:, order], network(inputs[:, order]))
    return found


def _differentiate(network: nn.Module, inputs: Tensor, outer: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The outputs, and the gradients of inputs and parameters: W_1, b_1, W_2, b_2."""
    inputs = inputs.detach().clone().requires_grad_()
    outputs = network(inputs)
    gradients = torch.autograd.grad(outputs, [inputs, *network.parameters()], outer)
    return outputs.detach(), list(gradients)


def _difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / one.abs().max())


def measure_time(num_positions: int, seconds: float, seed: int) -> Mapping[str, float]:
    """Seconds of both computations in float32, measured for `seconds` in all.

    Returns:
        For `PRODUCTS` and `CONVOLUTIONS`, named as in "both, matrix products": "forward", a forward pass without
        gradients, and "both", forward and backward pass together.
    """
    torch.manual_seed(seed)
    plain = FeedForward(PAPER)
    networks: dict[str, nn.Module] = {PRODUCTS: plain, CONVOLUTIONS: Convolutions(plain)}
    rows = torch.randn(1, num_positions, PAPER.d_model)
    inputs = {PRODUCTS: rows, CONVOLUTIONS: rows.transpose(1, 2).contiguous()}
    with_gradients = {kind: one.clone().requires_grad_() for kind, one in inputs.items()}

    @torch.no_grad()
    def forward(kind: str) -> None:
        networks[kind](inputs[kind])

    def both(kind: str) -> None:
        networks[kind](with_gradients[kind]).backward(torch.ones_like(inputs[kind]))

    calls = {f"{one.__name__}, {kind}": partial(one, kind) for one in (forward, both) for kind in networks}
    return measure_seconds(calls, seconds)


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: the comparison with convolutions, their times, and models with each d_ff."""
    variants: dict[str, dict[str, Value]] = {_name(d_ff): {"model.d_ff": d_ff} for d_ff in SIZES}
    reserve = 0.1 * laboratory.budget
    share = 0.5 * reserve / (len(NUM_POSITIONS) * len(laboratory.seeds))
    seconds = float(laboratory.decide_once("seconds", lambda: min(MAX_SECONDS, share)))
    return [
        Trial({"comparison": "convolutions"}, measure_equality, cost=0.05),
        *(Trial({"positions": n}, partial(measure_time, n, seconds), cost=0.1) for n in NUM_POSITIONS),
        *plan_training(laboratory, variants, reserve=reserve),
    ]


def _name(d_ff: int) -> str:
    return f"d_ff = {d_ff}"


def conclude(results: Results) -> Conclusion:
    """Verdicts on equality from double precision, and on d_ff from the losses of the trained models."""

    def worst(*quantities: str) -> float | None:
        values = [value for one in quantities for value in results.by_seed(one).values()]
        return max(values) if values else None

    separately, together = worst("neighbours", "order"), worst("outputs", "gradients")
    in_float32 = worst("outputs, float32", "gradients, float32")

    def compare_losses(claim: Claim, larger: int, smaller: int) -> ClaimResult:
        first, second = (results.by_seed("loss", variant=_name(d_ff)) for d_ff in (larger, smaller))
        what = f"loss with d_ff = {larger} minus loss with d_ff = {smaller}, in nats per token"
        return judge_larger(claim, first, second, what)

    claim_results = [
        judge_exactly(
            SEPARATELY,
            "if one position changes, outputs at the others differ by at most "
            f"{_show(worst('neighbours'))} of the largest output, and if positions change places, by "
            f"{_show(worst('order'))}; up to {ROUNDING:g} is rounding in double precision",
            holds=None if separately is None else separately <= ROUNDING,
        ),
        judge_exactly(
            AS_CONVOLUTIONS,
            f"outputs and gradients differ by at most {_show(together)} of the largest number in double precision, "
            f"where up to {ROUNDING:g} is rounding, and by {_show(in_float32)} in single precision",
            holds=None if together is None else together <= ROUNDING,
        ),
        compare_losses(SMALLER, D_FF // 4, D_FF),
        compare_losses(LARGER, D_FF, 4 * D_FF),
    ]
    return Conclusion(
        claim_results,
        charts=[_draw_times(results), _draw_losses(results)],
        tables=[
            tabulate_variants(results, ("loss", "bleu", "exact", "parameters", "tokens_per_second")),
            _tabulate_times(results),
        ],
        remarks=[SETTING, LAYOUT],
    )


def _show(difference: float | None) -> str:
    return "an unknown part" if difference is None else f"{difference:.1e}" if difference else "0"


def _draw_times(results: Results) -> Chart:
    title = "Time of one feed-forward network"
    series = [
        Series(kind, [(n, 1000 * y) for n, y in results.curve("positions", f"both, {kind}")])
        for kind in (PRODUCTS, CONVOLUTIONS)
    ]
    drawn = draw_line_chart(title, series, "positions", "ms, forward and backward", log=True, log_x=True)
    return Chart(title, drawn)


def _draw_losses(results: Results) -> Chart:
    title = "Loss over d_ff"
    points = [(float(d_ff), results.by_seed("loss", variant=_name(d_ff))) for d_ff in SIZES]
    measured = [(d_ff, list(values.values())) for d_ff, values in points if values]
    series = Series(
        "mean, lowest and highest of the seeds",
        [(d_ff, sum(values) / len(values)) for d_ff, values in measured],
        [(min(values), max(values)) for _, values in measured],
    )
    return Chart.draw_lines(title, [series], "d_ff", "nats per token", log_x=True)


def _tabulate_times(results: Results) -> Table:
    rows = []
    for n in NUM_POSITIONS:
        for kind in (PRODUCTS, CONVOLUTIONS):
            cells = [
                confidence_interval(
                    {seed: 1000 * y for seed, y in results.by_seed(f"{one}, {kind}", positions=n).items()}
                ).format(".3f")
                for one in ("forward", "both")
            ]
            rows.append([kind, str(n), *cells])
    heads = ["computed as", "positions", "forward, ms", "forward and backward, ms"]
    return Table("Time of one feed-forward network in float32", heads, rows)


EXPERIMENT = Experiment(
    title="The feed-forward network as two convolutions, and what it is for",
    claims=[SEPARATELY, AS_CONVOLUTIONS, SMALLER, LARGER],
    method=(
        "The model's feed-forward network is compared with two convolutions of width 1 that have the same parameters: "
        "outputs, gradients and time. Then models that differ in nothing but d_ff are trained for the same number of "
        f"updates, with a quarter of the usual d_ff = {D_FF}, with all of it, with four times as much, and with a "
        "single hidden unit, and their loss on held-out text is compared."
    ),
    plan=plan,
    conclude=conclude,
)
