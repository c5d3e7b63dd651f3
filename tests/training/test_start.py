import hashlib
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, Languages, apply_start_from, model_tensors
from transduce.config import RunConfig, load_run_config, to_toml
from transduce.errors import BundleError, ConfigError, Interrupted, RunError
from transduce.training import Validator, train

MakeConfig = Callable[..., RunConfig]
MetricsOf = Callable[[Path], list[dict[str, Any]]]
TUNING: dict[str, Any] = {
    "training.updates": 40,
    "training.batch_tokens": 300,
    "training.schedule": "inverse_square_root",
    "training.learning_rate": 1e-3,
    "training.warmup": 5,
    "training.device": "cpu",
    "training.validate_every": 20,
    "training.checkpoint_every": 20,
    "training.best_by": "loss",
    "search.max_extra_length": 4,
}


@pytest.fixture
def tune(tmp_path: Path, copier: Any) -> Callable[..., RunConfig]:
    """The configuration of a run that starts from the model that copies, on sentences that double every word."""
    pairs = [(source, " ".join(2 * [word])) for source, _ in copier.unseen for word in source.split()[:1]]
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    for name in ("train.tsv", "validation.tsv"):
        (tmp_path / name).write_text(text, encoding="utf-8")

    def make(name: str = "tuned", **changes: Any) -> RunConfig:
        given = {
            "output": str(tmp_path / name),
            "data.folder": str(tmp_path),
            "data.pairs": "train.tsv",
            "data.validation_pairs": "validation.tsv",
            "training.start_from": str(copier.result.folder),
            **TUNING,
            **{key.replace("__", "."): value for key, value in changes.items()},
        }
        given = {key: value for key, value in given.items() if value is not None}
        return load_run_config(None, arguments=given)[0]

    return make


def test_training_begins_where_the_other_ended_and_gets_better(
    tune: Callable[..., RunConfig], copier: Any, metrics_of: MetricsOf
) -> None:
    config = tune()
    result = train(config)
    tuned, start = Bundle.open(result.folder / "best"), Bundle.open(copier.result.folder / "best")
    pairs = [line.split("\t") for line in (result.folder.parent / "validation.tsv").read_text("utf-8").splitlines()]
    validator = Validator([(source, target) for source, target in pairs], start.load_tokenizer(), config)
    before = validator.validate(start.load_model()).loss
    losses = [line["loss"] for line in metrics_of(result.folder) if line["kind"] == "validation"]
    assert before > losses[0] > losses[1]
    assert (tuned.folder / "tokenizer.model").read_bytes() == (start.folder / "tokenizer.model").read_bytes()
    assert tuned.model_config == start.model_config


def test_the_first_update_has_the_loss_of_the_bundle(tune: Callable[..., RunConfig], metrics_of: MetricsOf) -> None:
    # With a rate of nothing, what is trained stays what it started from, and the optimiser starts anew.
    still = {"training__learning_rate": 1e-12, "training__log_every": 1, "training__updates": 1}
    result = train(tune(**still))
    (line,) = [line for line in metrics_of(result.folder) if line["kind"] == "training"]
    assert line["learning_rate"] < 1e-12
    start, last = (
        model_tensors(Bundle.open(folder).load_model())
        for folder in (Path(tune().training.start_from or "") / "best", result.folder / "last")
    )
    for name, tensor in last.items():
        torch.testing.assert_close(tensor, start[name], rtol=0, atol=1e-9)


def test_the_model_card_says_where_it_started(tune: Callable[..., RunConfig], copier: Any) -> None:
    config = tune(training__updates=1)
    best = train(config).folder / "best"
    weights = (copier.result.folder / "best" / "weights.safetensors").read_bytes()
    card = (best / "README.md").read_text(encoding="utf-8")
    assert f"- start from: {config.training.start_from}\n" in card
    assert f"- start from sha256: {hashlib.sha256(weights).hexdigest()}\n" in card
    assert "- preset:" not in card


def test_a_preset_is_taken_for_its_training_alone(tune: Callable[..., RunConfig], copier: Any) -> None:
    result = train(tune(preset="tiny", training__updates=1, model__dropout=0.25))
    found, expected = (Bundle.open(run / "last").model_config for run in (result.folder, copier.result.folder))
    assert found == expected.model_copy(update={"dropout": 0.25})


def test_languages_and_search_are_those_of_the_bundle_unless_others_are_given(
    tune: Callable[..., RunConfig], copier: Any, watcher: Any
) -> None:
    description = Bundle.open(copier.result.folder / "best").description
    assert description.languages.source
    assert description.search.beam == 2
    settings = {"training__updates": 6, "data__target_language": "fr"}
    config = tune(**settings)
    assert (config.data.source_language, config.search.beam) == ("", 4)
    with pytest.raises(Interrupted):
        train(config, watcher(3, signal.SIGTERM))
    last = Bundle.open(train(config).folder / "last").description  # going on, it does not look at the bundle
    assert last.languages == Languages(source=description.languages.source, target="fr")
    assert (last.search.beam, last.search.max_extra_length) == (2, 4)
    assert apply_start_from(tune(search__beam=3))[0].search.beam == 3


