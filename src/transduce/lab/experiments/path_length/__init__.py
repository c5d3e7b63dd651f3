"""Operations between two positions, and what is learned over a distance (paper 4, Table 1)."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

from transduce.baselines import ByteNet, ConvS2S, RecurrentNetwork, make_encoder_decoder
from transduce.baselines.bytenet import DILATIONS, ResidualBlock
from transduce.config import TransformerConfig
from transduce.lab.conclusion import Chart, Claim, ClaimResult, Conclusion
from transduce.lab.cost import measure_seconds
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.experiments.path_length.recall_task import DISTANCES, NUM_SECRETS, measure_update, train_recall
from transduce.lab.laboratory import MIN_UPDATES, TRAINING_SHARE, Laboratory
from transduce.lab.measurements import Results, keep_finite
from transduce.lab.statistics import (
    confidence_interval,
    format_mean,
    judge_exactly,
    judge_larger_than_all,
    judge_ratio_above,
)
from transduce.model import EncoderDecoder, Transformer
from transduce.pages import Series, Table, draw_line_chart

PATH_DISTANCES = tuple(2**power for power in range(10))
"""Distances between two positions for which operations are counted."""

CHAIN_LENGTHS = (16, 32, 64, 128, 256)
"""Lengths of a sentence for which operations that wait for each other are counted."""

VOCABULARY = 64
"""Vocabulary of the networks of which a single layer is measured."""

TIMED_LENGTHS = (16, 64, 256, 1024)
TIMED_WIDTH = 256
"""Lengths n and width d with which the time of a layer is measured: shorter than d, as long, and longer."""

SECONDS_OF_TIMING = 2.0
"""How long the encoding of sentences of one length is repeated."""

SECONDS_OF_COUNTING = 40.0
"""Seconds of the budget for everything but training, with each seed."""

NAMES = {
    "transformer": "self-attention",
    "recurrent": "recurrent",
    "convs2s": "ConvS2S",
    "bytenet": "ByteNet",
}
"""How the networks are called in tables and charts, by `TransformerConfig.architecture`."""

ATTENTION = Claim("4, Table 1", "A self-attention layer connects all positions with a constant number of operations.")
RECURRENCE = Claim("4, Table 1", "Between two positions of a recurrent layer lie O(n) operations.")
CONTIGUOUS = Claim("4, Table 1", "Convolutions of width k connect all positions in a stack of O(n/k) layers.")
DILATED = Claim("4, Table 1", "Dilated convolutions connect all positions in a stack of O(log_k(n)) layers.")
BYTENET = Claim("2", "Operations between two positions grow with their distance logarithmically for ByteNet.")
SEQUENTIAL = Claim(
    "4, Table 1",
    "Self-attention needs a constant number of sequential operations for a sentence, a recurrent layer O(n).",
)
FASTER = Claim("4", "A self-attention layer is faster than a recurrent one where n is smaller than d.")
LEARNING = Claim("4", "The shorter the paths between positions, the easier it is to learn long-range dependencies.")

_REMARK_ON_COUNTS = (
    "Counted are layers of encoders, which see both sides; a recurrent layer is counted in steps. ByteNet as published "
    f"begins its dilations again after {DILATIONS[-1]}, so that its layers grow logarithmically up to a distance of "
    f"{sum(DILATIONS)} and linearly beyond."
)
_REMARK_ON_RECALL = (
    "The token is recalled within the target, as attention to the source, which all networks but ByteNet have, "
    "connects target and source directly. A stack of convolutions cannot learn what it does not reach: here that of "
    "ConvS2S reaches 10 positions back, and that of ByteNet 124."
)
_REMARK_ON_TIME = (
    f"Times are of encoders of one layer with d = {TIMED_WIDTH} in PyTorch on a processor, where a step of a recurrent "
    "layer has the cost of a call besides that of its products."
)


@cache
def measure_stack_lengths(network: str) -> Mapping[int, int]:
    """For each of `PATH_DISTANCES`, the layers (for "recurrent": steps) until a gradient arrives there.

    Args:
        network: "self-attention", "recurrent", "ConvS2S, k = 3" or with another k, "ByteNet", or "dilated": the blocks
            of ByteNet with dilations that double in every block, without beginning again.
    """
    torch.manual_seed(1)
    name, _, width = network.partition(", k = ")
    if name == "recurrent":
        return _count_steps()
    longest = PATH_DISTANCES[-1]
    stack = _Stack(*_make_deep_network(name, int(width or 3)), longest + 1)
    counts: dict[int, int] = {}
    count = 1
    for distance in PATH_DISTANCES:
        choices = range(stack.num_layers + 1)
        count = bisect_left(choices, distance, lo=count, key=stack.measure_reach)
        counts[distance] = count
    return counts


def _make_deep_network(name: str, kernel_width: int) -> tuple[EncoderDecoder, Sequence[nn.Module]]:
    """A narrow network that is deep enough for the longest distance, and its encoder layers."""
    num_layers = {"self-attention": 2, "ConvS2S": PATH_DISTANCES[-1], "ByteNet": 100, "dilated": 12}[name]
    architecture = {"self-attention": "transformer", "ConvS2S": "convs2s"}.get(name, "bytenet")
    given = {"architecture": architecture, "vocabulary": 2 * PATH_DISTANCES[-1], "num_encoder_layers": num_layers}
    small = {"num_decoder_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2, "dropout": 0.0}
    config = TransformerConfig.model_validate({**given, **small, "kernel_width": kernel_width})
    network = make_encoder_decoder(config)
    if name == "dilated":
        blocks = nn.ModuleList(ResidualBlock(config, 2**number) for number in range(num_layers))
        cast("ByteNet", network).encoder = cast("list[ResidualBlock]", blocks)
    network.double()
    match network:
        case Transformer():
            return network, list(network.encoder.layers)
        case ConvS2S() | ByteNet():
            return network, list(network.encoder)
    raise ValueError(name)


class _Stack:
    """The encoder layers of a network, applied to a sentence, and gradients carried back through them.

    Gradients are brought to length 1 at every position after every layer: otherwise the product of hundreds of factors
    below 1 would be zero in floating point.
    """

    def __init__(self, network: EncoderDecoder, layers: Sequence[nn.Module], length: int) -> None:
        self.num_layers = len(layers)
        self._ends: list[tuple[Tensor, Tensor]] = []  # input and output of each layer
        hooks = [layer.register_forward_hook(self._keep) for layer in layers]
        ids = torch.arange(length)[None]
        network.encode(ids, torch.ones_like(ids, dtype=torch.bool))
        for hook in hooks:
            hook.remove()
        self._reach: dict[int, int] = {0: 0}

    def _keep(self, _layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        self._ends.append((inputs[0], output))

    def measure_reach(self, num_layers: int) -> int:
        """The greatest distance from the first position to one on which its output after `num_layers` depends."""
        if num_layers not in self._reach:
            gradient = torch.zeros_like(self._ends[num_layers - 1][1])
            gradient[0, 0] = torch.randn(gradient.size(-1), dtype=gradient.dtype)
            for inputs, output in reversed(self._ends[:num_layers]):
                (gradient,) = torch.autograd.grad(output, inputs, gradient, retain_graph=True)
                gradient = nn.functional.normalize(gradient, dim=-1, eps=1e-300)
            reached = gradient[0].abs().sum(dim=-1)[: PATH_DISTANCES[-1] + 1].nonzero()
            self._reach[num_layers] = int(reached.max())
        return self._reach[num_layers]


def _count_steps() -> Mapping[int, int]:
    """The steps of a recurrent layer through which a gradient is carried back until it arrives at each distance."""
    width, last = 8, PATH_DISTANCES[-1]
    config = TransformerConfig(architecture="recurrent", vocabulary=8, d_model=width, num_heads=1)
    unit = RecurrentNetwork(config).double().encoder[0].left_to_right
    state, ends = torch.zeros(1, width, dtype=torch.float64), list[tuple[Tensor, Tensor, Tensor]]()
    for products in torch.randn(last + 1, 1, 3 * width, dtype=torch.float64).unbind():
        read, before = products.clone().requires_grad_(), state.detach().requires_grad_()
        state = unit.step(read, before)
        ends.append((read, before, state))
    gradient, counts = torch.randn(1, width, dtype=torch.float64), dict[int, int]()
    for steps, (read, before, after) in enumerate(reversed(ends)):
        arrived, gradient = torch.autograd.grad(after, (read, before), gradient)
        if bool(arrived.any()):  # each step goes back by one position
            counts[steps] = steps
        gradient = nn.functional.normalize(gradient, dim=-1, eps=1e-300)
    return {distance: counts[distance] for distance in PATH_DISTANCES}


def count_by_theory(network: str, distance: int) -> int:
    """The layers or steps that connect two positions by theory, for the networks of `measure_stack_lengths`.

    With width k a contiguous convolution reaches (k - 1) / 2 positions to one side; dilations 1, 2, 4... of width 3
    reach 2^l - 1 positions with l layers, and those of ByteNet begin again after the last of `DILATIONS`.
    """
    name, _, width = network.partition(", k = ")
    if name == "self-attention":
        return 1
    if name == "recurrent":
        return distance
    if name == "ConvS2S":
        return math.ceil(2 * distance / (int(width) - 1))
    doublings = math.ceil(math.log2(distance + 1))
    if name == "dilated":
        return doublings
    sets, rest = divmod(distance, sum(DILATIONS))
    return len(DILATIONS) * sets + math.ceil(math.log2(rest + 1))


def measure_longest_chain(output: Tensor) -> int:
    """The largest number of operations that wait for each other to compute `output`, in the graph of its gradient."""
    chains: dict[object, int] = {}
    waiting = [output.grad_fn]
    while waiting:
        node = waiting[-1]
        before = [one for one, _ in node.next_functions if one is not None] if node is not None else []
        if missing := [one for one in before if one not in chains]:
            waiting.extend(missing)
        else:
            chains[waiting.pop()] = 1 + max((chains[one] for one in before), default=0)
    return chains[output.grad_fn]


def count_chains(architecture: str, seed: int) -> Mapping[str, float]:
    """Operations that wait for each other to encode a sentence with one layer, over its length."""
    network, values = _make_layer(architecture, seed), {}
    for length in CHAIN_LENGTHS:
        ids, mask = _make_sentence(length)
        values[f"chain at {length}"] = float(measure_longest_chain(network.encode(ids, mask)))
    return values


def measure_times(seed: int) -> Mapping[str, float]:
    """Seconds to encode a sentence with one layer of each network, named as in "seconds at 64, recurrent"."""
    networks, values = {one: _make_layer(one, seed) for one in NAMES}, {}

    @torch.no_grad()
    def encode(architecture: str, sentence: tuple[Tensor, Tensor]) -> None:
        networks[architecture].encode(*sentence)

    for length in TIMED_LENGTHS:
        sentence = _make_sentence(length)
        found = measure_seconds({one: partial(encode, one, sentence) for one in NAMES}, SECONDS_OF_TIMING)
        values.update({f"seconds at {length}, {one}": seconds for one, seconds in found.items()})
    return values


def _make_layer(architecture: str, seed: int) -> EncoderDecoder:
    torch.manual_seed(seed)
    given = {"architecture": architecture, "vocabulary": VOCABULARY, "num_encoder_layers": 1, "num_decoder_layers": 1}
    return make_encoder_decoder(
        TransformerConfig.model_validate({**given, "dropout": 0.0, "d_model": TIMED_WIDTH, "num_heads": 4})
    )


def _make_sentence(length: int) -> tuple[Tensor, Tensor]:
    """Token ids of a sentence, and its mask."""
    ids = torch.arange(length)[None] % (VOCABULARY - 1)  # the last token id is that of `<pad>`
    return ids, torch.ones_like(ids, dtype=torch.bool)


def count_multiplications(network: str, length: int, width: int, kernel_width: int = 3) -> int:
    """The complexity of one layer by Table 1, with the constant 1, for a sentence of `length` and d = `width`."""
    return {
        "self-attention": length**2 * width,
        "recurrent": length * width**2,
        "convolutional": kernel_width * length * width**2,
    }[network]


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: counts in deep networks, chains and times of single layers, and training for every distance."""
    updates = laboratory.decide_once("updates", lambda: _plan_updates(laboratory))
    counted = ("self-attention", "recurrent", "ConvS2S, k = 3", "ConvS2S, k = 5", "ByteNet", "dilated")
    counts = [Trial({"path": name}, partial(_count_path, name), cost=0.3) for name in counted]
    layers = [Trial({"layer": one}, partial(count_chains, one), cost=0.1) for one in NAMES]
    times = Trial({"timed": "layers"}, measure_times, cost=0.2)
    recalls = [
        Trial(
            {"recall": one, "distance": distance},
            partial(train_recall, one, distance, updates),
            cost=(8 + distance) * updates / 20_000,
        )
        for distance in DISTANCES
        for one in NAMES
    ]
    return [*counts, *layers, times, *recalls]


