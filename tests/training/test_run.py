import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.bundle import Bundle, Languages, apply_start_from, collect_model_tensors
from transduce.config import RunConfig, load_run_config, to_toml
from transduce.errors import BundleError, ConfigError, CorpusError, RunError, TrainingInterruptedError
from transduce.training import Validator, train
from transduce.translation import Translator

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


@pytest.mark.exhaustive
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
        collect_model_tensors(Bundle.open(folder).load_model())
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


@pytest.mark.exhaustive
def test_languages_and_search_are_those_of_the_bundle_unless_others_are_given(
    tune: Callable[..., RunConfig], copier: Any, watcher: Any
) -> None:
    description = Bundle.open(copier.result.folder / "best").description
    assert description.languages.source
    assert description.search.beam == 2
    settings = {"training__updates": 6, "data__target_language": "fr"}
    config = tune(**settings)
    assert (config.data.source_language, config.search.beam) == ("", 4)
    with pytest.raises(TrainingInterruptedError):
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
        ({"text__tokenizer": __file__}, [r"text\.tokenizer = .*which differs from the bundle's"]),
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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_a_run_goes_on_from_its_checkpoint_and_not_from_the_bundle(
    tune: Callable[..., RunConfig], outcome_of: Callable[[Path], dict[str, Any]], watcher: Any
) -> None:
    settings = {"training__updates": 12, "training__ema_decay": 0.5}
    unbroken = outcome_of(train(tune("unbroken", **settings)).folder)
    config = tune(**settings)
    for place in (3, 8):
        with pytest.raises(TrainingInterruptedError):
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


@pytest.mark.exhaustive
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
    with pytest.raises(TrainingInterruptedError):
        train(config, watcher(3, signal.SIGTERM))
    shutil.rmtree(start)
    if not is_gone:  # another network, with another tokenizer
        shutil.copytree(train(make_config("other", training__updates=1)).folder / "last", start)
    told = watcher()
    found = outcome_of(train(config, told).folder)
    assert any(text.startswith(f"training.start_from = '{start}': is missing") for text in told.said)
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


SOURCE = Path(__file__).parents[2] / "src"


def share_right(lesson: Any) -> float:
    sources, references = zip(*lesson.unseen, strict=True)
    translations = Translator.load(lesson.result.folder, device="cpu").translate(sources, beam=1)
    return sum(map(str.__eq__, translations, references)) / len(references)


def test_learns_to_copy(copier: Any) -> None:
    assert share_right(copier) > 0.95


