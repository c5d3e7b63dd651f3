"""Layers with residual connections and without, over depth (paper 3.1)."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from transduce.config import RunConfig
from transduce.data import Batch, PreparedData
from transduce.lab.conclusion import Chart, Claim, Conclusion
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import Laboratory, count_as_diverged
from transduce.lab.measurements import Results, Value, keep_finite
from transduce.lab.statistics import format_means, judge_larger
from transduce.model import Transformer
from transduce.model.sublayers import ResidualConnection, Sublayer
from transduce.pages import Series, Table, draw_line_chart
from transduce.training import Updater
from transduce.training.distributed import SINGLE_RANK
from transduce.training.distributed.batches import BatchPosition, iterate_batches
from transduce.training.model_selection.stopping import MAX_SKIPPED_IN_A_ROW
from transduce.training.model_selection.validation import compute_teacher_forced_metrics
from transduce.training.optimization.loss import compute_losses
from transduce.training.optimization.micro_batches import choose_parallel_micro_batches

DEPTHS = (1, 2, 6)
"""Numbers of layers of each stack with which models are trained; the paper's base model has 6."""

SHALLOW, DEEP = 2, 6

INITIAL_DEPTH = 12
"""Number of layers of each stack in models that are measured before training."""

LEARNING_RATE = 1e-3
"""Lower than in other experiments, so that the deepest stacks can be trained."""

SAME = 0.05
"""Nats per token by which the loss may be higher without counting as worse: a perplexity that is 5 % higher."""

SECONDS_OF_INITIAL_MODELS = 10.0

WITH, WITHOUT = "with", "without"

QUALITY = Claim("He et al. 2016", "A residual connection around each sub-layer makes deep stacks learn.")
DEGRADATION = Claim(
    "He et al. 2016", "Without residual connections, the loss of a deep network is higher than of a shallow one."
)
DEPTH = Claim(
    "He et al. 2016", "With residual connections, the loss of a deep network is no higher than of a shallow one."
)
COLLAPSE = Claim(
    "Dong et al. 2021", "Without residual connections, the layers of a stack make the vectors of all positions alike."
)
VANISHING = Claim(
    "Noci et al. 2022", "Where the vectors of all positions are alike, the gradients of queries and keys vanish."
)


class Unconnected(nn.Module):
    """LayerNorm(Dropout(Sublayer(x))): what is left of a `ResidualConnection` without the residual connection."""

    def __init__(self, connection: ResidualConnection) -> None:
        super().__init__()
        self.normalization = connection.normalization
        self.dropout = connection.dropout

    def forward(self, x: Tensor, mask: Tensor, sublayer: Sublayer) -> Tensor:
        """The normalised output of `sublayer`; `mask` is True at real positions."""
        normalized: Tensor = self.normalization(self.dropout(sublayer(x)), mask)
        return normalized


def remove_residual_connections(model: Transformer) -> None:
    """Replace every residual connection of a post-norm model by an `Unconnected` with the same parameters."""
    for part in list(model.modules()):
        for name, child in part.named_children():
            if isinstance(child, ResidualConnection):
                setattr(part, name, Unconnected(child))


def make_model(config: RunConfig, connections: str) -> Transformer:
    """The initial model of a run, with residual connections or without; both have the same initial weights."""
    torch.manual_seed(config.training.seed)
    model = Transformer(config.model)
    if connections == WITHOUT:
        remove_residual_connections(model)
    return model


def measure_spread(vectors: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"]) -> float:
    """How different the vectors of a sentence are: the mean over the sentences, from 0 (all are the same) to 1.

    Of a sentence, it is the distance of all vectors from their mean, in relation to their length (Frobenius norms).
    """
    real = mask.unsqueeze(-1)
    means = (vectors * real).sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True)
    distances, lengths = (((part * real).square().sum(dim=(1, 2))).sqrt() for part in (vectors - means, vectors))
    return float((distances / lengths).mean())