def _count_path(network: str, _seed: int) -> Mapping[str, float]:
    return {f"distance {distance}": float(count) for distance, count in measure_stack_lengths(network).items()}


def _plan_updates(laboratory: Laboratory) -> int:
    """The number of updates with which all networks, for all distances and seeds, fit into the budget."""
    laboratory.report(f"measuring the time of an update of {len(NAMES)} networks")
    seconds = sum(measure_update(architecture) for architecture in NAMES)
    left = TRAINING_SHARE * laboratory.budget / len(laboratory.seeds) - SECONDS_OF_COUNTING
    return max(MIN_UPDATES, int(left / seconds))


def conclude(results: Results) -> Conclusion:
    """Verdicts on counts by their formulas, on times and accuracies over the seeds."""
    paths = {name: _read_counts(results, name) for name in results.choices("path")}
    accuracies = {
        one: results.curve("distance", "accuracy", recall=one)
        for one in NAMES
        if results.select(recall=one).measurements
    }
    return Conclusion(
        [*_judge_paths(paths), _judge_sequences(results), _judge_time(results), _judge_learning(results)],
        charts=_draw(paths, results, accuracies),
        tables=[_tabulate_paths(paths), _tabulate_layers(results), _tabulate_complexity(), _tabulate_recall(results)],
        remarks=[_REMARK_ON_COUNTS, _REMARK_ON_RECALL, _REMARK_ON_TIME],
    )


