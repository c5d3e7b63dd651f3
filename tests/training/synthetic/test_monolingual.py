"""Monolingual text: a model of the other direction is trained, translates it, and its pairs are trained on."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle, Languages, save_bundle
from transduce.config import RunConfig, load_run_config
from transduce.data import open_corpus, prepare
from transduce.data.settings_for_size import MAX_PAIRS_OF_PRESET
from transduce.errors import ConfigError, RunError
from transduce.training import choose_settings_for_run, train
from transduce.training.synthetic.monolingual import add_synthetic_corpora

MONOLINGUAL = ["bird sun", "salt salt road", "door", "moon wind café"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "mono.txt"
    path.write_text("".join(f"{line}\n" for line in MONOLINGUAL), encoding="utf-8", newline="\n")
    return path


@pytest.fixture
def run(make_config: Callable[..., RunConfig], text: Path, tmp_path: Path) -> Callable[..., RunConfig]:
    def make(**changes: Any) -> RunConfig:
        given = {"training__updates": 8, "search__min_length": 2, "data__cache": str(tmp_path / "cache"), **changes}
        return make_config(**given)

    return make


@pytest.fixture(scope="module")
def reverse_model(copier: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that copies, for the direction from xx to en."""
    bundle = Bundle.open(copier.result.folder / "best")
    description = bundle.description.model_copy(update={"languages": Languages(source="xx", target="en")})
    folder = tmp_path_factory.mktemp("reverse") / "model"
    save_bundle(folder, bundle.load_model(), bundle.load_tokenizer(), description)
    return str(folder)


def test_back_translation_trains_the_other_direction_first(
    run: Callable[..., RunConfig], text: Path, tmp_path: Path, watcher: Any
) -> None:
    reporter = watcher()
    config = run(data__monolingual_target=str(text), data__validation_pairs=None, data__held_out=5)
    result = train(config, reporter)
    reverse = Bundle.open(tmp_path / "run-reverse" / "best").description
    assert (reverse.languages.source, reverse.languages.target) == ("xx", "en")
    (path,) = (tmp_path / "cache").glob("synthetic-*.jsonl")
    pairs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [pair["target"] for pair in pairs] == [MONOLINGUAL[pair["line"] - 1] for pair in pairs]
    own = [line for line in reporter.said if str(path) in line]
    assert own, "the corpus is reported"
    tokenizer = Bundle.open(result.folder / "best").load_tokenizer()
    assert tokenizer.pieces(tokenizer.encode(">>bt<< sun"))[0] == ">>bt<<"
    # Nothing is made twice.
    before = {one: one.stat().st_mtime_ns for one in tmp_path.rglob("*.safetensors")}
    train(config)
    assert {one: one.stat().st_mtime_ns for one in tmp_path.rglob("*.safetensors")} == before
    # Once the run has begun, it goes on for longer with what is translated, without the model.
    shutil.rmtree(tmp_path / "run-reverse")
    longer = config.model_copy(update={"training": config.training.model_copy(update={"updates": 10})})
    assert train(longer).updates == 10
    assert not (tmp_path / "run-reverse").exists()


def test_a_model_that_is_trained_stays_as_it_is(run: Callable[..., RunConfig], text: Path, tmp_path: Path) -> None:
    config = run(data__monolingual_target=str(text), training__schedule="linear", training__updates=3)
    train(config)
    reverse = tmp_path / "run-reverse"
    before = {one: one.read_bytes() for one in reverse.rglob("*.safetensors")}
    longer = run(data__monolingual_target=str(text), training__schedule="linear", training__updates=4)
    assert train(longer, restart=True).updates == 4
    assert {one: one.read_bytes() for one in reverse.rglob("*.safetensors")} == before
    other = run(data__monolingual_target=str(text), training__schedule="linear", training__seed=2)
    with pytest.raises(RunError, match=rf"(?s){reverse}: .*training\.seed: .*_model = .*delete {reverse}$"):
        train(other, restart=True)
    assert {one: one.read_bytes() for one in reverse.rglob("*.safetensors")} == before


