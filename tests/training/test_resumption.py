"""A run that was interrupted, killed or damaged ends, bit for bit, like one that never was."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle, list_checkpoints, load_checkpoint, save_checkpoint
from transduce.config import RunConfig
from transduce.data import PreparedData
from transduce.errors import RunError, TrainingError, TrainingInterruptedError
from transduce.kernels.linear import BLOCK
from transduce.training import Ranks, RunFolder, Trainer, train
from transduce.training.checkpoints import RunState
from transduce.training.optimization.updater import Updater
from transduce.training.run import _set_updates
from transduce.translation import Translator

MakeConfig = Callable[..., RunConfig]
Unbroken = Callable[..., dict[str, Any]]
OutcomeOf = Callable[[Path], dict[str, Any]]

PLAIN: dict[str, Any] = {}
ACCUMULATING = {
    "training__accumulation": 2,
    "text__bpe_dropout": 0.1,
    "text__augment_typing_errors": 0.2,
    "training__clip_norm": 1.0,
}
GUIDED = {"training__guided_alignment": 0.3, "training__initial_embeddings": "cooccurrence"}
AVERAGED = {
    "training__keep_checkpoints": 5,
    "training__best_by": "loss",
    "training__ema_decay": 0.9,
    "model__normalization": "batch",
}
REGULARIZED = {"training__r_drop": 5.0, "training__weight_decay": 0.1, "training__schedule": "cosine"}
MUON = {"training__optimizer": "muon", "training__weight_decay": 0.1, "training__ema_decay": 0.9}
LATER = {"model__normalization": "rms", "model__feed_forward": "gated", "model__positions": "relative"}
RIVALS = [{"model__architecture": name} for name in ("recurrent", "convs2s", "bytenet")]
# Products of more rows than one block, so that blocks overlap.
BFLOAT16 = {"training__precision": "bfloat16", "training__batch_tokens": 2 * BLOCK}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """The two outcomes, part by part: as a whole, they are too long to be shown."""
    assert found.keys() == expected.keys()
    different = [name for name in found if isinstance(found[name], bytes) and found[name] != expected[name]]
    assert not different
    assert {name: value for name, value in found.items() if not isinstance(value, bytes)} == {
        name: value for name, value in expected.items() if not isinstance(value, bytes)
    }


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        (PLAIN, [1, 8, 19]),
        pytest.param(PLAIN, [2, 7, 9], marks=pytest.mark.exhaustive),
        (ACCUMULATING, [5, 13]),
        (AVERAGED, [5, 20]),
        (BFLOAT16, [9]),
        (GUIDED, [1, 9]),
        (REGULARIZED, [5, 13]),
        pytest.param(REGULARIZED | ACCUMULATING | AVERAGED, [9], marks=pytest.mark.exhaustive),
        (MUON, [1, 9]),
        (LATER, [9]),
        *((rival, [9]) for rival in RIVALS),
    ],
)
def test_interrupted_and_resumed(
    make_config: MakeConfig,
    unbroken: Unbroken,
    outcome_of: OutcomeOf,
    watcher: Any,
    corpus: Path,
    changes: dict[str, Any],
    places: list[int],
) -> None:
    config = make_config(**changes)
    before = set((corpus / "cache").rglob("dropout-*"))  # other tests' epochs, which ended before their runs did
    for number, place in enumerate(places):
        by = (signal.SIGTERM, signal.SIGINT)[number % 2]
        with pytest.raises(TrainingInterruptedError, match=f"after update {place}; the same command") as interrupted:
            train(config, watcher(place, by))
        assert interrupted.value.exit_code == 130
        assert list_checkpoints(Path(config.output) / "checkpoints")[-1] == place
    told = watcher()
    assert train(config, told).updates == 20
    assert told.updates == list(range(places[-1] + 1, 21))
    assert f"resuming after update {places[-1]}" in told.said
    assert_same(outcome_of(Path(config.output)), unbroken(**changes))
    assert not set((corpus / "cache").rglob("dropout-*")) - before


def test_where_auto_means_another_precision_the_run_keeps_its_own(
    make_config: MakeConfig, unbroken: Unbroken, outcome_of: OutcomeOf, watcher: Any
) -> None:
    config = make_config(**BFLOAT16)
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(9, signal.SIGTERM))
    told = watcher()
    train(make_config(**BFLOAT16 | {"training__precision": "auto"}), told)  # float32 for so narrow a model
    expected = "goes on in bfloat16, in which it began; on this machine, training.precision = 'auto' means float32"
    assert [text for text in told.said if expected in text]
    assert_same(outcome_of(Path(config.output)), unbroken(**BFLOAT16))
    train(make_config(**BFLOAT16 | {"training__precision": "auto"}), restarted := watcher(), restart=True)
    assert not [text for text in restarted.said if "goes on in" in text]
    with pytest.raises(RunError, match=r"training\.precision: was 'float32', now 'bfloat16'"):
        train(config)


def test_the_loss_scale_of_float16_goes_on_where_it_was(
    make_config: MakeConfig, outcome_of: OutcomeOf, watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.training.optimization.updater.LOSS_SCALE_INTERVAL", 3)
    expected = outcome_of(train(make_config("unbroken", training__precision="float16")).folder)
    config = make_config(training__precision="float16")
    for place in (4, 11):
        with pytest.raises(TrainingInterruptedError):
            train(config, watcher(place, signal.SIGTERM))
        state = load_checkpoint(Path(config.output) / "checkpoints", place)[1]
        assert state["updates_at_loss_scale"]
    train(config)
    assert_same(outcome_of(Path(config.output)), expected)
    scales = {line["loss_scale"] for line in expected["metrics"] if line["kind"] == "training"}
    assert len(scales) > 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", [0, 4, 7])
def test_stopped_between_the_parts_of_an_update(
    make_config: MakeConfig,
    unbroken: Unbroken,
    outcome_of: OutcomeOf,
    watcher: Any,
    monkeypatch: pytest.MonkeyPatch,
    place: int,
) -> None:
    changes = {**AVERAGED, "training__accumulation": 3}
    expected = unbroken(**changes)
    update, accumulate = Updater.update, Updater.accumulate
    parts: list[int] = []  # of the update that is stopped

    def of_update(self: Updater, number: int, *rest: Any) -> Any:
        if number == place + 1:
            parts.append(0)
        return update(self, number, *rest)

    def stopping(self: Updater, batch: Any, num_tokens: int) -> Any:
        if parts:
            parts[0] += 1
            if parts[0] == 2:
                os.kill(os.getpid(), signal.SIGTERM)
        return accumulate(self, batch, num_tokens)

    config = make_config(**changes)
    with monkeypatch.context() as patches:
        patches.setattr(Updater, "update", of_update)
        patches.setattr(Updater, "accumulate", stopping)
        with pytest.raises(TrainingInterruptedError, match=f"after update {place};"):
            train(config, watcher())
    assert parts == [2]  # and not the third
    assert list_checkpoints(Path(config.output) / "checkpoints")[-1:] == ([place] if place else [])
    assert train(config, watcher()).updates == 20
    assert_same(outcome_of(Path(config.output)), expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize("best_by", ["bleu", "chrf", "loss"])
def test_patience_is_not_renewed_by_a_stop(
    make_config: MakeConfig, unbroken: Unbroken, outcome_of: OutcomeOf, watcher: Any, killed: Any, best_by: str
) -> None:
    # Far too high a rate: the figures go up and down, and validations fall between checkpoints.
    changes: dict[str, Any] = {
        "training__updates": 40,
        "training__learning_rate": 0.3,
        "training__patience": 3,
        "training__best_by": best_by,
        "training__validate_every": 2,
        "training__checkpoint_every": 5,
    }
    expected = unbroken(**changes)
    validations = [line for line in expected["metrics"] if line["kind"] == "validation"]
    end = validations[-1]["update"]
    assert [line["is_best"] for line in validations[-4:]] == [True, False, False, False]
    assert end < 40
    config = make_config(**changes)
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(end - 3, signal.SIGTERM))
    for moment in (f"validation {end - 2}", f"validation {end}"):
        with pytest.raises(killed):
            train(config, watcher(moment))
    assert train(config).updates == end
    assert_same(outcome_of(Path(config.output)), expected)


@pytest.mark.parametrize("best_by", ["loss", pytest.param("bleu", marks=pytest.mark.exhaustive)])
def test_a_plateau_lowers_the_rate_whenever_the_run_is_stopped(
    make_config: MakeConfig, unbroken: Unbroken, outcome_of: OutcomeOf, watcher: Any, killed: Any, best_by: str
) -> None:
    # Far too high a rate: the figures go up and down, and validations fall between checkpoints.
    changes: dict[str, Any] = {
        "training__updates": 24,
        "training__schedule": "plateau",
        "training__learning_rate": 0.3,
        "training__plateau_patience": 1,
        "training__plateau_factor": 0.7,
        "training__best_by": best_by,
        "training__validate_every": 2,
        "training__checkpoint_every": 5,
    }
    expected = unbroken(**changes)
    is_best = {line["update"]: line["is_best"] for line in expected["metrics"] if line["kind"] == "validation"}
    rates = {line["update"]: line["learning_rate"] for line in expected["metrics"] if line["kind"] == "training"}
    lowered = [update for update, is_gain in is_best.items() if not is_gain]
    for update, rate in rates.items():
        num_plateaus = sum(before < update for before in lowered)
        assert rate == pytest.approx(0.3 * min(1, update / 5) * 0.7**num_plateaus)
    assert lowered[0] <= 20
    assert expected["state"]["num_plateaus"] == len(lowered)
    config = make_config(**changes)
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(lowered[0], signal.SIGTERM))
    for moment in (f"validation {lowered[0] + 2}", lowered[0] + 3):
        with pytest.raises(killed):
            train(config, watcher(moment))
    told = watcher()
    assert train(config, told).updates == 24
    assert_same(outcome_of(Path(config.output)), expected)


@pytest.mark.exhaustive
def test_another_seed_gives_other_weights(unbroken: Unbroken) -> None:
    name = "weights/source_embedding.weight"
    assert unbroken(training__seed=2)[name] != unbroken()[name]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("changes", "moment"),
    [
        (PLAIN, 1),
        (PLAIN, 7),
        (PLAIN, "validation 8"),
        (PLAIN, 20),
        (AVERAGED, 9),
        (AVERAGED, "validation 20"),
        (AVERAGED, "average of the last"),
        (AVERAGED, "weights of the last update"),
    ],
)
def test_killed_and_resumed(
    make_config: MakeConfig,
    unbroken: Unbroken,
    outcome_of: OutcomeOf,
    watcher: Any,
    killed: type[BaseException],
    changes: dict[str, Any],
    moment: int | str,
) -> None:
    config = make_config(**changes)
    with pytest.raises(killed):
        train(config, watcher(moment))
    train(config)
    assert_same(outcome_of(Path(config.output)), unbroken(**changes))


@pytest.mark.exhaustive
def test_killed_after_the_average_was_logged(
    make_config: MakeConfig, unbroken: Unbroken, outcome_of: OutcomeOf, watcher: Any, killed: type[BaseException]
) -> None:
    class KilledAtTheSecond(watcher):  # type: ignore[misc]  # a fixture is no type
        """The validation of the last update, and behind it that of the average."""

        def report_validation(self, update: int, *rest: Any, **more: Any) -> None:
            super().report_validation(update, *rest, **more)
            if update == 20 and len(self.validations) == 4:
                raise killed

    config = make_config()
    with pytest.raises(killed):
        train(config, KilledAtTheSecond())
    train(config)
    assert_same(outcome_of(Path(config.output)), unbroken())


@pytest.mark.exhaustive
def test_interrupted_during_a_validation(
    make_config: MakeConfig, unbroken: Unbroken, outcome_of: OutcomeOf, watcher: Any
) -> None:
    config = make_config(training__checkpoint_every=6)
    with pytest.raises(TrainingInterruptedError, match="after update 8;"):
        train(config, watcher("validation 8", signal.SIGINT))
    train(config)
    assert_same(outcome_of(Path(config.output)), unbroken(training__checkpoint_every=6))


@pytest.mark.exhaustive
@pytest.mark.parametrize("harm", [flip_a_byte, Path.unlink])
@pytest.mark.parametrize("name", ["optimizer.safetensors", "checkpoint.json"])
def test_a_damaged_or_half_checkpoint_is_passed_over(
    make_config: MakeConfig,
    unbroken: Unbroken,
    outcome_of: OutcomeOf,
    watcher: Any,
    name: str,
    harm: Callable[[Path], None],
) -> None:
    config = make_config()
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(18, signal.SIGTERM))
    damaged = Path(config.output) / "checkpoints" / "000000018"
    harm(damaged / name)
    told = watcher()
    train(config, told)
    assert any("update 18 is passed over" in text and name in text for text in told.said)
    assert told.updates == [17, 18, 19, 20]
    assert_same(outcome_of(Path(config.output)), unbroken())
    kept = damaged.with_name("000000018.passed-over-1")
    assert any(str(kept) in text for text in told.said)
    assert kept.is_dir()


@pytest.mark.exhaustive
def test_starting_over_takes_a_word_even_when_no_checkpoint_can_be_read(
    make_config: MakeConfig, unbroken: Unbroken, outcome_of: OutcomeOf, watcher: Any
) -> None:
    config = make_config(training__keep_checkpoints=1)
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(18, signal.SIGTERM))
    flip_a_byte(Path(config.output) / "checkpoints" / "000000018" / "weights.safetensors")
    before = {path: path.read_bytes() for path in Path(config.output).rglob("*") if path.is_file()}
    told = watcher()
    with pytest.raises(RunError, match="none of the checkpoints can be read"):
        train(config, told)
    assert any("update 18 is passed over" in text for text in told.said)
    assert {path: path.read_bytes() for path in Path(config.output).rglob("*") if path.is_file()} == before
    train(config, restart=True)
    assert_same(outcome_of(Path(config.output)), unbroken(training__keep_checkpoints=1))


@pytest.mark.exhaustive
@pytest.mark.parametrize("keep", [2, 3])
def test_what_a_killed_process_had_no_time_to_remove_is_not_averaged(
    make_config: MakeConfig,
    unbroken: Unbroken,
    outcome_of: OutcomeOf,
    watcher: Any,
    monkeypatch: pytest.MonkeyPatch,
    killed: type[BaseException],
    keep: int,
) -> None:
    """Neither a checkpoint that was made for a stop alone, nor one more than are kept."""
    settings = {"training__keep_checkpoints": keep, "training__best_by": "loss"}
    config = make_config(**settings)
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(14, signal.SIGTERM))
    save = RunState.save
    for update in (16, 20):

        def save_and_die(state: RunState, *rest: Any, update: int = update) -> None:
            save(state, *rest)
            if state.update == update:
                raise killed

        with monkeypatch.context() as patch:
            patch.setattr(RunState, "save", save_and_die)
            with pytest.raises(killed):
                train(config)
    train(config)
    assert_same(outcome_of(Path(config.output)), unbroken(**settings))


@pytest.mark.exhaustive
def test_best_is_never_replaced_by_something_worse(
    make_config: MakeConfig, watcher: Any, killed: type[BaseException]
) -> None:
    """Though the validation that found it came after the last checkpoint, and is not made again."""
    settings = {"training__best_by": "loss", "training__checkpoint_every": 100, "training__keep_checkpoints": 1}
    first = make_config(**settings, training__validate_every=18)
    with pytest.raises(killed):
        train(first, watcher(19))
    best = Path(first.output) / "best"
    before = Bundle.open(best).description
    told = watcher()
    result = train(make_config(**settings, training__validate_every=3, training__updates=6), told)
    assert [is_best for _, _, is_best in told.validations] == [True, True]
    assert told.said.count(f"{best} is better, from before this run was stopped, and is kept") == 2
    assert Bundle.open(best).description == before
    assert before.training["validation_loss"] < -result.best
    # What comes to be better takes its place.
    train(make_config(**settings, training__validate_every=20))
    assert Bundle.open(best).description.training["update"] == 20


@pytest.mark.exhaustive
def test_checkpoints_of_another_rhythm_are_kept(make_config: MakeConfig, watcher: Any) -> None:
    long = {"training__updates": 40, "training__keep_checkpoints": 5}
    with pytest.raises(TrainingInterruptedError):
        train(make_config(training__checkpoint_every=4, **long), watcher(14, signal.SIGTERM))
    with pytest.raises(TrainingInterruptedError):
        train(make_config(training__checkpoint_every=5, **long), watcher(15, signal.SIGTERM))
    # 14 was made for the stop alone, and is no longer needed.
    assert list_checkpoints(Path(make_config().output) / "checkpoints") == [4, 8, 12, 15]


def test_a_run_ends_with_a_model_though_nothing_is_left_to_train(make_config: MakeConfig, watcher: Any) -> None:
    slow = {"training__validate_every": 100, "training__schedule": "inverse_square_root"}
    with pytest.raises(TrainingInterruptedError):
        train(make_config(**slow), watcher(6, signal.SIGTERM))
    assert not (Path(make_config().output) / "best").exists()
    result = train(make_config(**slow, training__updates=6))
    assert Translator.load(result.folder).translate([""]) == [""]


@pytest.mark.exhaustive
def test_a_damaged_checkpoint_is_left_out_of_the_average(make_config: MakeConfig, watcher: Any) -> None:
    config = make_config()
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(18, signal.SIGTERM))
    flip_a_byte(Path(config.output) / "checkpoints" / "000000008" / "weights.safetensors")
    told = watcher()
    assert train(config, told).updates == 20
    assert any("update 8 is left out of the average" in text and "000000008" in text for text in told.said)
    assert "average of the last 2 checkpoints:" in told.said


def lose(best: Path) -> None:
    shutil.rmtree(best)


def flip_a_weight(best: Path) -> None:
    flip_a_byte(best / "weights.safetensors")


def lose_the_description(best: Path) -> None:
    (best / "bundle.json").unlink()


@pytest.mark.exhaustive
@pytest.mark.parametrize("harm", [lose, flip_a_weight, lose_the_description])
@pytest.mark.parametrize("updates_left", [0, 4])
def test_a_best_that_is_lost_is_replaced(
    make_config: MakeConfig, watcher: Any, harm: Callable[[Path], None], updates_left: int
) -> None:
    # No later model is better: of this rate, the figures get worse.
    config = make_config(training__learning_rate=0.3, training__best_by="loss", training__validate_every=4)
    first = train(config)
    best = first.folder / "best"
    if updates_left:
        shutil.rmtree(first.folder / "checkpoints" / "000000020")
    harm(best)
    told = watcher()
    result = train(config, told)
    assert [text for text in told.said if text.startswith("the best model so far is lost: ") and str(best) in text]
    assert told.updates == list(range(21 - updates_left, 21))
    assert Bundle.open(best).description.training["validation_loss"] == -result.best
    assert (first.folder / "best.damaged-1").exists() == (harm is lose_the_description)
    # and now all is well
    again = watcher()
    assert train(config, again).best == result.best
    assert again.said[-1] == "nothing to do: training ended after update 20"


def test_a_checkpoint_of_a_later_version_is_not_taken_up(make_config: MakeConfig) -> None:
    folder = train(make_config(training__updates=2)).folder / "checkpoints"
    tensors, state = load_checkpoint(folder, 2)
    save_checkpoint(folder, 2, tensors, state | {"mood": "good"})
    with pytest.raises(
        RunError,
        match=r"update 2 was written by a later version of Transduce \(unknown field "
        r"'mood'\)",
    ):
        train(make_config(training__updates=3))


@pytest.mark.exhaustive
def test_the_first_line_of_metrics_is_written_again_if_it_is_lost(make_config: MakeConfig) -> None:
    metrics = train(make_config(training__updates=2)).folder / "metrics.jsonl"
    first, *others = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
    metrics.write_text("".join([first[:20] + "\n", *others]), encoding="utf-8")
    train(make_config(training__updates=3))
    assert metrics.read_text(encoding="utf-8").splitlines(keepends=True).count(first) == 1


@pytest.mark.exhaustive
def test_a_full_disk_says_how_to_go_on(
    make_config: MakeConfig, unbroken: Unbroken, outcome_of: OutcomeOf, watcher: Any
) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    class Filling(watcher):  # type: ignore[misc]  # a fixture is no type
        """From update 15 on, no file can become as large as a checkpoint is."""

        def report_progress(self, progress: Any) -> None:
            super().report_progress(progress)
            if progress.update == 15:
                resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))

    config = make_config()
    try:
        with pytest.raises(TrainingError, match=r"could not be written.* the same command resumes from the last"):
            train(config, Filling())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    train(config)
    assert_same(outcome_of(Path(config.output)), unbroken())


@pytest.mark.exhaustive
def test_a_finished_run_has_nothing_to_do(make_config: MakeConfig, watcher: Any) -> None:
    config = make_config()
    first = train(config)
    before = {path: path.read_bytes() for path in Path(config.output).rglob("*") if path.is_file()}
    told = watcher()
    assert train(config, told) == first
    assert not told.updates
    assert told.said[-1] == "nothing to do: training ended after update 20"
    assert {path: path.read_bytes() for path in Path(config.output).rglob("*") if path.is_file()} == before


@pytest.mark.exhaustive
def test_more_updates_go_on(make_config: MakeConfig, unbroken: Unbroken, outcome_of: OutcomeOf, watcher: Any) -> None:
    train(make_config(training__updates=16))
    told = watcher()
    train(make_config(), told)
    assert told.updates == [17, 18, 19, 20]
    found, expected = outcome_of(Path(make_config().output)), unbroken()
    assert found["checkpoints"] == expected["checkpoints"]
    assert {name: found[name] for name in found if isinstance(found[name], bytes)} == {
        name: expected[name] for name in expected if isinstance(expected[name], bytes)
    }
    averages = [line["update"] for line in found["metrics"] if line["kind"] == "average"]
    assert averages == [16, 20]


@pytest.mark.exhaustive
def test_killed_before_the_average_of_added_updates(
    make_config: MakeConfig, outcome_of: OutcomeOf, watcher: Any, killed: type[BaseException]
) -> None:
    train(make_config(training__updates=16))
    with pytest.raises(killed):
        train(make_config(), watcher("average of the last"))
    train(make_config())
    averages = [
        line["update"] for line in outcome_of(Path(make_config().output))["metrics"] if line["kind"] == "average"
    ]
    assert averages == [16, 20]


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_more_updates_of_a_decay_to_zero_are_another_run(make_config: MakeConfig, schedule: str) -> None:
    train(make_config(training__updates=6, training__schedule=schedule))
    with pytest.raises(RunError, match=r"training\.updates: was 6, now 9"):
        train(make_config(training__updates=9, training__schedule=schedule))


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_epochs_of_a_decay_to_zero_are_resumed(make_config: MakeConfig, watcher: Any, schedule: str) -> None:
    settings = {"training__schedule": schedule, "training__updates": 100_000}  # as given by a preset
    config = make_config(**settings, training__epochs=1.0)
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(1, signal.SIGTERM))
    updates = train(config).updates
    assert 1 < updates < 20
    assert train(config).updates == updates
    with pytest.raises(RunError, match=r"training\.epochs: was 1\.0, now 2\.0"):
        train(make_config(**settings, training__epochs=2.0))


def test_epochs_are_counted_in_the_batches_that_the_run_began_with(
    make_config: MakeConfig, prepare_for: Callable[[RunConfig], PreparedData]
) -> None:
    config, more = make_config(training__epochs=1.0), make_config(training__epochs=10.0)
    folder = train(config).folder
    (update,) = list_checkpoints(folder / "checkpoints")
    parts, state = load_checkpoint(folder / "checkpoints", update)
    save_checkpoint(folder / "checkpoints", update, parts, {**state, "ranks": 4})
    prepared = prepare_for(config)
    whole, quarter = (_set_updates(more, prepared, None, Ranks(0, size)).training.updates for size in (1, 4))
    assert quarter < whole / 2
    assert _set_updates(more, prepared, RunFolder(folder), Ranks()).training.updates == quarter
    assert _set_updates(config, prepared, RunFolder(folder), Ranks()).training.updates == update
    # Without a checkpoint, nothing is bound to the ranks that the run began with.
    shutil.rmtree(folder / "checkpoints")
    assert _set_updates(more, prepared, RunFolder(folder), Ranks()).training.updates == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_the_final_model_is_chosen(
    make_config: MakeConfig, unbroken: Unbroken, outcome_of: OutcomeOf, watcher: Any, number: signal.Signals
) -> None:
    config, told = make_config(), watcher("average of the last", number)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as the command does
    try:
        with pytest.raises(TrainingInterruptedError, match="the same command goes on"):
            train(config, told)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told.updates[-1] == 20
    train(config)
    assert_same(outcome_of(Path(config.output)), unbroken())


def test_a_request_while_the_last_checkpoint_is_saved_is_heard(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Trainer._checkpoint

    def save_and_stop(trainer: Trainer) -> None:
        save(trainer)
        os.kill(os.getpid(), signal.SIGINT)

    config = make_config(training__updates=4)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_checkpoint", save_and_stop)
        with pytest.raises(TrainingInterruptedError, match="stopped after update 4; the same command"):
            train(config)
    assert train(config).updates == 4


def test_more_validations_of_a_rate_that_depends_on_them_are_another_run(make_config: MakeConfig) -> None:
    train(make_config(training__updates=6, training__schedule="plateau"))
    with pytest.raises(RunError, match=r"training\.validate_every: was 8, now 4"):
        train(make_config(training__updates=8, training__schedule="plateau", training__validate_every=4))
    assert train(make_config(training__updates=8, training__schedule="plateau")).updates == 8


def test_what_was_passed_over_never_replaces_what_was_kept(make_config: MakeConfig, watcher: Any) -> None:
    config = make_config()
    train(config)
    checkpoints = Path(config.output) / "checkpoints"
    for _ in range(2):
        shutil.copytree(checkpoints / "000000016", checkpoints / "000000099")
        train(config)
    assert {"000000099.passed-over-1", "000000099.passed-over-2"} < {path.name for path in checkpoints.iterdir()}
    assert list_checkpoints(checkpoints) == [8, 16, 20]


@pytest.mark.parametrize("restart", [True, False])
def test_a_stopped_run_says_which_command_goes_on(make_config: MakeConfig, watcher: Any, restart: bool) -> None:
    config = make_config()
    with pytest.raises(TrainingInterruptedError) as stopped:
        train(config, watcher(3, signal.SIGTERM), restart=restart)
    assert ("the same command without --restart resumes" in str(stopped.value)) == restart
    assert ("the same command resumes" in str(stopped.value)) != restart


@pytest.mark.exhaustive
def test_other_text_is_refused_before_the_first_checkpoint(
    make_config: MakeConfig, corpus: Path, tmp_path: Path, watcher: Any, killed: Any
) -> None:
    for name in ("train.tsv", "validation.tsv"):
        shutil.copy(corpus / name, tmp_path)
    config = make_config(data__folder=str(tmp_path), training__checkpoint_every=1000)
    with pytest.raises(killed):
        train(config, watcher(18))
    text = tmp_path / "train.tsv"
    whole = text.read_text(encoding="utf-8")
    text.write_text("".join(whole.splitlines(keepends=True)[1:]), encoding="utf-8")
    with pytest.raises(RunError, match="was trained on other data"):
        train(config)
    text.write_text(whole, encoding="utf-8")
    assert train(config).updates == 20


@pytest.mark.exhaustive
def test_another_machine_is_named(make_config: MakeConfig, watcher: Any) -> None:
    config = make_config()
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(3, signal.SIGTERM))
    metrics = Path(config.output) / "metrics.jsonl"
    metrics.write_text(
        metrics.read_text(encoding="utf-8").replace('"threads": "1"', '"threads": "7"'), encoding="utf-8"
    )
    told = watcher()
    train(config, told)
    assert any("threads was 7, now 1" in text for text in told.said)


@pytest.mark.exhaustive
def test_memory_that_runs_out_says_how_to_go_on(make_config: MakeConfig, watcher: Any) -> None:
    class Greedy(watcher):  # type: ignore[misc]  # a fixture is no type
        def report_progress(self, progress: Any) -> None:
            super().report_progress(progress)
            if progress.update == 10:
                raise MemoryError

    config = make_config()
    with pytest.raises(TrainingError, match=r"memory is full; checkpoints are intact: .* the same command resumes"):
        train(config, Greedy())
    assert train(config).updates == 20