def _read_counts(results: Results, network: str) -> list[tuple[float, float]]:
    pairs = [(float(d), results.mean(f"distance {d}", path=network)) for d in PATH_DISTANCES]
    return keep_finite(pairs)


def _judge_paths(paths: Mapping[str, list[tuple[float, float]]]) -> list[ClaimResult]:
    def judge(claim: Claim, names: Sequence[str], theory: str) -> ClaimResult:
        found = [(name, int(d), int(count)) for name in names for d, count in paths.get(name, [])]
        if len(found) < len(names) * len(PATH_DISTANCES):
            return ClaimResult(claim, "not measured", "not decided")
        holds = all(count == count_by_theory(name, distance) for name, distance, count in found)
        ends = ", ".join(f"{count} ({name})" for name, distance, count in found if distance == PATH_DISTANCES[-1])
        return judge_exactly(claim, f"at a distance of {PATH_DISTANCES[-1]}: {ends}; by theory {theory}", holds=holds)

    return [
        _judge_growth(BYTENET, paths.get("ByteNet", [])),
        judge(ATTENTION, ["self-attention"], "1 layer at every distance"),
        judge(RECURRENCE, ["recurrent"], "as many steps as the distance"),
        judge(CONTIGUOUS, ["ConvS2S, k = 3", "ConvS2S, k = 5"], "2 · distance / (k - 1) layers"),
        _judge_growth(DILATED, paths.get("dilated", [])),
    ]