def test_the_other_run_has_settings_that_fit_its_pairs_alone(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAX_PAIRS_OF_PRESET, "low-resource", 5)
    (tmp_path / "pairs.tsv").write_text("bird\tvogel\nsun\tsonne\n", encoding="utf-8")
    given = {"output": str(tmp_path / "run"), "data.folder": str(tmp_path), "data.pairs": "pairs.tsv"}
    pairs_alone = choose_settings_for_run(load_run_config(None, arguments=given)[0], restart=False)
    given |= {"data.source_language": "en", "data.target_language": "de", "data.monolingual_target": str(text)}
    trained: list[RunConfig] = []

    def stop(config: RunConfig) -> Path:
        trained.append(config)
        raise KeyboardInterrupt

    def find_other(**changes: object) -> RunConfig:
        settings = given | {name.replace("__", "."): value for name, value in changes.items()}
        automatic = choose_settings_for_run(load_run_config(None, arguments=settings)[0], restart=False)
        assert automatic["preset"] == "medium-resource"
        config, _ = load_run_config(None, automatic=automatic, arguments=settings)
        with pytest.raises(KeyboardInterrupt):
            add_synthetic_corpora(config, tmp_path, stop, print)
        return trained.pop()

    other = find_other()
    expected, _ = load_run_config(None, automatic=pairs_alone)
    assert (other.preset, other.model, other.text) == ("low-resource", expected.model, expected.text)
    assert other.training == expected.training.model_copy(update={"scorecard_sentences": 0})
    assert (other.data.monolingual_target, other.data.source_language) == (None, "de")
    text.write_text(text.read_text(encoding="utf-8") + "moon\nroad\n" * 9, encoding="utf-8")
    assert find_other() == other, "more monolingual text changes nothing"
    chosen = find_other(preset="medium-resource", text__vocabulary=300)
    assert (chosen.preset, chosen.model.d_model) == ("medium-resource", 256), "settings of a recipe stay"
    own = find_other(model__num_heads=2, training__updates=7)
    assert (own.preset, own.model.num_heads, own.model.dropout) == ("low-resource", 2, other.model.dropout)
    assert (own.training.updates, own.training.epochs) == (7, None)


def test_text_that_has_changed_is_not_translated_for_a_run_that_will_refuse_it(
    run: Callable[..., RunConfig], text: Path, tmp_path: Path, reverse_model: str
) -> None:
    config = run(data__monolingual_target=str(text), data__monolingual_target_model=reverse_model)
    train(config)
    before = sorted((tmp_path / "cache").iterdir())
    text.write_text("moon road\n", encoding="utf-8")
    with pytest.raises(RunError, match=r"mono\.txt: since .* the text, .* has changed: .* --restart"):
        train(config)
    assert sorted((tmp_path / "cache").iterdir()) == before
    assert train(config, restart=True).updates == 8


def test_another_seed_is_for_samples_alone(
    run: Callable[..., RunConfig], text: Path, tmp_path: Path, reverse_model: str
) -> None:
    given = {"data__monolingual_target": str(text), "data__monolingual_target_model": reverse_model}
    for search, num_files in (("beam", 1), ("sampling", 2)):
        for seed in (2, 3):
            config = run(**given, data__monolingual_search=search, training__seed=seed)
            add_synthetic_corpora(config, tmp_path / search, lambda one: Path(one.output), lambda _: None)
        assert len([*(tmp_path / search).glob("synthetic-*.jsonl")]) == num_files


def test_a_slash_behind_the_output_makes_no_folder_in_it(
    run: Callable[..., RunConfig], text: Path, tmp_path: Path
) -> None:
    trained: list[RunConfig] = []

    def stop(config: RunConfig) -> Path:
        trained.append(config)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add_synthetic_corpora(run(data__monolingual_target=str(text), output=f"{tmp_path}/run/"), tmp_path, stop, print)
    assert trained[0].output == f"{tmp_path}/run-reverse"


