"""Figures are those of real runs (docs/experiments.md, "Runs that are ill"), or of runs with planted illnesses.

At full size, `benchmarks/illnesses.py` plants them.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.config import RunConfig, load_run_config
from transduce.config.presets import PRESETS
from transduce.model import Transformer
from transduce.training import train
from transduce.training.diagnosis import CHECKS as ALL_CHECKS
from transduce.training.diagnosis import (
    RunHistory,
    find_end_of_exposure_bias,
    find_end_of_ignored_source,
    find_end_of_one_output,
    find_end_of_overfitting,
    find_end_of_repetition,
    find_end_of_rising_loss,
    find_end_of_uniform_attention,
    find_end_of_unigram_loss,
    find_exposure_bias,
    find_foreign_validation,
    find_high_rate,
    find_ignored_source,
    find_new_findings,
    find_one_output,
    find_overfitting,
    find_repetition,
    find_rising_loss,
    find_strong_dropout,
    find_swapped_validation,
    find_uniform_attention,
    find_unigram_loss,
    find_unrelated_pairs,
)
from transduce.training.diagnosis.measurements import RunTextFigures
from transduce.training.optimization.schedule import compute_peak_rate

HEALTHY_TEXT = {
    "unigram_loss": 6.0,
    "num_blocks": 6,
    "unrelated_blocks": 0,
    "first_unrelated": 0,
    "pair_association": 2.6,
    "source_similarity": 1.0,
    "target_similarity": 0.9,
    "swapped_similarity": 0.3,
}


def run_with(**figures: Any) -> RunHistory:
    assert HEALTHY_TEXT.keys() == RunTextFigures.__dataclass_fields__.keys()
    return RunHistory(RunConfig(), [{"kind": "data", "update": 0, "text": {**HEALTHY_TEXT, **figures}}])


def test_healthy_text_and_runs_of_earlier_versions_are_not_suspected() -> None:
    for run in (run_with(), RunHistory(RunConfig(), [{"kind": "data", "update": 0}]), RunHistory(RunConfig(), [])):
        for check in (find_unrelated_pairs, find_swapped_validation, find_foreign_validation):
            assert check(run) is None


def test_pairs_that_do_not_belong_together_are_named_with_their_place() -> None:
    assert "in 6 of 6 stretches of the training text, words" in str(find_unrelated_pairs(run_with(unrelated_blocks=6)))
    found = find_unrelated_pairs(run_with(unrelated_blocks=2, first_unrelated=4000))
    assert "in 2 of 6 stretches of the training text, first after pair 4,000 of those kept" in str(found)


def test_swapped_sides_are_not_called_another_language() -> None:
    swapped = run_with(source_similarity=0.3, target_similarity=0.28, swapped_similarity=0.95)
    assert "are swapped" in str(find_swapped_validation(swapped))
    assert find_foreign_validation(swapped) is None


@pytest.mark.parametrize(("source", "target"), [(0.2, 0.9), (0.9, 0.2), (0.2, 0.1)])
def test_the_side_in_another_language_is_named(source: float, target: float) -> None:
    found = str(find_foreign_validation(run_with(source_similarity=source, target_similarity=target)))
    assert ("the sources of the validation text" in found) == (source < 0.5)
    assert ("the targets of the validation text" in found) == (target < 0.5)
    assert find_swapped_validation(run_with(source_similarity=source, target_similarity=target)) is None


def test_two_sides_in_one_language_are_not_swapped() -> None:
    assert find_swapped_validation(run_with(swapped_similarity=0.99)) is None


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_has_a_high_rate_and_ten_times_the_rate_of_each_is_one(preset: str) -> None:
    config, _ = load_run_config(None, arguments={"preset": preset})
    assert find_high_rate(RunHistory(config, [])) is None
    change = (
        {"training.learning_rate": 10 * config.training.learning_rate}
        if config.training.learning_rate is not None
        else {"training.warmup": config.training.warmup // 100}
    )
    ill, _ = load_run_config(None, arguments={"preset": preset, **change})
    rates = [compute_peak_rate(one.training, one.model.d_model) for one in (config, ill)]
    assert rates[1] == pytest.approx(10 * rates[0])
    assert next(iter(change)) in str(find_high_rate(RunHistory(ill, [])))


def test_the_proposed_rate_is_not_high() -> None:
    ill, _ = load_run_config(None, arguments={"preset": "tiny", "training.learning_rate": 0.05})
    assert "set it to about 0.002" in str(find_high_rate(RunHistory(ill, [])))


@pytest.mark.parametrize(("dropout", "is_named"), [(0.0, False), (0.3, False), (0.5, False), (0.6, True), (0.9, True)])
def test_strong_dropout_is_named(dropout: float, is_named: bool) -> None:
    config, _ = load_run_config(None, arguments={"model.dropout": dropout})
    assert (f"model.dropout = {dropout}" in str(find_strong_dropout(RunHistory(config, [])))) == is_named


Look = tuple[float, float, float, float]
"""Loss, worth of the right source, its standard error, entropy of the sharpest head; from update 50 on, every 50."""

YOUNG: list[Look] = [(6.7, 0.0, 0.002, 0.96), (6.1, 0.0, 0.001, 0.966), (5.87, 0.0, 0.003, 0.963)]
HEALTHY_NEWS: list[Look] = [
    *YOUNG,
    (5.759, 0.0016, 0.004, 0.90),
    (5.568, -0.0001, 0.006, 0.832),
    (5.205, -0.0029, 0.0097, 0.798),
    (4.881, -0.0111, 0.0123, 0.794),
    (4.641, 0.0094, 0.0085, 0.790),
    (4.511, 0.0078, 0.0087, 0.738),
    (4.388, 0.0108, 0.012, 0.718),
]
SLOW_NEWS: list[Look] = [
    (7.07, -0.0015, 0.0038, 0.956),
    (6.5, -0.0007, 0.0018, 0.969),
    (6.045, 0.0002, 0.002, 0.975),
    (5.922, 0.0018, 0.002, 0.982),
    (5.793, 0.0013, 0.0026, 0.982),
    (5.707, 0.0016, 0.0053, 0.986),
    (5.532, -0.0009, 0.009, 0.979),
    (5.307, -0.0027, 0.009, 0.954),
    (5.057, -0.005, 0.0083, 0.954),
    (4.848, -0.0018, 0.006, 0.934),
]
LATE_NEWS: list[Look] = [
    (6.958, 0.002, 0.0016, 0.9744),
    (6.125, 0.0041, 0.0017, 0.9798),
    (5.958, 0.0043, 0.0019, 0.9854),
    (5.75, 0.0015, 0.0015, 0.9959),
    (5.279, -0.0021, 0.0019, 0.9977),
    (4.916, 0.0013, 0.004, 0.9975),
    (4.699, 0.0049, 0.0074, 0.9976),
    (4.557, 0.0116, 0.0142, 0.9973),
    (4.42, 0.0116, 0.0045, 0.9878),
    (4.392, 0.0178, 0.0071, 0.9807),
    (4.328, 0.0123, 0.0092, 0.9815),
    (4.283, 0.0235, 0.0108, 0.9525),
]
HEALTHY_CAPTIONS: list[Look] = [
    (6.655, 0.002, 0.002, 0.927),
    (6.059, 0.0041, 0.0015, 0.939),
    (5.697, 0.02, 0.0045, 0.848),
    (5.421, 0.0744, 0.014, 0.811),
    (5.075, 0.1593, 0.0194, 0.769),
    (4.728, 0.2267, 0.0258, 0.704),
    (4.436, 0.3189, 0.0343, 0.702),
    (4.208, 0.4077, 0.04, 0.652),
]
DROPOUT: list[Look] = [
    (7.4, 0.0, 0.001, 0.98),
    (6.747, -0.0004, 0.0007, 0.986),
    (6.193, 0.0001, 0.0003, 0.991),
    (6.089, 0.0, 0.0002, 0.992),
    (6.009, -0.0001, 0.0001, 0.992),
    (5.99, 0.0, 0.0001, 0.993),
    (5.955, -0.0001, 0.00005, 0.994),
    (5.934, 0.0002, 0.0001, 0.983),
]
IGNORED: list[Look] = [(loss, 0.0, 0.0, 0.9) for loss, *_ in HEALTHY_CAPTIONS]
UNIFORM: list[Look] = [(loss, gain, error, 1.0) for loss, gain, error, _ in HEALTHY_CAPTIONS]


def run_of(source_uses: Sequence[Look], unigram: float = 5.99, **settings: Any) -> RunHistory:
    """The training loss lies a little above that of `source_uses`."""
    lines: list[dict[str, Any]] = [
        {
            "kind": "data",
            "update": 0,
            "text": {
                "unigram_loss": unigram,
                "num_blocks": 5,
                "unrelated_blocks": 0,
                "source_similarity": 1.0,
                "target_similarity": 1.0,
                "swapped_similarity": 0.2,
            },
        }
    ]
    for number, (loss, gain, error, sharpest) in enumerate(source_uses, start=1):
        lines.append({"kind": "training", "update": 50 * number, "cross_entropy": loss + 0.1, "learning_rate": 1e-3})
        figures = {"loss": loss, "shuffled_loss": loss + gain, "gain_error": error, "num_pairs": 24}
        figures |= {"attention_entropy": sharpest, "sharpest_entropy": sharpest}
        lines.append({"kind": "source_use", "update": 50 * number, **figures})
    given = {"preset": "tiny", "model.norm_order": "pre", "model.dropout": 0.1, "training.updates": 4000}
    config, _ = load_run_config(None, arguments={**given, "training.warmup": 400, **settings})
    return RunHistory(config, lines)


CHECKS = (find_unigram_loss, find_ignored_source, find_uniform_attention, find_rising_loss)


@pytest.mark.parametrize(
    "source_uses", [HEALTHY_NEWS, SLOW_NEWS, LATE_NEWS, HEALTHY_CAPTIONS, UNIFORM[:5], DROPOUT[:5], []]
)
def test_healthy_and_young_runs_are_not_suspected(source_uses: list[Look]) -> None:
    for length in range(len(source_uses) + 1):
        assert [check(run_of(source_uses[:length])) for check in CHECKS] == [None] * 4


def test_a_loss_that_stays_at_that_of_a_unigram_model() -> None:
    found = find_unigram_loss(run_of(DROPOUT, **{"model.dropout": 0.9}))
    assert "after 400 updates the loss (5.93) is no better" in str(found)
    assert "model.dropout = 0.9: set it to 0.1" in str(found)
    assert "learning_rate" in str(find_unigram_loss(run_of(DROPOUT)))
    assert find_ignored_source(run_of(DROPOUT)) is None  # one cause, one finding
    assert find_end_of_unigram_loss(run_of(DROPOUT)) is None
    assert find_end_of_unigram_loss(run_of([*DROPOUT, (5.4, 0.0, 0.1, 0.9)])) is not None


def test_a_long_warmup_is_waited_for_up_to_a_tenth_of_the_run() -> None:
    longer = {"training.warmup": 4000, "training.updates": 100_000}
    assert find_unigram_loss(run_of(DROPOUT, **longer)) is None
    assert find_unigram_loss(run_of(DROPOUT, **{**longer, "training.updates": 4000})) is not None


def test_a_loss_that_still_falls_asks_for_a_higher_rate() -> None:
    slow = [(8.0 - 0.2 * number, 0.0, 0.1, 0.95) for number in range(9)]
    assert "raise training.learning_rate" in str(find_unigram_loss(run_of(slow)))


def test_a_model_that_takes_no_notice_of_the_source() -> None:
    found = find_ignored_source(run_of(IGNORED, unigram=5.8))
    assert "its loss is 4.208 with the right source and 4.208 with that of another pair" in str(found)
    assert find_end_of_ignored_source(run_of(IGNORED, unigram=5.8)) is None
    assert "0.227 nats per token" in str(find_end_of_ignored_source(run_of(HEALTHY_CAPTIONS[:6])))


def test_pairs_too_few_to_tell_are_not_judged() -> None:
    run = run_of(IGNORED, unigram=5.8)
    few = [{**line, "num_pairs": 1} if line["kind"] == "source_use" else line for line in run.lines]
    assert find_ignored_source(RunHistory(run.config, few)) is None


def test_a_source_of_no_use_after_a_long_time() -> None:
    long = [*SLOW_NEWS, *[(4.5, 0.003, 0.006, 0.9)] * 20]
    assert "ignores the source" in str(find_ignored_source(run_of(long)))
    assert find_ignored_source(run_of([*long[:-1], (4.4, 0.05, 0.01, 0.9)])) is None


def test_attention_that_stays_uniform_though_the_source_is_of_use() -> None:
    found = find_uniform_attention(run_of(UNIFORM, unigram=5.8))
    assert "uniform in all heads" in str(found)
    post = {"model.norm_order": "post"}
    assert 'set it to "pre"' in str(find_uniform_attention(run_of(UNIFORM, unigram=5.8, **post)))
    assert find_end_of_uniform_attention(run_of(UNIFORM)) is None
    assert find_end_of_uniform_attention(run_of(HEALTHY_CAPTIONS)) is not None


def test_a_loss_that_rises_on_both_texts() -> None:
    risen = [*HEALTHY_CAPTIONS, *[(5.5, 0.0, 0.01, 0.5)] * 5]
    found = find_rising_loss(run_of(risen))
    assert "from 4.21 at its lowest to 5.50 after 650 updates" in str(found)
    # A rise on the validation text alone is overfitting, for which there is another check.
    alone = [{**line, "cross_entropy": 4.0} if line["kind"] == "training" else line for line in run_of(risen).lines]
    assert find_rising_loss(RunHistory(run_of(risen).config, alone)) is None
    assert find_end_of_rising_loss(run_of(risen)) is None
    assert find_end_of_rising_loss(run_of([*risen, (4.1, 0.0, 0.01, 0.5)])) is not None


def test_a_loss_that_rises_from_the_start_is_judged_once_there_is_enough_to_compare() -> None:
    rising = [(4.0 + 0.3 * number, 0.0, 0.01, 0.5) for number in range(10)]
    found = [find_rising_loss(run_of(rising[:length])) is not None for length in range(11)]
    assert found == [False] * 6 + [True] * 5


@pytest.mark.parametrize("figures", [{"unrelated_blocks": 5}, {"target_similarity": 0.1}])
def test_what_follows_from_the_text_is_not_said_twice(figures: dict[str, Any]) -> None:
    run = run_of(UNIFORM, unigram=5.8)
    data = {**run.lines[0], "text": {**run.text, **figures, "first_unrelated": 0}}
    ill = RunHistory(run.config, [data, *run.lines[1:]])
    assert find_ignored_source(ill) is None
    assert find_uniform_attention(ill) is None


TINY, _ = load_run_config(None, arguments={"preset": "tiny", "training.updates": 1000})
Line = dict[str, Any]


def validated_run(*validations: Line, training_loss: float = 2.0, every: int = 100) -> RunHistory:
    lines: list[Line] = []
    for number, figures in enumerate(validations, start=1):
        usual = {"loss": 4.0 / number, "accuracy": 0.5, "token_f1": 0.5, "is_best": False}
        lines.append({"kind": "training", "update": every * number, "cross_entropy": training_loss})
        lines.append({"kind": "validation", "update": every * number, **usual, **figures})
    return RunHistory(TINY, lines)


def line(accuracy: float, own: float) -> Line:
    return {"accuracy": accuracy, "token_f1": own}


AHEAD, HEALTHY, IMMATURE = line(0.9, 0.3), line(0.9, 0.8), line(0.3, 0.0)


@pytest.mark.parametrize(
    ("validations", "is_said"),
    [
        ([], False),
        ([AHEAD], False),
        ([AHEAD, AHEAD], True),
        ([AHEAD, HEALTHY, AHEAD], False),
        ([AHEAD, HEALTHY, AHEAD, AHEAD], True),
        ([IMMATURE, IMMATURE, IMMATURE], False),
        ([HEALTHY, HEALTHY], False),
    ],
)
def test_a_lead_of_the_accuracy_is_said_only_if_it_lasts(validations: list[Line], is_said: bool) -> None:
    assert (find_exposure_bias(validated_run(*validations)) is not None) == is_said


def test_what_an_older_version_logged_is_not_judged() -> None:
    old = [{"kind": "validation", "update": update, "accuracy": 0.9, "loss": 1.0} for update in (1, 2, 3, 4)]
    for check in (find_exposure_bias, find_one_output, find_repetition, find_overfitting):
        assert check(RunHistory(TINY, old)) is None


def test_the_end_of_a_lead() -> None:
    assert find_end_of_exposure_bias(validated_run(AHEAD, AHEAD)) is None
    assert find_end_of_exposure_bias(validated_run(AHEAD, IMMATURE)) is None
    assert "contain 80%" in str(find_end_of_exposure_bias(validated_run(AHEAD, HEALTHY)))


SAME, DIFFERENT = {"commonest_share": 0.9, "repetition_share": 0.6}, {"commonest_share": 0.02, "repetition_share": 0.03}


@pytest.mark.parametrize("check", [find_one_output, find_repetition])
def test_what_a_model_writes_is_judged_once_it_is_no_longer_young(check: Any) -> None:
    young = {**SAME, "accuracy": 0.2}
    assert check(validated_run(SAME)) is None
    assert check(validated_run(DIFFERENT, SAME)) is None
    assert check(validated_run(DIFFERENT, DIFFERENT)) is None
    assert check(validated_run(SAME, SAME)) is not None
    # The healthiest of news models write the same for everything after 200 updates, and repeat themselves at 1,000.
    assert check(validated_run(young, young, young, young)) is None
    # In the second half of the run, still so if the loss goes on falling, but not once it stands still.
    assert check(validated_run(*[young] * 8)) is None
    still = [{**young, "loss": 5.0}] * 8
    assert check(validated_run(*still[:4])) is None
    assert check(validated_run(*still)) is not None


def test_the_end_of_one_output_and_of_repetition() -> None:
    for check in (find_end_of_one_output, find_end_of_repetition):
        assert check(validated_run(SAME, SAME)) is None
        assert check(validated_run(SAME, DIFFERENT)) is not None


def test_overfitting_names_the_best_update_and_the_setting() -> None:
    losses = (3.0, 2.5, 2.4, 2.55, 2.6, 2.7)
    validations = [{"loss": loss, "is_best": number < 3} for number, loss in enumerate(losses)]
    found = str(find_overfitting(validated_run(*validations, training_loss=1.2)))
    assert "lowest after update 300 (2.40) and is 2.70 now, on the training text it is 1.20" in found
    assert "model.dropout (now 0.3)" in found
    assert find_overfitting(validated_run(*validations[:5], training_loss=1.2)) is None  # not for long enough
    assert find_overfitting(validated_run(*validations, training_loss=2.8)) is None  # the loss rises everywhere
    better = [*validations[:-1], {"loss": 2.7, "is_best": True}]
    assert find_overfitting(validated_run(*better, training_loss=1.2)) is None  # as BLEU may, while the loss rises
    assert find_end_of_overfitting(validated_run(*validations)) is None
    assert find_end_of_overfitting(validated_run(*better)) is not None


MetricsOf = Callable[[Path], list[dict[str, Any]]]
LEARNING: dict[str, Any] = {
    "model__d_model": 32,
    "model__dropout": 0.0,
    "training__updates": 90,
    "training__batch_tokens": 500,
    "training__validate_every": 30,
    "training__checkpoint_every": 1000,
    "training__log_every": 1000,
    "search__max_extra_length": 10,
}


def write_corpus(folder: Path, *, shuffled: bool = False) -> dict[str, Any]:
    """Sentences and their translations word by word; the settings that name the files."""
    random = np.random.default_rng(5)
    words = np.array(["sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door"])
    meanings = np.array(
        ["sol", "luna", "rivo", "petro", "avo", "arbo", "vento", "sal", "vojo", "lampo", "peco", "fino"]
    )
    sentences = [random.integers(len(words), size=random.integers(2, 7)) for _ in range(600)]
    sources, targets = ([" ".join(side[sentence]) for sentence in sentences] for side in (words, meanings))
    training = list(zip(sources[40:], targets[40:], strict=True))
    if shuffled:
        order = random.permutation(len(training))
        training = [(source, training[place][1]) for (source, _), place in zip(training, order, strict=True)]
    for name, pairs in (("train", training), ("valid", list(zip(sources[:40], targets[:40], strict=True)))):
        lines = (f"{source}\t{target}\n" for source, target in pairs)
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return {"data__folder": str(folder), "data__pairs": "train.tsv", "data__validation_pairs": "valid.tsv"}


def warnings_of(told: Any) -> list[str]:
    """What a run was told of its illnesses; these runs are told of their few pairs, too."""
    said = [text for text in told.said if text.startswith(("warning", "solved"))]
    return [text for text in said if "can teach a model no language" not in text]


@pytest.mark.exhaustive
def test_shuffled_targets_are_named_before_the_first_update(
    make_config: Callable[..., RunConfig], watcher: Any, tmp_path: Path, metrics_of: MetricsOf
) -> None:
    told = watcher()
    files = write_corpus(tmp_path, shuffled=True)
    given = files | {"data__cache": str(tmp_path / "cache"), "training__updates": 2, "training__warmup": 1}
    run = train(make_config(**given), told).folder
    (said,) = warnings_of(told)
    assert said.startswith("warning: in 1 of 1 stretches of the training text")
    (line,) = [line for line in metrics_of(run) if line["kind"] == "finding"]
    assert (line["update"], line["name"], line["is_over"]) == (0, "unrelated pairs", False)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<b>unrelated pairs</b>, before the first update: in 1 of 1 stretches" in page


SHORT: dict[str, Any] = {
    "training__updates": 400,
    "training__validate_every": 1000,
    "training__checkpoint_every": 1000,
    "training__log_every": 50,
}


def test_a_model_without_attention_to_the_source_is_named(
    make_config: Callable[..., RunConfig],
    watcher: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Transformer.__init__

    def deaf(self: Transformer, config: Any) -> None:
        original(self, config)
        for layer in self.decoder.layers:
            output = layer.cross_attention.output.weight
            torch.nn.init.zeros_(output)
            output.register_hook(torch.zeros_like)

    told, files = watcher(), write_corpus(tmp_path)
    monkeypatch.setattr(Transformer, "__init__", deaf)
    train(make_config(**files, **SHORT, data__cache=str(tmp_path / "cache")), told)
    (said,) = warnings_of(told)
    assert said.startswith("warning: the model ignores the source: after 400 updates")


@pytest.mark.exhaustive
def test_a_decoder_that_sees_what_it_has_to_predict_is_noticed(
    make_config: Callable[..., RunConfig], watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_mask(length: int, device: torch.device) -> torch.Tensor:
        return torch.ones(1, 1, length, length, dtype=torch.bool, device=device)

    monkeypatch.setattr("transduce.model.stacks.causal_attention_mask", no_mask)
    told = watcher()
    train(make_config(**LEARNING), told)
    assert any("see the token it has to predict" in text for text in warnings_of(told))
    assert told.validations[-1][1].accuracy > 0.5


@pytest.mark.exhaustive
def test_a_healthy_model_is_not_suspected(
    make_config: Callable[..., RunConfig], watcher: Any, copier: Any, metrics_of: MetricsOf
) -> None:
    told = watcher()
    healthy = train(make_config(**LEARNING), told).folder
    assert warnings_of(told) == []
    for run in (healthy, copier.result.folder):
        lines = metrics_of(run)
        assert "finding" not in {line["kind"] for line in lines}
        scored = [line for line in lines if line["kind"] in {"validation", "average"}]
        assert all(line["token_f1"] > 0.6 * line["accuracy"] for line in scored if line["accuracy"] > 0.4)
    assert scored[-1]["token_f1"] > 0.9
    assert [line["update"] for line in lines if line["kind"] == "source_use"] == [50, 100, 150, 200, 250, 300]


def validation(update: int, own: float) -> dict[str, Any]:
    return {"kind": "validation", "update": update, "loss": 1.0, "accuracy": 0.9, "token_f1": own}


def test_each_finding_and_its_end_are_said_once() -> None:
    lines: list[dict[str, Any]] = []
    said = []
    for update, own in enumerate((0.3, 0.3, 0.3, 0.8, 0.8, 0.3, 0.3, 0.8), start=1):
        lines.append(validation(update, own))
        for finding in find_new_findings(RunConfig(), lines):
            said.append((update, finding.name, finding.is_over))
            lines.append({"kind": "finding", "update": update, "name": finding.name, "is_over": finding.is_over})
    assert said == [(2, "exposure bias", False), (4, "exposure bias", True)]


def test_a_damaged_or_empty_record_is_no_finding() -> None:
    assert find_new_findings(RunConfig(), []) == []
    assert find_new_findings(RunConfig(), [{"kind": "data", "update": 0}, {"kind": "skipped", "update": 1}]) == []


@pytest.mark.parametrize("name", [name for name, (_, find_end) in ALL_CHECKS.items() if find_end is not None])
def test_without_the_figures_of_a_finding_its_end_is_not_found(name: str) -> None:
    finding = {"kind": "finding", "update": 5, "name": name, "text": "", "is_over": False}
    assert find_new_findings(RunConfig(), [finding]) == []


def test_the_lines_of_a_long_run_are_read_a_few_times_at_most() -> None:
    """A check of n lines that copies what came before each of them would copy n^2 / 2."""

    class CountingList(list[Any]):
        num_copied = 0

        def __getitem__(self, place: Any) -> Any:
            found = super().__getitem__(place)
            if isinstance(place, slice):
                self.num_copied += len(found)
            return found

    run = run_of([(4.0 + 0.01 * number, 0.0, 0.01, 0.5) for number in range(400)])
    lines = run.__dict__["training"] = CountingList(run.training)
    assert find_rising_loss(run) is not None
    assert len(lines) < lines.num_copied < 10 * len(lines)
