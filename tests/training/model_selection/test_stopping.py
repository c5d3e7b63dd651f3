"""Losses and gradients that are no numbers, made by weights so large that some sentences overflow."""

import math
import os
import queue
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from transduce.bundle import collect_model_tensors, list_checkpoints, load_checkpoint
from transduce.config import RunConfig, TrainingConfig, TransformerConfig
from transduce.data import Batch, PreparedData
from transduce.errors import TrainingError, TrainingInterruptedError
from transduce.model import Transformer
from transduce.training import RunFolder, Trainer, UpdateFigures, Updater, catch_stop_signals, train
from transduce.training.model_selection import stopping
from transduce.training.model_selection.stopping import StopRequest, explain_early_stop, has_plateaued, is_finite


def validations(*chrf: float, average: float = 99.0) -> list[dict[str, Any]]:
    """Lines of a validation every 10 updates, among others."""
    lines: list[dict[str, Any]] = [{"kind": "data", "update": 0}]
    for number, value in enumerate(chrf, start=1):
        scores = [{"metric": "BLEU", "value": 0.0}, {"metric": "chrF", "value": value}]
        lines += [{"kind": "training", "update": 10 * number}]
        lines += [{"kind": "validation", "update": 10 * number, "loss": 9 - value, "scores": scores}]
    last = {"update": 10 * len(chrf), "is_best": True, "scores": [{"metric": "chrF", "value": average}]}
    return [*lines, {"kind": "average", **last}]


@pytest.mark.parametrize(("best_by", "name"), [("chrf", "chrF"), ("loss", "loss")])
def test_a_run_that_got_no_better_says_since_when(best_by: Literal["chrf", "loss"], name: str) -> None:
    training = TrainingConfig(patience=2, best_by=best_by, updates=1000)
    assert explain_early_stop(training, validations(5, 4, 6, 6, 5)) == (
        f"stopped after update 50: 2 validations in a row without a better {name}; best was update 30; raise "
        "training.patience to continue"
    )


def test_a_better_chrf_counts_where_bleu_is_the_same() -> None:
    training = TrainingConfig(patience=2, best_by="bleu", updates=1000)
    assert explain_early_stop(training, validations(5, 6, 7)) is None
    ended = explain_early_stop(training, validations(5, 7, 6, 6))
    assert ended is not None
    assert "without a better BLEU; best was update 20" in ended


@pytest.mark.parametrize(
    ("patience", "updates", "chrf"),
    [
        (0, 1000, [5, 4, 4]),  # none was asked for
        (2, 1000, [5, 4, 4, 6, 5]),  # it is not at its end
        (2, 30, [5, 4, 4]),  # the updates are
        (2, 1000, []),
    ],
)
def test_others_have_nothing_to_say(patience: int, updates: int, chrf: list[float]) -> None:
    training = TrainingConfig(patience=patience, updates=updates, best_by="chrf")
    assert explain_early_stop(training, validations(*chrf)) is None


def test_a_plateau_comes_after_every_so_many_validations_without_a_gain() -> None:
    training = TrainingConfig(schedule="plateau", learning_rate=1e-3, plateau_patience=3)
    assert [count for count in range(10) if has_plateaued(training, count)] == [3, 6, 9]
    assert not any(has_plateaued(TrainingConfig(plateau_patience=3), count) for count in range(10))


MakeConfig = Callable[..., RunConfig]
HUGE = 3e38
VOCABULARY = 20
GOOD = Batch.from_ids([[2, 3, 1], [4, 1]], [[5, 1], [6, 7, 1]], VOCABULARY - 1)
BAD = Batch.from_ids([[2, 9, 1], [4, 1]], [[5, 1], [6, 7, 1]], VOCABULARY - 1)
UNTIED = {"model__tied_embeddings": "none"}


@pytest.mark.parametrize(
    ("loss", "norm", "skipped"),
    [(1.0, 2.0, False), (0.0, 0.0, False), (math.nan, 1.0, True), (1.0, math.inf, True), (-math.inf, math.nan, True)],
)
def test_what_is_skipped(loss: float, norm: float, skipped: bool) -> None:
    assert UpdateFigures(loss, 1.0, 0.5, 10, 0.0, norm, 1e-3).is_skipped == skipped


