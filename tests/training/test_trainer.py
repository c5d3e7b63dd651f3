import json
import math
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transduce.bundle import Bundle, list_checkpoints, load_checkpoint, save_checkpoint
from transduce.config import RunConfig, SearchConfig
from transduce.errors import TrainingError, TrainingInterruptedError
from transduce.model import Transformer
from transduce.training import Validation, train
from transduce.training.model_selection.validation import ModelSelection, Validator

MakeConfig = Callable[..., RunConfig]
MetricsOf = Callable[[Path], list[dict[str, Any]]]


@pytest.mark.exhaustive
def test_everything_happens_when_it_is_due(make_config: MakeConfig, metrics_of: MetricsOf) -> None:
    config = make_config(
        training__updates=11, training__log_every=3, training__validate_every=4, training__checkpoint_every=5
    )
    result = train(config)
    lines = [(line["kind"], line["update"]) for line in metrics_of(result.folder)]
    assert [update for kind, update in lines if kind == "training"] == [3, 6, 9]
    assert [update for kind, update in lines if kind == "validation"] == [4, 8, 11]
    assert lines[-1] == ("average", 11)
    assert lines[0] == ("data", 0)
    assert list_checkpoints(result.folder / "checkpoints") == [5, 10, 11]
    assert (result.updates, result.folder) == (11, Path(config.output))


@pytest.mark.exhaustive
def test_only_the_latest_checkpoints_are_kept(make_config: MakeConfig) -> None:
    config = make_config(training__updates=9, training__checkpoint_every=2, training__keep_checkpoints=2)
    assert list_checkpoints(train(config).folder / "checkpoints") == [8, 9]


def test_figures_say_what_happened(make_config: MakeConfig, metrics_of: MetricsOf, watcher: Any) -> None:
    told = watcher()
    result = train(make_config(training__updates=6), told)
    training = [line for line in metrics_of(result.folder) if line["kind"] == "training"]
    assert [line["update"] for line in training] == told.updates == [1, 2, 3, 4, 5, 6]
    epochs = [line["epochs"] for line in training]
    assert epochs == sorted(set(epochs))
    assert all(0 <= line["padding_share"] < 0.5 for line in training)
    assert all(0 < line["cross_entropy"] < line["loss"] + 1 for line in training)
    assert training[4]["learning_rate"] == max(line["learning_rate"] for line in training) == 1e-2
    # An untrained model knows next to nothing of its 320 tokens.
    assert training[0]["cross_entropy"] == pytest.approx(math.log(320), rel=0.25)