def test_its_own_configuration_is_that_of_the_run(tune: Callable[..., RunConfig]) -> None:
    config = tune(training__updates=1)
    train(config)
    saved, _ = load_run_config(Path(config.output) / "config.toml")
    assert saved.model.d_model == 32
    assert train(saved).updates == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model__d_model": 64}, [r"model\.d_model = 64, the bundle's is 32"]),
        (
            {"model__num_encoder_layers": 2, "model__norm_order": "pre", "model__d_ff": 64},
            [r"model\.norm_order = 'pre', the bundle's is 'post'", r"model\.num_encoder_layers = 2"],
        ),
        ({"text__vocabulary": 300}, [r"text\.vocabulary = 300, the bundle's is \d+"]),
        ({"text__tokenizer": __file__}, [r"text\.tokenizer = .*another than the bundle's"]),
    ],
)
def test_settings_that_contradict_the_bundle_are_refused(
    tune: Callable[..., RunConfig], changes: dict[str, Any], named: list[str]
) -> None:
    config = tune(**changes)
    with pytest.raises(ConfigError, match="leave them out") as refused:
        train(config)
    assert refused.match("(?s)" + ".*".join(named))
    assert refused.value.args[0].count("\n") == len(named)
    assert not Path(config.output).exists()


def test_settings_that_agree_are_not(tune: Callable[..., RunConfig], copier: Any) -> None:
    bundle = Bundle.open(copier.result.folder / "best")
    agreeing = {"model__d_model": 32, "model__d_k": 16, "text__vocabulary": bundle.model_config.vocabulary}
    if bundle.model_config.vocabulary < 264:
        agreeing.pop("text__vocabulary")
    assert train(tune(training__updates=1, **agreeing)).updates == 1
    tokenizer = {"text__tokenizer": str(bundle.tokenizer_path)}
    assert train(tune("other", training__updates=1, **tokenizer)).updates == 1
    assert apply_start_from(tune("third", text__tokenizer=str(bundle.folder)))[0].text.tokenizer == str(bundle.folder)


def test_there_has_to_be_a_bundle_and_not_in_the_run_itself(tune: Callable[..., RunConfig], tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such folder"):
        train(tune(training__start_from=str(tmp_path / "nowhere")))
    itself = train(tune(training__updates=1)).folder
    with pytest.raises(ConfigError, match="own folder: choose another output"):
        train(tune(training__start_from=str(itself)), restart=True)
    assert (itself / "best" / "bundle.json").exists()


def test_a_run_goes_on_from_its_checkpoint_and_not_from_the_bundle(
    tune: Callable[..., RunConfig], outcome_of: Callable[[Path], dict[str, Any]], watcher: Any
) -> None:
    settings = {"training__updates": 12, "training__ema_decay": 0.5}
    unbroken = outcome_of(train(tune("unbroken", **settings)).folder)
    config = tune(**settings)
    for place in (3, 8):
        with pytest.raises(Interrupted):
            train(config, watcher(place, signal.SIGTERM))
    assert outcome_of(train(config).folder) == unbroken


def test_other_weights_in_its_place_are_noticed_before_the_first_checkpoint(
    tune: Callable[..., RunConfig], copier: Any, tmp_path: Path, watcher: Any, killed: Any
) -> None:
    start = tmp_path / "start"
    shutil.copytree(copier.result.folder / "best", start)
    config = tune(training__start_from=str(start))
    with pytest.raises(killed):
        train(config, watcher(1))
    shutil.rmtree(start)
    shutil.copytree(train(tune("another", training__updates=1)).folder / "last", start)
    with pytest.raises(RunError, match="was started from other weights than"):
        train(config)


@pytest.mark.parametrize("is_gone", [True, False])
def test_once_there_is_a_checkpoint_the_bundle_is_not_needed(
    tune: Callable[..., RunConfig],
    copier: Any,
    tmp_path: Path,
    watcher: Any,
    outcome_of: Callable[[Path], dict[str, Any]],
    make_config: MakeConfig,
    is_gone: bool,
) -> None:
    start = tmp_path / "start"
    settings = {"training__start_from": str(start), "training__updates": 12}
    shutil.copytree(copier.result.folder / "best", start)
    expected = outcome_of(train(tune("unbroken", **settings)).folder)
    config = tune(**settings)
    with pytest.raises(Interrupted):
        train(config, watcher(3, signal.SIGTERM))
    shutil.rmtree(start)
    if not is_gone:  # another network, with another tokenizer
        shutil.copytree(train(make_config("other", training__updates=1)).folder / "last", start)
    told = watcher()
    found = outcome_of(train(config, told).folder)
    assert any(text.startswith(f"training.start_from = '{start}': is not there any more") for text in told.said)
    different = {name for name in found if found[name] != expected[name]}
    assert different <= {"best", "last"}  # which say where the tokenizer was found
    with pytest.raises(RunError, match=r"model\.dropout: was 0\.0, now 0\.25"):
        train(tune(**settings, model__dropout=0.25))


def test_another_start_is_another_run(tune: Callable[..., RunConfig], copier: Any) -> None:
    train(tune(training__updates=1))
    with pytest.raises(RunError, match=r"training\.start_from: was"):
        train(tune(training__updates=1, training__start_from=str(copier.result.folder / "last")))


def test_a_run_that_has_started_can_be_written_down_and_started_again(
    tune: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config, _ = apply_start_from(tune(preset="base"))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(to_toml(config), encoding="utf-8")
    again, _ = apply_start_from(load_run_config(recipe)[0])
    assert again == config