def updater(normalization: str, optimizer: str = "adam") -> Updater:
    """One for which the source token 9 is too much."""
    torch.manual_seed(3)
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 2}
    kind = {"normalization": normalization, "tied_embeddings": "none"}
    model = Transformer(TransformerConfig(vocabulary=VOCABULARY, **sizes, **kind))
    with torch.no_grad():
        model.source_embedding.weight[9] = HUGE
    return Updater(model, TrainingConfig(warmup=2, optimizer=optimizer), torch.device("cpu"))


def content(given: Updater) -> dict[str, bytes]:
    """Everything of an updater, to the bit."""
    moments = enumerate(state for optimizer in given.optimizers for state in optimizer.state.values())
    tensors = {f"{index} {name}": value for index, state in moments for name, value in state.items()}
    return {
        name: tensor.detach().numpy().tobytes()
        for name, tensor in (collect_model_tensors(given.model) | tensors).items()
    }


@pytest.mark.parametrize(("normalization", "optimizer"), [("layer", "adam"), ("batch", "adam"), ("layer", "muon")])
@pytest.mark.parametrize("num_before", [0, 2])
@pytest.mark.parametrize("batches", [[BAD], [GOOD, BAD], [BAD, GOOD]])
def test_a_skipped_update_leaves_everything_as_it_was(
    normalization: str, optimizer: str, num_before: int, batches: list[Batch]
) -> None:
    one, other = updater(normalization, optimizer), updater(normalization, optimizer)
    for number in range(1, num_before + 1):
        assert not one.update(number, [GOOD]).is_skipped
        other.update(number, [GOOD])
    before = content(one)
    assert one.update(num_before + 1, batches).is_skipped
    assert content(one) == before
    for later in (one, other):
        later.update(num_before + 2, [GOOD])
    assert content(one) == content(other) != before


@pytest.fixture
def make_trainer(prepare_for: Callable[[RunConfig], PreparedData]) -> Callable[..., Callable[[], Trainer]]:
    """What makes the trainer of a run at its beginning."""

    def prepared(config: RunConfig, watcher: Any) -> Callable[[], Trainer]:
        def make() -> Trainer:
            data = prepare_for(config)
            folder = RunFolder(Path(config.output))
            sized = config.with_vocabulary(data.tokenizer.vocabulary)
            folder.begin(sized, restart=False)
            return Trainer(sized, data, folder, watcher)

        return make

    return prepared


def overflow(trainer: Trainer, word: str) -> None:
    """See to it that the model cannot bear `word`."""
    with torch.no_grad():
        trainer.model.source_embedding.weight[trainer.prepared.tokenizer.encode(word)[1:]] = HUGE