@pytest.mark.exhaustive
def test_the_digest_of_the_weights_takes_its_time(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_digest(_: object) -> str:
        time.sleep(0.3)
        return "digest"

    monkeypatch.setattr("transduce.training.trainer.compute_weights_digest", slow_digest)
    result = train(make_config(training__updates=4, training__log_every=2))
    assert result.seconds > 0.6
    lines = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in (line for line in lines if line["kind"] == "training"):
        assert line["tokens_per_second"] * 0.3 < 2 * 160


@pytest.mark.exhaustive
def test_patience_does_not_hold_single_models_against_an_average(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sitting ends with an average that is better than all that follow, of which each is a gain."""
    validate, average = Validator.validate, ModelSelection.try_averages
    losses = iter(np.arange(5, 0, -0.1))

    def gaining(self: Validator, model: Transformer) -> Validation:
        return replace(validate(self, model), loss=float(next(losses)))

    def better(self: ModelSelection, *arguments: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Validator, "validate", lambda *both: replace(validate(*both), loss=0.01))
            average(self, *arguments)

    monkeypatch.setattr(Validator, "validate", gaining)
    monkeypatch.setattr(ModelSelection, "try_averages", better)
    settings = {"training__best_by": "loss", "training__validate_every": 2, "training__checkpoint_every": 2}
    first = train(make_config(training__updates=6, training__patience=2, **settings))
    assert (first.updates, first.best) == (6, -0.01)
    second = train(make_config(training__updates=16, training__patience=2, **settings))
    assert (second.updates, second.best) == (16, -0.01)


@pytest.mark.exhaustive
def test_patience_ends_a_run_that_gains_nothing(make_config: MakeConfig, watcher: Any) -> None:
    settings = {"training__learning_rate": 1e-12, "training__validate_every": 2, "training__best_by": "bleu"}
    config = make_config(training__patience=3, **settings)
    told = watcher()
    result = train(config, told)
    # the first is the best, three are not better
    assert told.updates[-1] == result.updates == 8
    assert [is_best for _, _, is_best in told.validations] == [
        True,
        False,
        False,
        False,
        *([False] * (len(told.validations) - 4)),
    ]
    assert list_checkpoints(result.folder / "checkpoints")[-1] == 8
    again = watcher()
    assert train(config, again).updates == 8
    assert not again.updates
    why = (
        "stopped after update 8: 3 validations in a row without a better BLEU; best was update 2; raise "
        "training.patience to continue"
    )
    assert told.said[-1] == again.said[-1] == why
    assert why in (result.folder / "report.html").read_text(encoding="utf-8")
    assert train(make_config(training__patience=4, **settings), again).updates == 10


def validate_as(monkeypatch: pytest.MonkeyPatch, figures: list[tuple[float, float]]) -> None:
    """Let validations have a BLEU of 0, and these chrF and losses, one after the other."""
    validate, coming = Validator.validate, iter(figures)

    def validate_so(self: Validator, model: Transformer) -> Validation:
        found, (chrf, loss) = validate(self, model), next(coming)
        values = {"BLEU": 0.0, "chrF": chrf}
        return replace(found, loss=loss, scores=tuple(replace(one, value=values[one.metric]) for one in found.scores))

    monkeypatch.setattr(Validator, "validate", validate_so)


@pytest.mark.exhaustive
def test_at_equal_bleu_chrf_decides_and_then_the_loss(
    make_config: MakeConfig, watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    validate_as(monkeypatch, [(10.0, 3.0), (12.0, 3.0), (12.0, 2.0), (12.0, 2.0), (11.0, 1.0)])
    told = watcher()
    rhythm = {"training__validate_every": 2, "training__checkpoint_every": 2, "training__keep_checkpoints": 1}
    result = train(make_config(training__updates=10, training__best_by="bleu", **rhythm), told)
    assert [is_best for _, _, is_best in told.validations] == [True, True, True, False, False]
    assert Bundle.open(result.folder / "best").description.training["update"] == 6
    assert result.best == 0.0


@pytest.mark.exhaustive
def test_a_checkpoint_that_knows_of_no_ties_goes_on(
    make_config: MakeConfig, watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    validate_as(monkeypatch, [(12.0, 2.0), (11.0, 2.0), (13.0, 2.0)])
    rhythm = {"training__validate_every": 2, "training__checkpoint_every": 2, "training__keep_checkpoints": 1}
    folder = train(make_config(training__updates=2, training__best_by="bleu", **rhythm)).folder
    tensors, state = load_checkpoint(folder / "checkpoints", 2)
    earlier = {name: value for name, value in state.items() if not name.endswith("_ties")}
    assert len(state) - len(earlier) == 2
    save_checkpoint(folder / "checkpoints", 2, tensors, earlier)
    told = watcher()
    train(make_config(training__updates=6, training__best_by="bleu", **rhythm), told)
    # The first that follows is the best that the checkpoint can know of; the bundle knows better, and stays.
    assert [is_best for _, _, is_best in told.validations] == [True, True]
    assert f"{folder / 'best'} is better, from before this run was stopped, and is kept" in told.said
    assert Bundle.open(folder / "best").description.training["update"] == 6


def test_best_is_the_best_validation_and_last_the_last(make_config: MakeConfig, metrics_of: MetricsOf) -> None:
    # Far too high a rate: the figures go up and down.
    config = make_config(training__learning_rate=0.3, training__validate_every=2, training__best_by="loss")
    result = train(config)
    lines = [line for line in metrics_of(result.folder) if line["kind"] in {"validation", "average"}]
    best = min(lines, key=lambda line: line["loss"])
    assert result.best == -best["loss"]
    assert Bundle.open(result.folder / "best").description.training["validation_loss"] == best["loss"]
    last = [line for line in lines if line["kind"] == "validation"][-1]
    assert Bundle.open(result.folder / "last").description.training["validation_loss"] == last["loss"]
    assert best != last
    running = math.inf
    for line in lines:
        assert line["is_best"] == (line["loss"] < running)
        running = min(running, line["loss"])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("settings", "better"),
    [
        # Around a minimum, the mean is mostly nearer to it than the last step; on the way down, it is not.
        ({"training__learning_rate": 2e-1, "training__checkpoint_every": 2, "training__updates": 60}, True),
        ({"training__learning_rate": 1e-2, "training__checkpoint_every": 4, "training__updates": 12}, False),
    ],
)
def test_the_average_becomes_best_only_if_it_is_better(
    make_config: MakeConfig, metrics_of: MetricsOf, settings: dict[str, Any], better: bool
) -> None:
    keep = {"training__keep_checkpoints": 10, "training__best_by": "loss", "training__validate_every": 100}
    for seed in range(1, 11):  # until a run ends as it mostly does with these settings
        result = train(make_config(f"run{seed}", training__seed=seed, **keep, **settings))
        *_, validation, average = metrics_of(result.folder)
        assert [line["kind"] for line in (validation, average)] == ["validation", "average"]
        assert (average["loss"] < validation["loss"]) == average["is_best"]
        if average["is_best"] == better:
            break
    assert average["is_best"] == better
    description = Bundle.open(result.folder / "best").description
    num_checkpoints = len(list_checkpoints(result.folder / "checkpoints"))
    assert num_checkpoints > 1
    assert description.training["averaged_checkpoints"] == (num_checkpoints if better else 1)
    assert description.training["validation_loss"] == min(average["loss"], validation["loss"])


def _improve_by_search(self: Validator, _model: Transformer, search: SearchConfig) -> list[str]:
    """More right lines with a greater length penalty, and without repetitions: a model as small as these has none."""
    share = (1 + search.length_penalty + (search.no_repeat_ngram > 0)) / 5
    num_right = round(len(self.pairs) * share)
    return [target if number < num_right else "x" for number, (_, target) in enumerate(self.pairs)]


@pytest.fixture
def make_improvable(make_config: MakeConfig, tmp_path: Path) -> MakeConfig:
    """Runs whose validation text is long enough for `_improve_by_search` to improve BLEU."""
    pairs = tmp_path / "improvable.tsv"
    pairs.write_text("".join(f"a b c d {number}\t{number} d c b a\n" for number in range(20)), encoding="utf-8")
    settings = {"data__validation_pairs": str(pairs), "search__length_penalty": 0.5, "training__best_by": "chrf"}
    return lambda *name, **changes: make_config(*name, **settings, **changes)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["length_penalty", "no_repeat_ngram"])
def test_the_search_of_best_is_fitted_once(
    name: str,
    make_improvable: MakeConfig,
    metrics_of: MetricsOf,
    watcher: Any,
    killed: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Validator, "_translate", _improve_by_search)
    settings: dict[str, Any] = {"training__updates": 30, f"training__fit_{name}": True}
    settings |= {"training__validate_every": 10, "training__checkpoint_every": 10}
    config = make_improvable(**settings)
    given = getattr(config.search, name)
    folder = train(config).folder
    best, line = Bundle.open(folder / "best").description, metrics_of(folder)[-1]
    assert line["kind"] == "fitted_search"
    assert getattr(best.search, name) == best.training[f"fitted_{name}"] == line[name] > given
    assert [score.value for score in best.scores] == [score["value"] for score in line["scores"]]
    before = max(line["scores"][1]["value"] for line in metrics_of(folder) if line["kind"] in {"validation", "average"})
    assert best.scores[1].value > before
    assert getattr(Bundle.open(folder / "last").description.search, name) == given
    # A run that is killed as soon as it is fitted comes to the same end.
    with pytest.raises(killed):
        train(make_improvable("killed", **settings), watcher(end_at=name.replace("_penalty", " penalty")))
    train(make_improvable("killed", **settings))
    again = folder.parent / "killed"
    assert Bundle.open(again / "best").description.search == best.search
    assert Bundle.open(again / "best").digest == Bundle.open(folder / "best").digest
    assert [line["kind"] for line in metrics_of(again)] == [line["kind"] for line in metrics_of(folder)]
    # Trained further, what is compared are models with the same search.
    settings["training__updates"] = 40
    further = Bundle.open(train(make_improvable(**settings)).folder / "best").description
    assert further.scores[1].value >= before


def test_files_in_best_are_kept_when_its_search_is_fitted(
    make_improvable: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = {"training__fit_no_repeat_ngram": True, "training__fit_length_penalty": True}
    config = make_improvable(training__updates=2, **fits)
    best = Path(config.output) / "best"

    def translate(self: Validator, model: Transformer, search: SearchConfig) -> list[str]:
        if best.is_dir():
            (best / "notes").write_text("of the user", encoding="utf-8")
        return _improve_by_search(self, model, search)

    monkeypatch.setattr(Validator, "_translate", translate)
    train(config)
    fitted = Bundle.open(best).description
    assert fitted.search.no_repeat_ngram == fitted.training["fitted_no_repeat_ngram"] > 0
    assert fitted.search.length_penalty == fitted.training["fitted_length_penalty"] > 0.5
    assert list(best.parent.glob("best.kept-*/notes"))


def test_without_other_checkpoints_there_is_no_average(make_config: MakeConfig, metrics_of: MetricsOf) -> None:
    result = train(make_config(training__updates=3, training__keep_checkpoints=1, training__checkpoint_every=1))
    assert "average" not in {line["kind"] for line in metrics_of(result.folder)}


@pytest.mark.exhaustive
def test_losses_that_are_no_numbers_end_the_run(make_config: MakeConfig, metrics_of: MetricsOf) -> None:
    config = make_config(training__learning_rate=1e30, training__validate_every=100, training__checkpoint_every=1)
    with pytest.raises(TrainingError, match=r"training has diverged: update 11 .*learning_rate") as diverged:
        train(config)
    assert diverged.value.exit_code == 1
    folder = Path(config.output)
    assert list_checkpoints(folder / "checkpoints") == [8, 9, 10]
    load_checkpoint(folder / "checkpoints", 10)
    lines = [(line["kind"], line["update"]) for line in metrics_of(folder) if line["kind"] != "finding"]
    assert lines == [("data", 0), ("training", 1), *(("skipped", update) for update in range(2, 12))]


def test_a_validation_that_gives_no_number_ends_the_run(make_config: MakeConfig) -> None:
    config = make_config(training__learning_rate=1e30, training__validate_every=1)
    with pytest.raises(TrainingError, match=r"validation text is nan.*learning_rate"):
        train(config)
    assert not (Path(config.output) / "best").exists()


GUIDED = {"training__guided_alignment": 0.3}
COOCCURRENCE = {"training__initial_embeddings": "cooccurrence"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [(GUIDED, "learning a word alignment"), (COOCCURRENCE, "computing co-occurrence embeddings")],
)
def test_what_a_model_is_told_at_the_start_changes_what_it_learns(
    make_config: MakeConfig, metrics_of: MetricsOf, watcher: Any, changes: dict[str, Any], words: str
) -> None:
    digests, messages = [], []
    for name, given in (("plain", {}), ("told", changes)):
        told = watcher()
        config = make_config(name, training__updates=2, **given)
        train(config, told)
        digests.append(
            [line["weights_digest"] for line in metrics_of(Path(config.output)) if line["kind"] == "training"]
        )
        messages.append(words in told.said)
    assert messages == [False, True]
    assert all(plain != other for plain, other in zip(*digests, strict=True))


def test_it_is_told_once(make_config: MakeConfig, watcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again to a run that goes on from a checkpoint, and neither where no update is left."""
    config = make_config(training__updates=4, training__checkpoint_every=2, **GUIDED, **COOCCURRENCE)
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(2, signal.SIGTERM))
    monkeypatch.setattr("transduce.training.trainer.initialize_embeddings", None)
    train(config)
    monkeypatch.setattr("transduce.training.trainer.train_alignment_model", None)
    train(config)