def _judge_growth(claim: Claim, counts: Sequence[tuple[float, float]]) -> ClaimResult:
    """Whether layers grow with the logarithm of the distance: each time it doubles, by at most one."""
    if len(counts) < len(PATH_DISTANCES):
        return ClaimResult(claim, "not measured", "not decided")
    growth = [after - before for (_, before), (_, after) in pairwise(counts)]
    measured = ", ".join(f"{count:.0f} at {distance:.0f}" for distance, count in counts)
    return judge_exactly(
        claim, f"layers: {measured}; a doubled distance adds up to {max(growth):.0f}", holds=max(growth) <= 1
    )


def _judge_sequences(results: Results) -> ClaimResult:
    chains = {one: _read_chain(results, one) for one in ("transformer", "recurrent")}
    if min(map(len, chains.values())) < len(CHAIN_LENGTHS):
        return ClaimResult(SEQUENTIAL, "not measured", "not decided")
    attention, recurrent = chains["transformer"], chains["recurrent"]
    rates = {(after - before) / (to - start) for (start, before), (to, after) in pairwise(recurrent)}
    # One operation more or less: to short sentences, attention is computed in another way than to long ones.
    is_constant = max(chain for _, chain in attention) - min(chain for _, chain in attention) <= 1
    measured = (
        f"of one encoder layer, {attention[0][1]:.0f} to {attention[-1][1]:.0f} for lengths {CHAIN_LENGTHS[0]} to "
        f"{CHAIN_LENGTHS[-1]} with self-attention, {recurrent[0][1]:.0f} to {recurrent[-1][1]:.0f} with recurrence, "
        f"which is {min(rates):g} more for each token"
    )
    return judge_exactly(SEQUENTIAL, measured, holds=is_constant and len(rates) == 1 and min(rates) >= 1)