def measure_initial_model(model: Transformer, batch: Batch) -> Mapping[str, float]:
    """Measure an untrained model with one batch.

    Returns:
        For every layer, counted from 1, by name as in "spread, layer 1": "spread" of the vectors that the encoder layer
        puts out, see `measure_spread`; "encoder gradient" and "decoder gradient", the Euclidean norm of the gradient of
        the layer's parameters; and "query and key gradient", that of the encoder layer's projections to queries and
        keys alone, in relation to that of the whole layer.
    """
    values = {}
    outputs: list[Tensor] = []
    hooks = [
        layer.register_forward_hook(lambda _, __, output: outputs.append(output.detach()))
        for layer in model.encoder.layers
    ]
    losses = compute_losses(model, batch, smoothing=0.0)
    for hook in hooks:
        hook.remove()
    (losses.loss / batch.num_target_tokens).backward()  # type: ignore[no-untyped-call]
    for number, output in enumerate(outputs, start=1):
        values[f"spread, layer {number}"] = measure_spread(output, batch.source_mask)
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(stack.layers, start=1):
            values[f"{name} gradient, layer {number}"] = _gradient_norm(layer.parameters())
    for number, layer in enumerate(model.encoder.layers, start=1):
        attention = layer.self_attention
        gradient = attention.projection.weight.grad
        # W^Q and W^K; below them stands W^V.
        own = 0.0 if gradient is None else float(gradient[: 2 * attention.query_width].norm())
        values[f"query and key gradient, layer {number}"] = own / values[f"encoder gradient, layer {number}"]
    return values