class Sitting:
    """One process that trains, as from the command line."""

    def __init__(self, recipe: Path) -> None:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "transduce", "train", str(recipe)],
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def wait_for(self, metrics: Path, num_lines: int) -> None:
        """Until there are so many lines of metrics."""
        deadline = time.monotonic() + 120
        while self.process.poll() is None and time.monotonic() < deadline:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= num_lines:
                return
            time.sleep(0.002)
        pytest.fail(f"ended or hung before it was interrupted: {self.process.communicate(timeout=1)}")

    def wait_for_words(self, words: str) -> None:
        """Until they are said on standard error."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if words in line:
                return
        pytest.fail(f"ended before it said {words!r}")

    def end(self) -> tuple[int, str, str]:
        output, messages = self.process.communicate(timeout=120)
        return self.process.returncode, output, messages


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")],
        ),
    ],
)
def test_processes_that_are_interrupted_and_killed(
    device: str, make_config: MakeConfig, outcome_of: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    """SIGTERM, then SIGINT, then SIGKILL at a random moment, always the same run; compared with an unbroken one."""
    settings = {
        "training__device": device,
        "training__updates": 60,
        "training__validate_every": 40,
        "training__checkpoint_every": 15,
    }
    config = make_config(**settings)
    folder = Path(config.output)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(to_toml(config), encoding="utf-8")
    for number, num_lines in ((signal.SIGTERM, 5), (signal.SIGINT, 20)):
        sitting = Sitting(recipe)
        sitting.wait_for(folder / "metrics.jsonl", num_lines)
        sitting.process.send_signal(number)
        code, output, messages = sitting.end()
        assert (code, output) == (130, ""), messages
        assert "the same command resumes from there" in messages
        assert "Traceback" not in messages
        update = int((folder / "metrics.jsonl").read_text(encoding="utf-8").split('"update": ')[-1].split(",")[0])
        assert (folder / "checkpoints" / f"{update:09d}").is_dir()

    sitting = Sitting(recipe)
    sitting.wait_for(folder / "metrics.jsonl", 35)
    delay = np.random.default_rng().uniform(0, 0.2)
    time.sleep(delay)
    sitting.process.kill()
    sitting.end()

    train(config)
    train(make_config("unbroken", **settings))
    found, expected = outcome_of(folder), outcome_of(folder.with_name("unbroken"))
    assert [name for name in expected if found[name] != expected[name]] == [], f"killed after {delay} seconds"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_at_once_while_its_largest_batch_is_tried(
    make_config: MakeConfig, tmp_path: Path, number: signal.Signals
) -> None:
    """However large that batch is: nothing is written by then that would have to be saved."""
    # A pass over thousands of sentences takes seconds.
    text = "".join(f"{word} sun {word} moon\t{word} sun\n" for word in map(str, range(5_000)))
    (tmp_path / "many.tsv").write_text(text, encoding="utf-8")
    config = make_config(data__pairs=str(tmp_path / "many.tsv"), training__batch_tokens=60_000, model__d_model=64)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(to_toml(config), encoding="utf-8")
    sitting = Sitting(recipe)
    sitting.wait_for_words("trying the largest batch")
    sitting.process.send_signal(number)
    code, output, messages = sitting.end()
    assert (code, output) == (130, ""), messages
    assert "Traceback" not in messages
    assert "stopp" not in messages  # it would wait for the end of an update
    assert not Path(config.output).exists()


def test_a_second_wish_ends_at_once(make_config: MakeConfig, watcher: Any) -> None:
    class Impatient(watcher):  # type: ignore[misc]  # a fixture is no type
        def report_progress(self, progress: Any) -> None:
            super().report_progress(progress)
            os.kill(os.getpid(), signal.SIGINT)

    config = make_config()
    told = Impatient(1, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(config, told)
    assert told.updates == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(TrainingInterruptedError):
        train(config, Impatient())


@pytest.mark.exhaustive
def test_text_that_changed_is_refused(make_config: MakeConfig, corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    lines = (corpus / "train.tsv").read_text(encoding="utf-8").split("\n")
    (folder / "validation.tsv").write_bytes((corpus / "validation.tsv").read_bytes())
    # fitted: with the text, the size of the vocabulary changes
    for run, vocabulary in (("fixed", 320), ("fitted", "fitted")):
        (folder / "train.tsv").write_text("\n".join(lines), encoding="utf-8")
        settings = {"data__folder": str(folder), "text__vocabulary": vocabulary}
        train(make_config(run, training__updates=2, **settings))
        before = (tmp_path / run / "metrics.jsonl").read_bytes(), (tmp_path / run / "config.toml").read_bytes()
        (folder / "train.tsv").write_text("\n".join(["zebra quartz\tjumbo", *lines]), encoding="utf-8")
        with pytest.raises(RunError, match="was trained on other data"):
            train(make_config(run, training__updates=3, **settings))
        after = (tmp_path / run / "metrics.jsonl").read_bytes(), (tmp_path / run / "config.toml").read_bytes()
        assert after == before
        (folder / "train.tsv").write_text("\n".join(lines), encoding="utf-8")
        assert train(make_config(run, training__updates=3, **settings)).updates == 3


@pytest.mark.exhaustive
def test_another_version_that_would_prepare_otherwise_goes_on_with_what_is_there(
    make_config: MakeConfig,
    tmp_path: Path,
    outcome_of: Callable[[Path], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = {"data__cache": str(tmp_path / "cache")}
    train(make_config("unbroken", training__updates=12, training__validate_every=4, **cache))
    for updates in (4, 12):
        config = make_config(training__updates=updates, training__validate_every=4, **cache)
        train(config)
        monkeypatch.setattr("transduce.data.input_files.PREPARATION_VERSION", "another")
    found, expected = outcome_of(Path(config.output)), outcome_of(tmp_path / "unbroken")
    weights = [name for name in expected if name.startswith("weights/")]
    assert weights
    assert [name for name in weights if found[name] != expected[name]] == []

    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(RunError, match=r"the version of Transduce or SentencePiece has changed"):
        train(make_config(training__updates=16, training__validate_every=4, **cache))


@pytest.mark.exhaustive
def test_a_warmup_that_outlasts_the_run_is_told_of(make_config: MakeConfig, watcher: Any) -> None:
    for updates, expected in ((4, 1), (5, 0)):
        told = watcher()
        train(make_config(f"run-{updates}", training__updates=updates), told)
        assert sum(text.startswith("warning: training.warmup = 5: ") for text in told.said) == expected


@pytest.mark.exhaustive
def test_several_corpora(make_config: MakeConfig, corpus: Path, tmp_path: Path, watcher: Any) -> None:
    lines = (corpus / "train.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    lines = [line for line in lines if len(set(line.split("\t"))) == 2]  # cleaning drops copies
    for name, some in (("a.tsv", lines[:60]), ("b.tsv", [*lines[50:], "\t"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    (tmp_path / "validation.tsv").write_bytes((corpus / "validation.tsv").read_bytes())

    def config(weight: float, updates: int) -> RunConfig:
        corpora = [{"pairs": "a.tsv"}, {"pairs": "b.tsv", "weight": weight}]
        given = {"data__folder": str(tmp_path), "data__pairs": None, "data__corpora": corpora}
        return make_config("weighted", training__updates=updates, **given)

    told = watcher()
    folder = train(config(0.5, 2), told).folder
    data = json.loads((folder / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[0])
    a, b = data["corpora"]
    assert (a["name"], a["weight"], b["name"], b["weight"]) == ("a.tsv", 1.0, "b.tsv", 0.5)
    assert (a["cleaning"]["duplicate"], b["cleaning"]["duplicate"], b["cleaning"]["blank"]) == (0, 10, 1)
    assert data["num_pairs"] == a["cleaning"]["kept"] + b["cleaning"]["kept"] == data["cleaning"]["kept"]
    said = [sentence for sentence in told.said if sentence.startswith("    b.tsv: ")]
    assert said == [
        f"    b.tsv: {b['cleaning']['kept']:,} pairs (left out: blank 1, duplicate 10), each 0.5 times per epoch"
    ]
    with pytest.raises(RunError, match=r"data\.corpora: was .*'weight': 0\.5.* now .*'weight': 2\.0"):
        train(config(2.0, 4))
    assert train(config(0.5, 4)).updates == 4


def test_mistakes_are_found_before_anything_is_written(make_config: MakeConfig, corpus: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"data__pairs": None, "data__validation_pairs": None}, ConfigError),
        ({"training__device": "warp drive"}, ConfigError),
        ({"data__pairs": "missing.tsv"}, CorpusError),
        ({"data__pairs": "-"}, CorpusError),
    ]
    for changes, error in cases:
        with pytest.raises(error):
            train(make_config(data__cache=str(tmp_path / "cache"), **changes))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"text__algorithm": "unigram", "text__bpe_dropout": 0.1}, "bpe_dropout"),
        ({"search__beam": 100_000_000}, "^search.beam = 100,000,000: this many hypotheses"),
        (
            {"model__positions": "learned", "model__max_positions": 80, "search__min_length": 81},
            "cannot write more tokens",
        ),
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_an_earlier_run_makes_way_only_for_one_that_can_be(
    make_config: MakeConfig,
    outcome_of: Callable[[Path], dict[str, Any]],
    changes: dict[str, Any],
    error: str,
    restart: bool,
) -> None:
    config = make_config(training__updates=1)
    if restart:
        train(config)
    before = outcome_of(Path(config.output)) if restart else None
    with pytest.raises(ConfigError, match=error):
        train(make_config(training__updates=1, search__max_extra_length=100, **changes), restart=restart)
    assert (outcome_of(Path(config.output)) if restart else None) == before
    assert Path(config.output).exists() == restart


def test_standard_input_can_be_the_text(make_config: MakeConfig, corpus: Path) -> None:
    with (corpus / "train.tsv").open("rb") as file:
        result = train(make_config(data__pairs="-", training__updates=1), standard_input=file)
    assert result.updates == 1


@pytest.mark.exhaustive
def test_learned_positions_reach_as_far_as_they_are_asked_to(
    make_config: MakeConfig, corpus: Path, tmp_path: Path
) -> None:
    learned = {"model__positions": "learned", "model__max_positions": 16, "training__updates": 4}
    # The search may look 50 tokens further than the source; the table of positions ends before.
    result = train(make_config(**learned))
    assert "\n" not in Translator.load(result.folder).translate(["sun moon " * 40])[0]

    (tmp_path / "long.tsv").write_text(
        (corpus / "train.tsv").read_text(encoding="utf-8") + "sun " * 20 + "\t" + "moon " * 20 + "\n", encoding="utf-8"
    )
    too_few = make_config("other", data__pairs=str(tmp_path / "long.tsv"), **learned)
    with pytest.raises(ConfigError, match=r"max_positions = 16: the text has a sentence of \d+ tokens; raise it"):
        train(too_few)
    assert not Path(too_few.output).exists()


@pytest.mark.parametrize(
    "model",
    [
        {"normalization": "rms"},
        {"feed_forward": "gated"},
        {"positions": "relative", "max_relative_distance": 3},
        {"positions": "rotary"},
        {
            "normalization": "rms",
            "norm_order": "pre",
            "feed_forward": "gated",
            "activation": "swish",
            "positions": "rotary",
        },
        {"architecture": "recurrent"},
        {"architecture": "convs2s"},
        {"architecture": "bytenet", "d_model": 32},
    ],
    ids=lambda model: "-".join(map(str, model.values())),
)
def test_every_kind_of_model_learns_and_is_loaded_again(
    make_config: MakeConfig, metrics_of: MetricsOf, model: dict[str, Any]
) -> None:
    changes = {f"model__{name}": value for name, value in model.items()}
    result = train(make_config(**changes, training__updates=30))
    losses = [line["loss"] for line in metrics_of(result.folder) if line["kind"] == "training"]
    assert np.mean(losses[-3:]) < 0.8 * losses[0]
    bundle = Bundle.open(result.folder / "best")
    assert {name: getattr(bundle.model_config, name) for name in model} == model
    sentences = ["sun moon", "lamp", "bird tree wind", "door"]
    translator = Translator.load(bundle.folder, device="cpu")
    for precision in ("int8", "bfloat16"):
        with pytest.raises(ConfigError, match=f"precision '{precision}': .* computed in float32 alone"):
            Translator.load(bundle.folder, device="cpu", precision=precision)
    together = [found.alternatives[0] for found in translator.find_translations(sentences, num_best=1)]
    for sentence, of_batch in zip(sentences, together, strict=True):
        alone = translator.find_translations([sentence], num_best=1)[0].alternatives[0]
        assert alone.text == of_batch.text
        assert alone.token_scores == pytest.approx(of_batch.token_scores, abs=1e-5)
    assert len({of_batch.score for of_batch in together}) == 4


def test_a_network_without_heads_is_trained_further_without_guided_alignment(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    first = train(make_config("first", model__architecture="recurrent", training__updates=3))

    def make(*settings: str) -> RunConfig:
        given = [f"training.start_from={first.folder}", "preset=low-resource", *settings]
        return load_run_config(None, arguments={"output": str(tmp_path / "second")}, settings=given)[0]

    assert make().training.guided_alignment > 0
    assert apply_start_from(make())[0].training.guided_alignment == 0
    with pytest.raises(ConfigError, match=r"training.guided_alignment = 0.2 guides a head of a Transformer"):
        apply_start_from(make("training.guided_alignment=0.2"))


def test_a_network_with_normalized_weights_is_not_trained_further_by_muon(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    first = train(make_config("first", model__architecture="convs2s", training__updates=1))
    given = [f"training.start_from={first.folder}", "training.optimizer=muon"]
    config, _ = load_run_config(None, arguments={"output": str(tmp_path / "second")}, settings=given)
    with pytest.raises(ConfigError, match=r'"muon" needs .*best is one of architecture "convs2s".* to "adam"'):
        apply_start_from(config)


def test_r_drop_needs_the_dropout_of_the_bundle_or_another(make_config: MakeConfig, tmp_path: Path) -> None:
    first = train(make_config("first", model__dropout=0.0, training__updates=1))

    def make(*settings: str) -> RunConfig:
        given = [f"training.start_from={first.folder}", "training.r_drop=5.0", *settings]
        return load_run_config(None, arguments={"output": str(tmp_path / "second")}, settings=given)[0]

    with pytest.raises(ConfigError, match=r"r_drop = 5\.0 has no effect with model\.dropout = 0, which .*best has"):
        apply_start_from(make())
    assert apply_start_from(make("model.dropout=0.2"))[0].model.dropout == 0.2


def test_the_network_and_settings_that_it_does_not_read_are_named(make_config: MakeConfig, watcher: Any) -> None:
    reporter = watcher()
    changes = {"model__architecture": "bytenet", "model__positions": "rotary", "model__max_relative_distance": 3}
    result = train(make_config(**changes, training__updates=2), reporter)
    assert any(", bytenet network, " in line for line in reporter.said)
    expected = (
        "warning: without effect in a bytenet network with these settings: "
        "model.d_ff, model.num_heads, model.positions, model.max_relative_distance"
    )
    assert [line for line in reporter.said if line.startswith("warning: without effect")] == [expected]
    report = (result.folder / "report.html").read_text(encoding="utf-8")
    assert "model.architecture" in report
    assert "<td>model.positions" not in report
    assert "- bytenet\n" in (result.folder / "best" / "README.md").read_text(encoding="utf-8")
    # Who trains it further has given none of these settings.
    reporter.said.clear()
    train(make_config("second", training__start_from=str(result.folder), training__updates=1), reporter)
    assert any("bytenet network" in line for line in reporter.said)
    assert not any(line.startswith("warning: without effect") for line in reporter.said)


@pytest.mark.parametrize("schedule", ["warmup_stable_decay", "linear"])
def test_a_patience_that_ends_a_run_before_its_rate_falls_is_told(
    make_config: Callable[..., RunConfig], watcher: Any, schedule: str
) -> None:
    reporter = watcher()
    train(make_config(training__updates=2, training__patience=2, training__schedule=schedule), reporter)
    is_told = any(line.startswith("warning: training.patience = 2: may end the run") for line in reporter.said)
    assert is_told == (schedule == "warmup_stable_decay")


def test_few_pairs_are_warned_of_once(make_config: MakeConfig, watcher: Any) -> None:
    def count(told: Any) -> int:
        return sum("can teach a model no language" in text for text in told.said)

    first, again = watcher(), watcher()
    train(make_config(training__updates=1), first)
    train(make_config(training__updates=1), again)
    assert (count(first), count(again)) == (1, 0)
