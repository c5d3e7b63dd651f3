"""Counts against formulas and brute force, and a verdict for every claim."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from transduce.baselines import ConvS2S, make_encoder_decoder
from transduce.baselines.bytenet import DILATIONS
from transduce.config import TransformerConfig
from transduce.lab import Laboratory, Results, run_experiment
from transduce.lab.equal_parameters import match_rivals
from transduce.lab.experiments import path_length
from transduce.lab.experiments.path_length import (
    CHAIN_LENGTHS,
    NAMES,
    PATH_DISTANCES,
    TIMED_LENGTHS,
    conclude,
    count_by_theory,
    count_multiplications,
    measure_longest_chain,
    measure_stack_lengths,
)
from transduce.lab.experiments.path_length.recall_task import DISTANCES, SMALL
from transduce.lab.measurements import Measurement

NETWORKS = ("self-attention", "recurrent", "ConvS2S, k = 3", "ConvS2S, k = 5", "ByteNet", "dilated")


@pytest.mark.parametrize("network", ["self-attention", "recurrent", "ByteNet", "dilated"])
def test_gradients_arrive_where_theory_says(network: str) -> None:
    counts = measure_stack_lengths(network)
    assert counts == {distance: count_by_theory(network, distance) for distance in PATH_DISTANCES}


def test_gradients_of_convolutions_arrive_where_theory_says(monkeypatch: pytest.MonkeyPatch) -> None:
    short = (1, 2, 5, 12)
    monkeypatch.setattr(path_length, "PATH_DISTANCES", short)
    for network in ("ConvS2S, k = 3", "ConvS2S, k = 5"):
        counts = measure_stack_lengths.__wrapped__(network)
        assert counts == {distance: count_by_theory(network, distance) for distance in short}


def test_reach_is_that_of_a_changed_token() -> None:
    """Brute force: the output at the first position changes with a token that the stack reaches, and no other."""
    config = TransformerConfig(architecture="convs2s", vocabulary=30, num_encoder_layers=3, d_model=8, num_heads=1)
    torch.manual_seed(1)
    network = ConvS2S(config).double().eval()
    ids = torch.arange(8)[None]
    before = network.encode(ids, torch.ones_like(ids, dtype=torch.bool))[0, 0]
    changed = []
    for distance in range(1, 8):
        other = ids.clone()
        other[0, distance] = 20
        after = network.encode(other, torch.ones_like(ids, dtype=torch.bool))[0, 0]
        changed.append(not torch.equal(before, after))
    assert changed == [count_by_theory("ConvS2S, k = 3", distance) <= 3 for distance in range(1, 8)]


def test_longest_chain_counts_operations_in_turn() -> None:
    x = torch.ones(2, requires_grad=True)
    short, long = x.exp(), x.exp().sin().cos()
    assert measure_longest_chain(short) == 2  # exp, and what adds to the gradient of x
    assert measure_longest_chain(short * long) == 5
    product = x
    for _ in range(3000):  # deeper than Python calls may be
        product = product * product
    assert measure_longest_chain(product) == 3001


def test_complexity_is_that_of_table_1() -> None:
    assert count_multiplications("self-attention", 10, 512) == 10 * 10 * 512
    assert count_multiplications("recurrent", 10, 512) == 10 * 512 * 512
    assert count_multiplications("self-attention", 512, 512) == count_multiplications("recurrent", 512, 512)
    assert count_multiplications("convolutional", 10, 512) == 3 * count_multiplications("recurrent", 10, 512)


def count_in_layer(architecture: str, length: int, width: int, kernel_width: int = 3) -> int:
    """The multiplications that one more encoder layer computes."""
    small = {"vocabulary": 9, "num_decoder_layers": 1, "num_heads": 2, "max_positions": length}
    given = {**small, "architecture": architecture, "d_model": width, "d_ff": width, "kernel_width": kernel_width}
    ids = torch.arange(length)[None] % 8
    counts = []
    for num_layers in (1, 2):
        network = make_encoder_decoder(TransformerConfig.model_validate({**given, "num_encoder_layers": num_layers}))
        with FlopCounterMode(display=False) as counter:
            network.encode(ids, torch.ones_like(ids, dtype=torch.bool))
        counts.append(counter.get_total_flops() // 2)  # additions count, too
    return counts[1] - counts[0]


@pytest.mark.parametrize("d", [16, 32])
@pytest.mark.parametrize("n", [20, 40, 80])
def test_networks_multiply_as_often_as_table_1_says(n: int, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constants that Table 1 leaves out are the same for every n, d and k."""
    # PyTorch counts its own products only.
    monkeypatch.setattr("transduce.kernels.native.training.find_library", lambda: None)
    attention, recurrent = (count_multiplications(network, n, d) for network in ("self-attention", "recurrent"))
    # Scores, and sums of values; of each vector, four products for attention and two in the feed-forward layer.
    assert count_in_layer("transformer", n, d) == 2 * attention + (4 + 2) * recurrent
    # In two directions, three products with both states of the layer below, and three with the state.
    assert count_in_layer("recurrent", n, d) == 2 * (3 * 2 + 3) * recurrent
    for k in (1, 3, 5):
        convolutional = count_multiplications("convolutional", n, d, k)
        assert count_in_layer("convs2s", n, d, k) == 2 * convolutional  # an output and its gate
        # Of 1.2 n columns: two products with half of the channels on one side, and a convolution with half on both.
        of_columns = (recurrent + convolutional / 4) * 1.2
        assert count_in_layer("bytenet", n, d, k) == pytest.approx(of_columns)