def _read_chain(results: Results, architecture: str) -> list[tuple[float, float]]:
    pairs = [(float(n), results.mean(f"chain at {n}", layer=architecture)) for n in CHAIN_LENGTHS]
    return keep_finite(pairs)


def _judge_time(results: Results) -> ClaimResult:
    length = TIMED_LENGTHS[1]
    recurrent, attention = (results.by_seed(f"seconds at {length}, {one}") for one in ("recurrent", "transformer"))
    shown = f"time of a recurrent layer divided by that of a self-attention layer, n = {length}, d = {TIMED_WIDTH}"
    return judge_ratio_above(FASTER, recurrent, attention, 1.0, shown)


def _judge_learning(results: Results) -> ClaimResult:
    """Self-attention, whose paths are shortest, against each of the others, at the longest distance."""
    distance = DISTANCES[-1]
    found = {one: results.by_seed("accuracy", recall=one, distance=distance) for one in NAMES}
    rivals = {NAMES[one]: values for one, values in found.items() if one != "transformer"}
    what = f"accuracy of self-attention in recalling over {distance} positions"
    return judge_larger_than_all(LEARNING, found["transformer"], rivals, what)


def _draw(
    paths: Mapping[str, list[tuple[float, float]]],
    results: Results,
    accuracies: Mapping[str, list[tuple[float, float]]],
) -> list[Chart]:
    logarithm = [(float(d), math.log2(d + 1)) for d in PATH_DISTANCES]
    shown = [name for name in paths if name != "ConvS2S, k = 5"]
    stacks = draw_line_chart(
        "Layers or steps between two positions",
        [*(Series(name, paths[name]) for name in shown), Series("theory: log2(n + 1)", logarithm)],
        "distance",
        "",
        log=True,
        log_x=True,
    )
    times = [
        Series(NAMES[one], [(float(n), results.mean(f"seconds at {n}, {one}")) for n in TIMED_LENGTHS])
        for one in NAMES
        if results.by_seed(f"seconds at {TIMED_LENGTHS[0]}, {one}")
    ]
    return [
        Chart("Layers or steps between two positions", stacks),
        Chart(
            "Seconds to encode a sentence with one layer",
            draw_line_chart("One layer", times, "tokens", "seconds", log=True, log_x=True),
        ),
        Chart(
            "Accuracy of recalling a token",
            draw_line_chart(
                "Recall",
                [Series(NAMES[one], curve) for one, curve in accuracies.items()],
                "distance",
                "accuracy",
                log_x=True,
            ),
        ),
    ]