def test_text_that_is_not_read_line_by_line_is_refused(run: Callable[..., RunConfig], tmp_path: Path) -> None:
    config = run(data__monolingual_target="more.jsonl.gz")
    with pytest.raises(ConfigError, match=r"data\.monolingual_target = 'more\.jsonl\.gz': .* a \.jsonl file"):
        add_synthetic_corpora(config, tmp_path, lambda one: Path(one.output), print)


def test_a_model_of_the_same_direction_translates_source_text(
    run: Callable[..., RunConfig], text: Path, tmp_path: Path
) -> None:
    train(run(data__monolingual_source=str(text)))
    forward = Bundle.open(tmp_path / "run-forward" / "best").description
    assert (forward.languages.source, forward.languages.target) == ("en", "xx")
    (path,) = (tmp_path / "cache").glob("synthetic-*.jsonl")
    assert '"source": "bird sun"' in path.read_text(encoding="utf-8")


def test_a_given_model_is_used(run: Callable[..., RunConfig], text: Path, tmp_path: Path, reverse_model: str) -> None:
    config = run(
        data__monolingual_target=str(text), data__monolingual_target_model=reverse_model, data__monolingual_weight=3.0
    )

    def refuse(_: RunConfig) -> Path:
        raise AssertionError("nothing is to be trained")

    cache = tmp_path / "cache"
    data = add_synthetic_corpora(config, cache, refuse, lambda _: None)
    real, synthetic = data.training_corpora
    assert (real.pairs, synthetic.weight, synthetic.tag, synthetic.synthetic) == ("train.tsv", 3.0, ">>bt<<", True)
    prepared = prepare(data, config.text, cache, report=lambda _: None)
    assert [corpus.weight for corpus in prepared.corpora] == [1.0, 3.0]
    assert prepared.corpora[1].cleaning["kept"] + prepared.corpora[1].cleaning["copy"] == len(MONOLINGUAL)


def test_what_was_made_keeps_its_sides_where_those_of_the_files_are_exchanged(
    run: Callable[..., RunConfig], text: Path, tmp_path: Path, reverse_model: str
) -> None:
    for swap_sides in (False, True):
        config = run(
            data__monolingual_target=str(text),
            data__monolingual_target_model=reverse_model,
            data__swap_sides=swap_sides,
        )
        data = add_synthetic_corpora(config, tmp_path / "cache", lambda one: Path(one.output), lambda _: None)
        targets = [target for _, target in open_corpus(data, data.training_corpora[-1])]
        assert targets
        assert set(targets) <= set(MONOLINGUAL)


def test_a_run_from_a_trained_model_needs_a_model_for_the_text(
    run: Callable[..., RunConfig], text: Path, copier: Any
) -> None:
    config = run(data__monolingual_target=str(text), training__start_from=str(copier.result.folder))
    with pytest.raises(ConfigError, match=r"give one as data\.monolingual_target_model"):
        add_synthetic_corpora(config, Path("nowhere"), lambda one: Path(one.output), lambda _: None)


@pytest.mark.parametrize(
    ("name", "model", "wanted"),
    [
        ("monolingual_target", "copier", "en to xx, .* from xx to en"),
        ("monolingual_source", "reverse", "xx to en, .* from en to xx"),
    ],
)
def test_a_given_model_of_the_wrong_direction_is_refused_before_it_translates(
    run: Callable[..., RunConfig],
    text: Path,
    tmp_path: Path,
    copier: Any,
    reverse_model: str,
    name: str,
    model: str,
    wanted: str,
) -> None:
    given = str(copier.result.folder) if model == "copier" else reverse_model
    config = run(**{f"data__{name}": str(text), f"data__{name}_model": given})
    with pytest.raises(ConfigError, match=f"data.{name}_model = .*: translates {wanted}: give a model that does that"):
        add_synthetic_corpora(config, tmp_path / "cache", lambda one: Path(one.output), lambda _: None)
    assert not [*tmp_path.glob("cache/*.jsonl")]