@pytest.mark.exhaustive
@pytest.mark.parametrize("normalization", ["layer", "batch"])
def test_skipping_is_said_counted_and_the_same_after_a_stop(
    make_config: MakeConfig,
    make_trainer: Any,
    watcher: Any,
    outcome_of: Callable[[Path], dict[str, Any]],
    tmp_path: Path,
    normalization: str,
) -> None:
    (tmp_path / "plain.tsv").write_text("sun moon\tmoon sun\n", encoding="utf-8")
    text = {"data__validation_pairs": str(tmp_path / "plain.tsv"), "training__batch_tokens": 12}
    settings = {**UNTIED, **text, "model__normalization": normalization, "training__best_by": "loss"}
    told = watcher()
    unbroken = make_trainer(make_config("unbroken", **settings), told)()
    overflow(unbroken, "été")
    unbroken.run(StopRequest())
    unbroken.finish()
    expected = outcome_of(unbroken.folder.path)
    said = [text for text in told.said if "is skipped" in text]
    lines = [line for line in expected["metrics"] if line["kind"] == "skipped"]
    assert expected["state"]["skipped"] == len(said) == len(lines) > 1
    assert len(told.updates) + len(said) == 20
    assert [line["skipped"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["loss"] == "nan"
    assert "its loss is nan" in said[0]

    for number, updates in enumerate([lines[0]["update"], lines[-1]["update"], 20]):
        trainer = make_trainer(make_config("stopped", **settings, training__updates=updates), watcher())()
        if number:
            trainer.resume()
        else:
            overflow(trainer, "été")
        trainer.run(StopRequest())
        trainer.finish()
    found = outcome_of(trainer.folder.path)
    assert [name for name in expected if isinstance(expected[name], bytes) and found[name] != expected[name]] == []
    for count in ("skipped", "skipped_in_a_row", "batches_digest"):
        assert found["state"][count] == expected["state"][count]
    assert [line for line in found["metrics"] if line["kind"] in {"training", "skipped"}] == [
        line for line in expected["metrics"] if line["kind"] in {"training", "skipped"}
    ]


@pytest.mark.exhaustive
def test_too_many_in_a_row_name_the_batch(
    make_config: MakeConfig, make_trainer: Any, watcher: Any, corpus: Path
) -> None:
    config = make_config(**UNTIED, training__updates=40, training__validate_every=100)
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(9, signal.SIGTERM))
    trainer = make_trainer(config, watcher())()
    trainer.resume()
    with torch.no_grad():
        trainer.model.source_embedding.weight[:] = HUGE
    with pytest.raises(TrainingError, match=r"update 19 is the last of 10 consecutive skipped updates") as diverged:
        trainer.run(StopRequest())
    message, *pairs = str(diverged.value).split("\n")
    place = trainer.state.place
    assert f"batch {place.batch} of epoch {place.epoch + 1}, " in message
    assert "training.learning_rate" in message
    lines = (corpus / "train.tsv").read_text(encoding="utf-8").splitlines()
    assert len(pairs) == 3
    for pair in pairs:
        source, target = pair.strip().split(" -> ")
        assert f"{source[1:-1]}\t{target[1:-1]}" in lines
    assert list_checkpoints(trainer.folder.checkpoints) == [8, 16]
    assert load_checkpoint(trainer.folder.checkpoints, 16)[1]["skipped_in_a_row"] == 7


@pytest.mark.exhaustive
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_not_saved(
    make_config: MakeConfig, make_trainer: Any, watcher: Any, value: float
) -> None:
    config = make_config(training__keep_checkpoints=1, training__validate_every=100)
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(15, signal.SIGTERM))
    trainer = make_trainer(config, watcher())()
    trainer.resume()
    assert is_finite(trainer.model)
    with torch.no_grad():
        next(iter(trainer.model.parameters()))[0, 0] = value
    assert not is_finite(trainer.model)
    with pytest.raises(TrainingError, match="weights are not finite after update 16"):
        trainer.run(StopRequest())
    assert list_checkpoints(trainer.folder.checkpoints) == [15]


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_becomes_a_wish(number: signal.Signals) -> None:
    with catch_stop_signals() as stop:
        assert not stop.is_requested
        os.kill(os.getpid(), number)
        assert stop.is_requested


def test_a_wish_that_takes_a_while_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "ACKNOWLEDGE_AFTER", 0.001)
    said: queue.Queue[str] = queue.Queue()
    with catch_stop_signals(said.put):
        os.kill(os.getpid(), signal.SIGINT)
        assert (
            said.get(timeout=60)
            == "stopping after this update or micro-batch; a second signal ends the run at once, without a checkpoint"
        )
    with catch_stop_signals(said.put):
        pass
    assert said.empty()


def test_a_second_signal_ends_at_once() -> None:
    with catch_stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_requested


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with catch_stop_signals():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with pytest.raises(ValueError, match="inside"), catch_stop_signals():
        raise ValueError("inside")
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_another_thread_leaves_the_handlers_alone() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    found = []

    def work() -> None:
        with catch_stop_signals() as stop:
            found.append((stop.is_requested, [signal.getsignal(number) for number in SIGNALS]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(False, before)]
