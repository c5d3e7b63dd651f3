"""What is measured of the best model when a run ends: its comparison with a baseline, and its behaviour.

Both become lines of metrics.jsonl, and sections of report.html.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.bundle import Bundle, RecordedBehaviour, find_bundle
from transduce.config import RunConfig
from transduce.data import PreparedData
from transduce.data.training_text import split_data_tag
from transduce.errors import ConfigError, TransduceError
from transduce.evaluation import (
    METRICS,
    Sentence,
    SystemOutput,
    TestSet,
    compare_systems,
    measure_scorecard,
    translate_test_set,
)
from transduce.pages import Table
from transduce.training.model_selection.validation import VALIDATION_METRICS
from transduce.training.reporting import MetricsLine
from transduce.training.run_folder import RunFolder
from transduce.training.synthetic.monolingual import locate_translating_run
from transduce.translation import Translator

MAX_COMPARED = 1000
"""Maximum number of validation pairs on which the best model is compared with a baseline."""

NUM_WARM_UP = 4
"""Sentences translated before the speed of a model is measured: what is done once, such as packing weights, is not
counted."""

SELECTION_NOTE = (
    "the model was chosen by its scores on these sentences, which favours it: a test set that neither model has seen "
    "decides (transduce compare)"
)


def find_baseline(config: RunConfig) -> Path | None:
    """The model that the best model of a run is compared with when the run ends; None if there is none.

    That is `training.baseline`, or else the teacher, or the model that the run starts from, or the one that translates
    `data.monolingual_source`. A model that the run starts from with a new vocabulary is usually one of other languages;
    the model that translates `data.monolingual_target` is always one of the other direction.
    """
    training, data = config.training, config.data
    if training.baseline is not None:
        return Path(training.baseline)
    if data.teacher is not None:
        return Path(data.teacher)
    if training.start_from is not None and training.start_vocabulary == "kept":
        return Path(training.start_from)
    if data.monolingual_source is not None:
        return Path(data.monolingual_source_model or locate_translating_run(config, "monolingual_source"))
    return None


def name_baseline(config: RunConfig) -> str | None:
    """The name of the baseline in reports, with the other models of an ensemble of teachers; None if there is none."""
    baseline = find_baseline(config)
    return None if baseline is None else ", ".join([str(baseline), *_list_ensemble(config, baseline)])


def _list_ensemble(config: RunConfig, baseline: Path) -> Sequence[str]:
    """The models that translate together with the baseline, if that is the teacher."""
    data = config.data
    return data.teacher_ensemble if data.teacher is not None and baseline == Path(data.teacher) else ()


def check_baseline(config: RunConfig) -> None:
    """Check that `training.baseline`, if it is given, is a model of the run's languages, and not that of the run.

    Raises:
        BundleError: it is not a bundle.
        ConfigError: it translates other languages, or is in the folder of the run.
    """
    given = config.training.baseline
    if given is None:
        return
    if Path(given).resolve().is_relative_to(Path(config.output).resolve()):
        raise ConfigError(
            f"training.baseline = {given!r}: is in the folder of the run, whose model would be compared with itself; "
            "give another model, or a copy of this one"
        )
    languages = Bundle.open(find_bundle(Path(given))).description.languages
    if difference := languages.describe_mismatch(config.data.source_language, config.data.target_language):
        raise ConfigError(f"training.baseline = {given!r}: {difference}; give a model of the same languages")


def compare_with_baseline(
    config: RunConfig, prepared: PreparedData, folder: RunFolder, start: str, report: Callable[[str], None]
) -> dict[str, Any] | None:
    """Compare the best model of a run with its baseline on the validation text, by the tests of `transduce compare`.

    Args:
        config: the run.
        prepared: its text.
        folder: its folder, with the best model.
        start: the digest of the model that the run started from; "" if there is none.
        report: receives messages: the result, or why there is none.

    Returns:
        The figures for metrics.jsonl: those of `Comparison.as_json`, with size and speed of both models. None if there
        is no baseline, or it cannot be used.
    """
    baseline = find_baseline(config)
    if baseline is None:
        return None
    data = config.data
    try:
        bundle = Bundle.open(find_bundle(baseline))
        others = [Bundle.open(find_bundle(Path(other))) for other in _list_ensemble(config, baseline)]
        languages = bundle.description.languages
        if difference := languages.describe_mismatch(data.source_language, data.target_language):
            report(f"not compared with {baseline}, which {difference}")
            return None
        is_start = baseline.resolve() == Path(config.training.start_from or "").resolve()
        if is_start and start not in {"", bundle.digest}:
            report(f"not compared with {baseline}: it has other weights now than when the run began")
            return None
        num_pairs = min(config.training.max_validation_pairs or MAX_COMPARED, MAX_COMPARED)
        sources, references = zip(*prepared.validation[:num_pairs], strict=True)
        test_set = TestSet("validation", sources, [references])
        name = str(name_baseline(config))
        report(f"comparing the best model with {name}, on {len(sources):,} sentences of the validation text")
        models = {name: [bundle, *others], str(folder.path): [Bundle.open(folder.best)]}
        # The best model has read the tags of the corpora, as whatever its tokenizer makes of them.
        test_sets = _remove_unknown_tags(test_set, data.tags, bundle), test_set
        outputs = [
            _translate(config, name, own, texts) for (name, own), texts in zip(models.items(), test_sets, strict=True)
        ]
        comparison = compare_systems(test_set, outputs, VALIDATION_METRICS)
    except TransduceError as error:
        report(f"not compared with {baseline}: {error}")
        return None
    figures = comparison.as_json()
    figures["notes"].append(SELECTION_NOTE)
    figures["models"] = [
        {
            "model": output.system,
            "parameters": sum(one.load_model().num_parameters for one in own),
            "sentences_per_second": len(sources) / (output.seconds or 1.0),
        }
        for output, own in zip(outputs, models.values(), strict=True)
    ]
    for text in describe_comparison(figures):
        report(text)
    return figures


def _remove_unknown_tags(test_set: TestSet, tags: Sequence[str], bundle: Bundle) -> TestSet:
    """The test set without the tags of corpora at the beginning of sources that would be text to a model."""
    tokenizer = bundle.load_tokenizer()
    unknown = [tag for tag in tags if not tokenizer.split_tag(f"{tag} ")[0]]
    return replace(test_set, sources=[split_data_tag(source, unknown)[1] for source in test_set.sources])


def _translate(config: RunConfig, name: str, models: Sequence[Bundle], test_set: TestSet) -> SystemOutput:
    """The translations by a model, or by an ensemble."""
    first, *others = (model.folder for model in models)
    translator = Translator.load(first, device=config.training.device, ensemble=others)
    translator.translate(test_set.sources[:NUM_WARM_UP])
    return translate_test_set(translator, name, test_set)


def describe_comparison(figures: MetricsLine) -> list[str]:
    """The result of `compare_with_baseline` in sentences: one for each metric, and the notes."""
    baseline, model = figures["systems"]
    lines = []
    for metric, first in baseline["scores"].items():
        own = model["scores"][metric]
        lines.append(
            f"{model['system']} against {baseline['system']}: {METRICS[metric][0]} {own['value']:.2f} against "
            f"{first['value']:.2f}, difference {own['difference']:+.2f} (95% {own['difference_low']:+.2f} to "
            f"{own['difference_high']:+.2f}), p {own['p']:.4f}: {own['verdict']}"
        )
    return lines + [f"    {note}" for note in figures["notes"]]


def tabulate_differences(figures: MetricsLine) -> Table:
    """The scores of `compare_with_baseline`: a row for each metric."""
    baseline, model = figures["systems"]
    rows = []
    for metric, first in baseline["scores"].items():
        own = model["scores"][metric]
        rows.append(
            [
                METRICS[metric][0],
                *(f"{one['value']:.2f} ({one['low']:.2f} to {one['high']:.2f})" for one in (first, own)),
                f"{own['difference']:+.2f}",
                f"{own['difference_low']:+.2f} to {own['difference_high']:+.2f}",
                f"{own['p']:.4f}",
                own["verdict"],
            ]
        )
    names = [f"{one['system']} (95 %)" for one in (baseline, model)]
    return Table("", ["metric", *names, "difference", "its 95 % interval", "p", "verdict"], rows)


def tabulate_models(figures: MetricsLine) -> Table:
    """Size and speed of both models of `compare_with_baseline`."""
    rows = [
        [one["model"], f"{one['parameters']:,}", f"{one['sentences_per_second']:,.0f}"] for one in figures["models"]
    ]
    return Table("", ["model", "parameters", "sentences/s"], rows)


def measure_behaviour(
    config: RunConfig, prepared: PreparedData, folder: RunFolder, report: Callable[[str], None]
) -> dict[str, Any] | None:
    """Measure the scorecard of the best model of a run on its validation text, as `transduce scorecard` does.

    Returns:
        The figures for metrics.jsonl, without sentences; None if `training.scorecard_sentences` is 0, or the text has
        no usable sentence.
    """
    count = config.training.scorecard_sentences
    if not count:
        return None
    try:
        translator = Translator.load(folder.best, device=config.training.device)
        found = measure_scorecard(translator, [Sentence(*pair) for pair in prepared.validation], num_sentences=count)
    except TransduceError as error:
        report(f"the behaviour of the best model is not measured: {error}")
        return None
    behaviours = [result.figures for result in found.results]
    lowest = ", ".join(f"{one.name} {one.score:.0f}" for one in sorted(behaviours, key=lambda one: one.score)[:3])
    report(
        f"behaviour on unusual input, from 0 to 100: the lowest scores are {lowest}; {folder.report.name} has all, and "
        f"transduce scorecard {shlex.quote(str(folder.path))} shows examples"
    )
    return {
        "sentences": found.num_sentences,
        "translations": found.num_translations,
        "behaviours": [one.model_dump(exclude_none=True) for one in behaviours],
        "skipped": found.skipped,
    }


def read_behaviours(figures: MetricsLine) -> list[RecordedBehaviour]:
    """The behaviours that a line of `measure_behaviour` records."""
    return [RecordedBehaviour(**one) for one in figures["behaviours"]]