def _gradient_norm(parameters: Iterable[nn.Parameter]) -> float:
    return float(nn.utils.get_total_norm([one.grad for one in parameters if one.grad is not None]))


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: untrained models of one depth; then trained ones of every depth, with residuals and without."""
    choices = [(depth, connections) for depth in DEPTHS for connections in (WITH, WITHOUT)]
    updates = laboratory.plan_updates(
        [_make_settings(depth) for depth, _ in choices], reserve=SECONDS_OF_INITIAL_MODELS * len(laboratory.seeds)
    )
    initial = [
        Trial({"initial": connections}, partial(_measure_initial, laboratory, connections), cost=0.05)
        for connections in (WITH, WITHOUT)
    ]
    trained = [
        Trial(
            {"connections": connections, "depth": depth},
            partial(train_model, laboratory, depth, connections, updates),
            cost=float(depth),
        )
        for depth, connections in choices
    ]
    return [*initial, *trained]


def _make_settings(depth: int) -> dict[str, Value]:
    return {
        "model.num_encoder_layers": depth,
        "model.num_decoder_layers": depth,
        "training.learning_rate": LEARNING_RATE,
    }


def _measure_initial(laboratory: Laboratory, connections: str, seed: int) -> Mapping[str, float]:
    prepared, config = _prepare(laboratory, INITIAL_DEPTH, 1, seed)
    _, batch = next(iterate_batches(prepared, config.text, config.training, BatchPosition()))
    return measure_initial_model(make_model(config, connections), batch)


def train_model(laboratory: Laboratory, depth: int, connections: str, updates: int, seed: int) -> Mapping[str, float]:
    """Train a model by the product's updates, and measure how well it predicts the test pairs.

    `transduce train` itself would translate by code that is written for models with residual connections.

    Returns:
        "loss", in nats per token, and "accuracy"; or `count_as_diverged` after `MAX_SKIPPED_IN_A_ROW` updates whose
        gradients were not finite.
    """
    prepared, config = _prepare(laboratory, depth, updates, seed)
    device = torch.device("cpu")
    model = make_model(config, connections)
    updater = Updater(model, config.training, device)
    updater.parallel_micro_batches = choose_parallel_micro_batches(config, device, SINGLE_RANK)
    batches = iterate_batches(prepared, config.text, config.training, BatchPosition())
    num_skipped = 0
    try:
        with updater.limit_threads():
            for number, (_, batch) in enumerate(islice(batches, updates), start=1):
                num_skipped = num_skipped + 1 if updater.update(number, [batch]).is_skipped else 0
                if num_skipped >= MAX_SKIPPED_IN_A_ROW:
                    return count_as_diverged(config.model.vocabulary)
    finally:
        updater.processes.close()
    metrics = compute_teacher_forced_metrics(model, prepared.tokenizer, laboratory.test_pairs)
    return metrics._asdict() if math.isfinite(metrics.loss) else count_as_diverged(config.model.vocabulary)


def _prepare(laboratory: Laboratory, depth: int, updates: int, seed: int) -> tuple[PreparedData, RunConfig]:
    settings = _make_settings(depth)
    prepared = laboratory.prepare(settings)
    config = laboratory.make_config(settings, updates, seed, "none").with_vocabulary(prepared.tokenizer.vocabulary)
    return prepared, config


def conclude(results: Results) -> Conclusion:
    """Verdicts on the loss over depth, and on vectors and gradients before training."""

    def find_loss(connections: str, depth: int) -> dict[int, float]:
        return results.by_seed("loss", connections=connections, depth=depth)

    def find_power(quantity: str, connections: str) -> dict[int, float]:
        found = results.by_seed(f"{quantity}, layer {INITIAL_DEPTH}", initial=connections)
        return {seed: math.log10(max(value, sys.float_info.min)) for seed, value in found.items()}

    return Conclusion(
        [
            judge_larger(
                QUALITY,
                find_loss(WITHOUT, DEEP),
                find_loss(WITH, DEEP),
                f"loss with {DEEP} layers without residual connections minus loss with them, in nats per token",
                form=".3f",
            ),
            judge_larger(
                DEGRADATION,
                find_loss(WITHOUT, DEEP),
                find_loss(WITHOUT, SHALLOW),
                f"loss without residual connections with {DEEP} layers minus loss with {SHALLOW}, in nats per token",
                margin=SAME,
                form=".3f",
            ),
            judge_larger(
                DEPTH,
                find_loss(WITH, SHALLOW),
                find_loss(WITH, DEEP),
                f"loss with residual connections with {SHALLOW} layers minus loss with {DEEP}, in nats per token",
                margin=-SAME,
                form=".3f",
            ),
            judge_larger(
                COLLAPSE,
                find_power("spread", WITH),
                find_power("spread", WITHOUT),
                f"by how many powers of ten the vectors after layer {INITIAL_DEPTH} differ less without residual "
                "connections",
                margin=1.0,
                form=".2f",
            ),
            judge_larger(
                VANISHING,
                find_power("query and key gradient", WITH),
                find_power("query and key gradient", WITHOUT),
                f"by how many powers of ten the gradient of queries and keys in layer {INITIAL_DEPTH}, in relation to "
                "that of the whole layer, is smaller without residual connections",
                margin=1.0,
                form=".2f",
            ),
        ],
        charts=[_draw_losses(results), _draw_spread(results), _draw_gradients(results)],
        tables=[_tabulate(results)],
        remarks=[
            f"The highest learning rate is {LEARNING_RATE}. Models are compared by their loss, without translating.",
            "The paper says that it has residual connections (3.1), and not what would happen without them.",
        ],
    )


def _draw_losses(results: Results) -> Chart:
    series = [
        Series(f"{connections} residual connections", results.curve("depth", "loss", connections=connections))
        for connections in (WITH, WITHOUT)
    ]
    return Chart(
        "Loss over depth", draw_line_chart("Loss after training", series, "layers", "nats per token", log_x=True)
    )


def _by_layer(results: Results, quantity: str, connections: str) -> list[tuple[float, float]]:
    means = [
        (float(layer), results.mean(f"{quantity}, layer {layer}", initial=connections))
        for layer in range(1, INITIAL_DEPTH + 1)
    ]
    return keep_finite(means)


def _draw_spread(results: Results) -> Chart:
    series = [
        Series(f"{connections} residual connections", _by_layer(results, "spread", connections))
        for connections in (WITH, WITHOUT)
    ]
    title = "How different the vectors of a sentence are before training"
    return Chart(title, draw_line_chart("Spread of vectors", series, "encoder layer", "", log=True))


def _draw_gradients(results: Results) -> Chart:
    series = [
        Series(f"{stack}, {connections}", _by_layer(results, f"{stack} gradient", connections))
        for stack in ("encoder", "decoder")
        for connections in (WITH, WITHOUT)
    ]
    title = "Gradient of each layer before training, with residual connections and without"
    return Chart(title, draw_line_chart("Norm of the gradient", series, "layer", "", log=True))


def _tabulate(results: Results) -> Table:
    quantities = {"loss": ".3f", "accuracy": ".1%"}
    rows = [
        [str(depth), connections, *format_means(results, quantities, connections=connections, depth=depth)]
        for depth in DEPTHS
        for connections in (WITH, WITHOUT)
    ]
    return Table(
        "Models after training: mean over the seeds (95 % confidence interval)",
        ["layers of each stack", "residual connections", "loss, nats per token", "accuracy"],
        rows,
        num_texts=2,
    )


EXPERIMENT = Experiment(
    title="Residual connections over depth",
    claims=[QUALITY, DEGRADATION, DEPTH, COLLAPSE, VANISHING],
    method=(
        "Around each sub-layer, LayerNorm(x + Sublayer(x)) is replaced by LayerNorm(Sublayer(x)). "
        f"Models with {', '.join(map(str, DEPTHS))} layers in each stack are trained with residual connections and "
        "without, for the same number of updates, and their loss on unseen text is compared. Models with "
        f"{INITIAL_DEPTH} layers are measured before training: how different the vectors of a sentence are after each "
        "layer of the encoder, and how large the gradients of each layer are."
    ),
    plan=plan,
    conclude=conclude,
)
