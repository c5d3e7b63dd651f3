"""The Transformer and the networks that the paper compares it with: quality, training time, speed (paper 1, 6.1)."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from transduce.bundle import Bundle
from transduce.config import TransformerConfig
from transduce.errors import DivergedError
from transduce.kernels.device import use_one_thread
from transduce.lab.conclusion import Chart, Claim, ClaimResult, Conclusion
from transduce.lab.equal_parameters import LAYERS, match_rivals
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import SETTINGS, Laboratory
from transduce.lab.learning_curves import read_curve, train_with_curve
from transduce.lab.measurements import Results, Value
from transduce.lab.statistics import format_means, judge_larger_than_all
from transduce.lab.variants import choose_size, tabulate_variants
from transduce.pages import Series, Table
from transduce.training import MetricsLog
from transduce.translation import Translator
from transduce.translation.engines.networks import ModelNetwork
from transduce.translation.engines.pytorch_engine import PyTorchEngine

SAME_UPDATES, SAME_TIME, SHORT_TIME = "same updates", "same time", "a third of the time"
"""What the networks have in common when they are compared."""

FRACTION = 3
"""The Transformer's advantage that is tested: of the paper's rivals the cheapest, ConvS2S, cost three times the base
model (Table 2: 9.6e18 to 3.3e18 operations).
"""

BEAM = 4
"""Hypotheses of the search (paper 6.1)."""

NUM_TIMED_SENTENCES = 100

RIVALS = tuple(LAYERS)
"""What the Transformer is compared with, by `model.architecture`."""

RATE_FACTORS = (0.5, 1.0, 2.0, 4.0)
"""Learning rates that each network is tried with, as multiples of the laboratory's; the best rates of networks differ
widely.
"""

RATE_UPDATES = 3
"""A rate is tried with this part of the updates: one in three."""

SHARE_FOR_RATES = 0.2
"""Part of the budget in which rates are tried."""

COMMON: dict[str, Value] = {
    "text.max_pieces": 120,
    "model.max_positions": 192,
    "training.max_validation_pairs": 20,
    "training.clip_norm": 1.0,
    "training.log_every": 10,
}
"""Settings of all networks. ConvS2S has as many learned positions as a translation of the longest source may need.
Recurrent networks are trained with limited gradients, as in Bahdanau et al. 2015; so all are."""

BETTER = Claim("6.1", "The Transformer translates better than recurrent and convolutional networks.")
SAME_COST = Claim("abstract", "It is superior in quality while requiring significantly less time to train.")
CHEAPER = Claim("6.1", "It surpasses them at a fraction of their training cost.")
PARALLEL = Claim("7", "It trains significantly faster than networks of recurrent or of convolutional layers.")


def make_variants(laboratory: Laboratory) -> dict[str, dict[str, Value]]:
    """Settings of all networks, by architecture, with equally many parameters."""
    size = {**choose_size(laboratory), **COMMON}
    given = {**SETTINGS, **size}
    model = {name.removeprefix("model."): value for name, value in given.items() if name.startswith("model.")}
    transformer = TransformerConfig.model_validate({**model, "vocabulary": given["text.vocabulary"]})
    variants: dict[str, dict[str, Value]] = {}
    for name, config in match_rivals(transformer).items():
        changed = ("architecture", "num_encoder_layers", "num_decoder_layers", "d_model", "num_heads")
        own = {f"model.{one}": getattr(config, one) for one in changed}
        variants[name] = {**size, **own}
    return variants


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: all networks with equal updates, then with the Transformer's time; then that with a third of it.

    Before, each network's learning rate is chosen. The runs of the second kind take as long as the Transformer's of the
    first.
    """
    variants = make_variants(laboratory)
    planned = [*variants.values(), *[variants["transformer"]] * len(variants)]
    updates = laboratory.plan_updates(planned, reserve=SHARE_FOR_RATES * laboratory.budget)
    variants = {name: choose_rate(laboratory, name, settings, updates) for name, settings in variants.items()}
    transformer = variants["transformer"]
    compared = {
        SAME_UPDATES: [
            Trial({"compared": SAME_UPDATES, "variant": name}, partial(measure, laboratory, settings, updates))
            for name, settings in variants.items()
        ],
        SAME_TIME: [
            Trial(
                {"compared": SAME_TIME, "variant": name},
                partial(measure_same_time, laboratory, name, settings, transformer, updates),
                cost=0.1 if name == "transformer" else 1.0,
            )
            for name, settings in variants.items()
        ],
        SHORT_TIME: [
            Trial(
                {"compared": SHORT_TIME, "variant": "transformer"},
                partial(measure, laboratory, transformer, max(1, updates // FRACTION)),
                cost=1 / FRACTION,
            )
        ],
    }
    return [trial for trials in compared.values() for trial in trials]


def choose_rate(laboratory: Laboratory, name: str, settings: Mapping[str, Value], updates: int) -> dict[str, Value]:
    """The settings with the learning rate that has the lowest loss on the validation text after a short run."""
    base = float({**SETTINGS, **settings}["training.learning_rate"])
    rates = {f"{factor * base:.2g}": {**settings, "training.learning_rate": factor * base} for factor in RATE_FACTORS}
    losses: dict[str, float] = {}
    for rate, own in rates.items():

        def decide(own: Mapping[str, Value] = own) -> float:
            return laboratory.train(own, max(1, updates // RATE_UPDATES), laboratory.seeds[0])["loss"]

        losses[rate] = laboratory.decide_once(f"loss of {name} with learning rate {rate}", decide)
        laboratory.report(f"{name}, learning rate {rate}: loss {losses[rate]:.3f} after a short run")
    return rates[min(losses, key=losses.__getitem__)]


def measure(laboratory: Laboratory, settings: Mapping[str, Value], updates: int, seed: int) -> Mapping[str, float]:
    """Train a network and measure its quality, its learning curve, and the speed of its search."""
    values = train_with_curve(laboratory, settings, updates, seed, beam=BEAM)
    if "diverged" in values:
        return values
    sources = [source for source, _ in laboratory.test_pairs[:NUM_TIMED_SENTENCES]]
    speeds = measure_search(laboratory.find_run(settings, updates, seed) / "best", sources)
    rate = float({**SETTINGS, **settings}["training.learning_rate"])
    return {**values, **speeds, "updates": updates, "learning_rate": rate}


def measure_same_time(
    laboratory: Laboratory,
    name: str,
    settings: Mapping[str, Value],
    transformer: Mapping[str, Value],
    updates: int,
    seed: int,
) -> Mapping[str, float]:
    """Train a network with as many updates as it makes in the time in which the Transformer makes `updates`.

    The number follows from the runs with the same updates of the first seed, and is the same for all seeds. Nothing is
    measured if one of these runs diverged.

    Raises:
        RunError: one of them is not there.
    """

    def decide() -> int:
        own, others = (
            _read_seconds(laboratory.find_run(one, updates, seed)) / updates for one in (settings, transformer)
        )
        return max(1, round(updates * others / own))

    try:
        own_updates = int(laboratory.decide_once(f"updates of {name} in the same time", decide))
    except DivergedError:
        return {}
    return measure(laboratory, settings, own_updates, seed)


def _read_seconds(run: Path) -> float:
    """Seconds of all updates of a run."""
    lines = MetricsLog(run / "metrics.jsonl").read()
    return max(float(line["seconds"]) for line in lines if "seconds" in line)


def measure_search(bundle: Path, sources: Sequence[str]) -> dict[str, float]:
    """Sentences a second of beam search with one thread.

    "sentences_per_second": by one program for all networks, which computes with the model itself in PyTorch.
    "own_sentences_per_second": by `transduce translate`, which has compiled kernels for the Transformer.
    """
    translator = Translator.load(bundle, device="cpu", precision="float32")
    model = Bundle.open(bundle).load_model()
    engine = PyTorchEngine(model, translator.tokenizer.end_id, "float32", network=ModelNetwork(model))
    programs = {
        "sentences_per_second": replace(translator, engine=engine),
        "own_sentences_per_second": translator,
    }
    speeds = {}
    with use_one_thread():
        for name, program in programs.items():
            program.translate(sources[:4], beam=BEAM)  # what is done once, such as allocation
            started = time.perf_counter()
            program.translate(sources, beam=BEAM)
            speeds[name] = len(sources) / (time.perf_counter() - started)
    return speeds


def conclude(results: Results) -> Conclusion:
    """Verdicts on quality after the same updates, the same time, and a third of it, and on the speed of training."""
    by_updates, by_time, short = (results.select(compared=one) for one in (SAME_UPDATES, SAME_TIME, SHORT_TIME))
    claim_results = [
        _judge(BETTER, by_updates, by_updates, "with the same updates"),
        _judge(SAME_COST, by_time, by_time, "with the same time"),
        _judge(CHEAPER, short, by_time, "with a third of the time"),
        judge_larger_than_all(
            PARALLEL,
            by_updates.by_seed("tokens_per_second", variant="transformer"),
            {one: by_updates.by_seed("tokens_per_second", variant=one) for one in RIVALS},
            "tokens a second of training, that of the Transformer",
            form=",.0f",
        ),
    ]
    quantities = ("loss", "bleu", "chrf", "exact", "parameters", "tokens_per_second")
    return Conclusion(
        claim_results,
        charts=[
            _draw(by_updates, "update", "Training loss over updates", "updates"),
            _draw(by_time, "seconds", "Training loss over time, with the same time", "seconds of updates"),
        ],
        tables=[
            tabulate_variants(by_updates, quantities, "The same updates: mean over the seeds (95 % interval)"),
            tabulate_variants(by_time, quantities, "The same time: mean over the seeds (95 % interval)"),
            tabulate_variants(short, quantities, "The Transformer with a third of the time"),
            _tabulate_speeds(results),
        ],
        remarks=[*_describe_length(by_updates), _REMARK_ON_SIZE, _REMARK_ON_RATES, _REMARK_ON_SPEED],
    )


_REMARK_ON_SIZE = (
    "All networks have the same number of parameters within 5 %, the same text, batches, dropout, search and schedule, "
    "and numbers of layers in the proportions of their own papers; the paper compares published systems of different "
    "sizes."
)
_REMARK_ON_RATES = (
    "Each network has the learning rate, out of four, that was best on the validation text after a third of the "
    "updates; the rest of the training is the same for all, and was chosen for the Transformer."
)
_REMARK_ON_SPEED = (
    "Times are those of PyTorch on a processor; an accelerator computes more positions at a time, so that layers "
    "without recurrence gain more from it. Sentences a second also depend on how long a network's translations are."
)


def _describe_length(by_updates: Results) -> list[str]:
    """How far the networks were trained, as the paper's claims are about networks that are trained to the end."""
    falls = []
    for name in by_updates.choices("variant"):
        losses = [loss for _, loss in read_curve(by_updates, "update", variant=name)]
        if losses:
            falls.append(f"{name} by {losses[2 * len(losses) // 3] - losses[-1]:.2f}")
    if not falls:
        return []
    remark = (
        f"In the last third of the same updates, the training loss still fell, in nats per token: {', '.join(falls)}. "
        "The paper's claims are about networks that are trained to the end: where this is far from zero, the figures "
        "say which network learns fast, and a larger budget may change their order."
    )
    return [remark]


def _judge(claim: Claim, own: Results, others: Results, how: str) -> ClaimResult:
    """Whether the BLEU of the Transformer exceeds that of each rival."""
    rivals = {name: others.by_seed("bleu", variant=name) for name in RIVALS}
    return judge_larger_than_all(
        claim, own.by_seed("bleu", variant="transformer"), rivals, f"BLEU of the Transformer {how}"
    )


def _draw(results: Results, x: Literal["update", "seconds"], title: str, x_label: str) -> Chart:
    series = [Series(str(name), read_curve(results, x, variant=name)) for name in results.choices("variant")]
    return Chart.draw_lines(title, series, x_label, "nats per token")


def _tabulate_speeds(results: Results) -> Table:
    quantities = {
        "learning_rate": ".2g",
        "updates": ",.0f",
        "seconds": ",.1f",
        "sentences_per_second": ",.1f",
        "own_sentences_per_second": ",.1f",
    }
    rows = []
    for compared in results.choices("compared"):
        chosen = results.select(compared=compared)
        rows += [
            [compared, str(name), *format_means(chosen, quantities, variant=name)] for name in chosen.choices("variant")
        ]
    heads = [
        "compared with",
        "network",
        "learning rate",
        "updates",
        "seconds of updates",
        "sentences a second, one program",
        "sentences a second, transduce translate",
    ]
    caption = f"Updates, time, and speed of search with beam {BEAM} and one thread"
    return Table(caption, heads, rows, num_texts=2)


EXPERIMENT = Experiment(
    title="The Transformer and its rivals with equally many parameters",
    claims=[BETTER, SAME_COST, CHEAPER, PARALLEL],
    method=(
        "The Transformer, a recurrent network with attention, ConvS2S and ByteNet with equally many parameters are "
        "trained on the same batches with equally many updates, each with the best of four learning rates. Then each "
        "is trained with as many updates as it makes in the Transformer's time, and the Transformer with a third of "
        f"its own. Unseen sentences are translated with a beam of {BEAM}, by the same search for all."
    ),
    plan=plan,
    conclude=conclude,
)