def _tabulate_paths(paths: Mapping[str, list[tuple[float, float]]]) -> Table:
    rows = []
    for name, counts in paths.items():
        rows.append([name, "measured", *(f"{count:.0f}" for _, count in counts)])
        rows.append([name, "theory", *(str(count_by_theory(name, int(distance))) for distance, _ in counts)])
    heads = ["network", "", *map(str, PATH_DISTANCES)]
    return Table("Layers (recurrent: steps) until a gradient arrives, over the distance", heads, rows, num_texts=2)


def _tabulate_layers(results: Results) -> Table:
    rows = []
    for one in results.choices("layer"):
        chains = [f"{results.mean(f'chain at {n}', layer=one):.0f}" for n in CHAIN_LENGTHS]
        seconds = [
            f"{1000 * confidence_interval(results.by_seed(f'seconds at {n}, {one}')).mean:.2f}" for n in TIMED_LENGTHS
        ]
        rows.append([NAMES[one], *chains, *seconds])
    heads = [
        "network",
        *(f"operations in turn, n = {n}" for n in CHAIN_LENGTHS),
        *(f"milliseconds, n = {n}" for n in TIMED_LENGTHS),
    ]
    return Table(f"An encoder of one layer, d = {TIMED_WIDTH}", heads, rows)


def _tabulate_complexity() -> Table:
    lengths, width = (16, 64, 256, 512, 1024, 4096), 512
    formulas = {"self-attention": "n²·d", "recurrent": "n·d²", "convolutional": "k·n·d²"}
    rows = [
        [name, formula, *(f"{count_multiplications(name, n, width) / 1e6:,.1f}" for n in lengths)]
        for name, formula in formulas.items()
    ]
    heads = ["layer", "Table 1", *(f"n = {n}" for n in lengths)]
    return Table(f"Complexity per layer by theory, in millions, d = {width}, k = 3", heads, rows, num_texts=2)


def _tabulate_recall(results: Results) -> Table:
    rows = []
    for one in results.choices("recall"):
        cells = [format_mean(results, "accuracy", ".0%", recall=one, distance=d) for d in DISTANCES]
        rows.append([NAMES[one], f"{results.mean('parameters', recall=one):,.0f}", *cells])
    heads = ["network", "parameters", *map(str, DISTANCES)]
    caption = f"Accuracy of recalling a token over the distance; guessing has {1 / NUM_SECRETS:.0%}"
    return Table(caption, heads, rows)


EXPERIMENT = Experiment(
    title="Operations between two positions, and what is learned over a distance",
    claims=[BYTENET, ATTENTION, RECURRENCE, CONTIGUOUS, DILATED, SEQUENTIAL, FASTER, LEARNING],
    method=(
        "In deep networks with random weights, a gradient is carried back from one position, layer after layer (in a "
        "recurrent layer: step after step), and it is counted after how many it arrives at each distance. Operations "
        "that wait for each other are the longest chain in the graph of the gradient. Then networks with equally many "
        "parameters, each as deep in proportion as its own paper has it, are trained with equally many updates, each "
        f"with a learning rate that suits it, to recall one of {NUM_SECRETS} tokens that lies some positions back in "
        "the target, a network for each distance."
    ),
    plan=plan,
    conclude=conclude,
)