def test_remark_names_what_the_stacks_reach() -> None:
    rivals = match_rivals(SMALL)
    assert 2 * rivals["convs2s"].num_decoder_layers == 10
    assert 2 * sum(DILATIONS) * rivals["bytenet"].num_decoder_layers // 5 == 124
    remarks = conclude(Results([])).remarks
    assert any("10 positions" in remark and "124" in remark for remark in remarks)


def test_plan_has_all_networks_and_distances(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"updates": 10}', encoding="utf-8")
    trials = path_length.plan(Laboratory(tmp_path))
    settings = [dict(trial.settings) for trial in trials]
    assert [one["path"] for one in settings if "path" in one] == list(NETWORKS)
    assert [one["layer"] for one in settings if "layer" in one] == list(NAMES)
    assert {"timed": "layers"} in settings
    recalls = {(one["recall"], one["distance"]) for one in settings if "recall" in one}
    assert recalls == {(name, distance) for name in NAMES for distance in DISTANCES}


def make_results(
    *, accuracy: float = 1.0, others: float = 0.1, extra: int = 0, slope: int = 11, slower: float = 3.0
) -> Results:
    made = []
    for seed in (1, 2, 3):
        for network in NETWORKS:
            counts = {f"distance {d}": float(count_by_theory(network, d) + extra) for d in PATH_DISTANCES}
            made.append(Measurement({"path": network}, seed, counts, 1.0))
        seconds = {
            f"seconds at {n}, {name}": (slower if name == "recurrent" else 1.0) + seed / 100
            for n in TIMED_LENGTHS
            for name in NAMES
        }
        made.append(Measurement({"timed": "layers"}, seed, seconds, 1.0))
        for name in NAMES:
            is_recurrent = name == "recurrent"
            chains = {f"chain at {n}": 18.0 + is_recurrent * slope * n for n in CHAIN_LENGTHS}
            made.append(Measurement({"layer": name}, seed, chains, 1.0))
            for distance in DISTANCES:
                value = (accuracy if name == "transformer" else others) + seed / 100
                values = {"accuracy": value, "parameters": 50_000.0}
                made.append(Measurement({"recall": name, "distance": distance}, seed, values, 1.0))
    return Results(made)


def test_verdicts_where_counts_are_those_of_theory() -> None:
    verdicts = [claim_result.verdict for claim_result in conclude(make_results()).claim_results]
    assert verdicts == ["not supported", *["supported"] * 7]  # ByteNet as published is not logarithmic at 512


def test_verdicts_where_nothing_is_as_the_paper_says() -> None:
    found = conclude(make_results(accuracy=0.05, extra=1, slope=0, slower=0.2)).claim_results
    verdicts = {claim_result.claim: claim_result.verdict for claim_result in found}
    assert verdicts[path_length.DILATED] == "supported"  # the growth is the same
    assert verdicts[path_length.RECURRENCE] == "not supported"
    assert verdicts[path_length.SEQUENTIAL] == "not supported"
    assert verdicts[path_length.FASTER] == "not supported"


def test_learning_is_judged_against_the_best_of_the_others() -> None:
    def judge(accuracy: float, others: float) -> str:
        return conclude(make_results(accuracy=accuracy, others=others)).claim_results[-1].verdict

    assert judge(1.0, 0.1) == "supported"
    assert judge(0.1, 1.0) == "not supported"
    assert judge(0.5, 0.5) == "not decided"


def test_nothing_is_decided_before_it_is_measured() -> None:
    conclusion = conclude(Results([]))
    assert {claim_result.verdict for claim_result in conclusion.claim_results} == {"not decided"}
    assert [claim_result.claim for claim_result in conclusion.claim_results] == list(path_length.EXPERIMENT.claims)
    complete = make_results().measurements
    for first, second in pairwise(range(0, len(complete), 7)):
        conclude(Results(complete[first:second]))


@pytest.mark.exhaustive
def test_experiment_from_plan_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Farther than ByteNet's dilations reach before they begin again; with 512, stacks have so many layers, too.
    monkeypatch.setattr(path_length, "PATH_DISTANCES", (1, 2, 4, 8, 16, 32, 64, 128))
    monkeypatch.setattr(path_length, "measure_stack_lengths", measure_stack_lengths.__wrapped__)
    monkeypatch.setattr(path_length, "SECONDS_OF_TIMING", 0.1)
    report = run_experiment("path-length", Laboratory(tmp_path / "new", (1,), budget=5.0))
    verdicts = [claim_result.verdict for claim_result in report.conclusion.claim_results]
    assert verdicts[:6] == ["not supported", *["supported"] * 5]
    assert (tmp_path / "new" / "report.html").exists()
