"""Outputs made from metrics.jsonl during a run: report.html, and TensorBoard's event files."""

import importlib.util
import io
import math
import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from transduce.config import RunConfig, flatten, to_toml
from transduce.errors import MissingExtraError
from transduce.evaluation import mark_shared, tabulate_behaviours
from transduce.pages import draw_histogram, make_templates, name_bin, read_style, sample_evenly, shorten_text
from transduce.storage import replace_file
from transduce.training.diagnosis import CHECKS
from transduce.training.model_selection.final_measurements import read_behaviours, tabulate_differences, tabulate_models
from transduce.training.model_selection.stopping import explain_early_stop
from transduce.training.reporting import MetricsLine, select_lines
from transduce.training.reporting.curves import (
    MAX_POINTS,
    compute_mean,
    draw_charts,
    group_lines,
    has_r_drop,
    to_finite,
)
from transduce.training.run_folder import RunFolder

_TEMPLATES = make_templates(Path(__file__).parent)

TRAINING_ROWS, VALIDATION_ROWS = 20, 40
"""Maximum number of rows of the tables of training and of validations."""

TRAINING_COLUMNS = {
    "loss": ("loss", ".3f"),
    "cross_entropy": ("cross-entropy", ".3f"),
    "accuracy": ("accuracy", ".1%"),
    "learning_rate": ("learning rate", ".2e"),
    "gradient_norm": ("gradient norm", ".3g"),
    "divergence": ("divergence", ".3f"),
    "tokens_per_second": ("tokens/s", ",.0f"),
}
"""Key in a line of training, heading of its column, and its format. Only lines of R-Drop have a divergence."""

MAX_SENTENCES, MAX_OUTPUTS = 6, 10
"""Maximum number of sentences that are shown with the model's outputs, and of outputs for each."""


def write_report(path: Path, config: RunConfig, lines: Sequence[MetricsLine]) -> None:
    """Write the page at `path` from the lines of metrics.jsonl; an earlier one is kept if that fails."""
    seconds = max((line["seconds"] for line in lines if "seconds" in line), default=0.0)
    data = select_lines(lines, "data")
    best = _find_best(lines)
    comparison, scorecard = (next(iter(select_lines(lines, kind)[-1:]), None) for kind in ("comparison", "scorecard"))
    page = _TEMPLATES.get_template("report.html.j2").render(
        config=config,
        quoted_output=shlex.quote(config.output),
        style=read_style(),
        languages=f"{config.data.source_language or 'source'} to {config.data.target_language or 'target'}",
        update=f"{lines[-1]['update'] if lines else 0:,}",
        duration=_describe_duration(seconds),
        written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        stopped_early=explain_early_stop(config.training, lines),
        facts=_list_facts(best, data),
        best=best and _describe_best(best, config, data),
        comparison=comparison,
        comparison_tables=comparison and [tabulate_differences(comparison), tabulate_models(comparison)],
        scorecard=scorecard,
        scorecard_table=scorecard and tabulate_behaviours(read_behaviours(scorecard)),
        findings=_list_findings(lines),
        checks=", ".join(CHECKS),
        has_means=len(select_lines(lines, "training")) > MAX_POINTS,
        num_not_finite=count_not_finite(lines),
        charts=draw_charts(lines),
        validation_table=tabulate_validations(lines),
        training_table=tabulate_training(lines),
        sample_outputs=_collect_samples(lines),
        data_lines=[_describe_data(line) for line in data if {"lengths", "cleaning", "digests"} & line.keys()],
        changed_settings=_list_changed_settings(config),
        toml=to_toml(config),
        environment_rows=[row for line in data for row in line.get("environment", {}).items()],
    )
    with replace_file(path) as beside:
        beside.write_bytes((page + "\n").encode("utf-8", "replace"))


def format_figure(value: object, form: str) -> str:
    """A figure in a format as in ",.2f"; "" for a value that is not a number."""
    return "" if isinstance(value, bool) or not isinstance(value, int | float) else format(value, form)


def format_score(score: MetricsLine) -> str:
    """A score as in "34.57 (33.12-36.01)", with an en dash; without the interval where there is none."""
    value = format_figure(score["value"], ".2f")
    low, high = score.get("low"), score.get("high")
    return value if low is None or high is None else f"{value} ({low:.2f}–{high:.2f})"


def name_average(line: MetricsLine) -> str:
    """The kind of average that a line of metrics.jsonl describes; "" if none."""
    if line["kind"] != "average":
        return ""
    if line.get("ema_decay"):
        return "moving average"
    return "average of checkpoints" if line.get("averaged_checkpoints", 0) != 1 else "last weights"


def count_not_finite(lines: Sequence[MetricsLine]) -> int:
    """Number of figures that the curves leave out because they are not finite."""
    keys = [*TRAINING_COLUMNS, "perplexity"]
    figures = [line[key] for line in lines for key in keys if key in line]
    figures += [score["value"] for line in lines for score in line.get("scores", [])]
    return sum(to_finite(figure) is None for figure in figures)


def tabulate_training(lines: Sequence[MetricsLine]) -> tuple[list[str], list[list[str]]]:
    """Column heads and rows of the table of training; a row has the means of neighbouring lines of metrics.jsonl."""
    training = select_lines(lines, "training")
    columns = {key: column for key, column in TRAINING_COLUMNS.items() if key != "divergence" or has_r_drop(training)}
    rows = []
    for group in group_lines(training, TRAINING_ROWS):
        means = [(compute_mean(key, group), form) for key, (_, form) in columns.items()]
        cells = ["not finite" if mean is None else format(mean, form) for mean, form in means]
        rows.append([f"{group[-1]['update']:,}", *cells])
    return ["update", *(name for name, _ in columns.values())], rows


def tabulate_validations(lines: Sequence[MetricsLine]) -> tuple[str, list[str], list[list[str]]]:
    """Caption, column heads and rows of the table of validations, averages of weights included."""
    everything = select_lines(lines, "validation", "average")
    shown = sample_evenly(everything, VALIDATION_ROWS)
    metrics = list(dict.fromkeys(score["metric"] for line in shown for score in line.get("scores", [])))
    forms = {"loss": ".3f", "perplexity": ",.2f", "accuracy": ".1%"}
    rows = []
    for line in shown:
        update = f"{line['update']:,}" + (f" ({name})" if (name := name_average(line)) else "")
        figures = [format_figure(line.get(key), form) for key, form in forms.items()]
        scores = {score["metric"]: format_score(score) for score in line.get("scores", [])}
        best = "best so far" if line.get("is_best") else ""
        rows.append([update, best, *figures, *(scores.get(metric, "") for metric in metrics)])
    some = f", {len(shown)} of {len(everything):,}" if len(shown) < len(everything) else ""
    heads = ["update", "rank", "cross-entropy", "perplexity", "accuracy", *(f"{metric} (95 %)" for metric in metrics)]
    return f"Validations{some}, with 95 % confidence intervals", heads, rows


def _describe_duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} seconds"
    return f"{minutes} minutes" if minutes < 120 else f"{minutes // 60} hours {minutes % 60} minutes"


def _list_facts(best: MetricsLine | None, data: Sequence[MetricsLine]) -> list[tuple[str, str, str]]:
    """Name, value and explanation of the figures at the top of the page: of the best model so far, and of its size."""
    facts = []
    if best is not None:
        for score in best.get("scores", []):
            value, _, interval = format_score(score).partition(" ")
            facts.append((score["metric"], value, f"95 %: {interval.strip('()')}" if interval else ""))
        facts.append(("perplexity", format_figure(best.get("perplexity"), ",.2f"), "per token, validation text"))
    for line in data:
        facts.append(("pairs", format_figure(line.get("num_pairs"), ",.0f"), "for training"))
        facts.append(("parameters", format_figure(line.get("num_parameters"), ",.0f"), ""))
        facts.append(("vocabulary", format_figure(line.get("vocabulary"), ",.0f"), "token ids"))
    return [fact for fact in facts if fact[1]]


def _find_best(lines: Sequence[MetricsLine]) -> MetricsLine | None:
    """The validation of the best model so far, with the scores by its fitted search if it has one."""
    validations = select_lines(lines, "validation", "average")
    best = next((line for line in reversed(validations) if line.get("is_best")), None)
    fitted = select_lines(lines, "fitted_search")[-1:]
    if best is None or not fitted or fitted[0]["update"] < best["update"]:
        return best
    return {**best, "scores": fitted[0]["scores"]}


def _describe_best(best: MetricsLine, config: RunConfig, data: Sequence[MetricsLine]) -> dict[str, Any]:
    signatures = [(score["metric"], score["signature"]) for score in best.get("scores", [])]
    counts = [line["num_validation_pairs"] for line in data if "num_validation_pairs" in line]
    num_scored = min([*counts[-1:], config.training.max_validation_pairs or math.inf])
    return {
        "name": name_average(best) or "one",
        "after_update": f"{best['update']:,}",
        "signatures": signatures,
        "num_scored": f"{num_scored:,} " if counts else "",
    }


def _list_findings(lines: Sequence[MetricsLine]) -> list[dict[str, Any]]:
    """The lines of findings, the latest first, each with its moment, and whether its problem has ended."""
    found = select_lines(lines, "finding")
    over = {line["name"] for line in found if line["is_over"]}
    moments = [f"after update {line['update']:,}" if line["update"] else "before the first update" for line in found]
    return [
        {**line, "was_over": line["name"] in over, "moment": moment}
        for line, moment in zip(reversed(found), reversed(moments), strict=True)
    ]


def _collect_samples(lines: Sequence[MetricsLine]) -> list[dict[str, Any]]:
    """Source, reference and, by update, every output that differs from the one before it, of a few sentences."""
    outputs: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for line in select_lines(lines, "validation"):
        update = f"{line['update']:,}"
        for sample in line.get("samples", []):
            spans = outputs.setdefault((sample["source"], sample["reference"]), [])
            if spans and spans[-1][2] == sample["translation"]:
                spans[-1] = (spans[-1][0], update, sample["translation"])
            else:
                spans.append((update, update, sample["translation"]))
    return [
        {
            "source": shorten_text(source),
            "reference": shorten_text(reference),
            "outputs": [
                (
                    first if first == last else f"{first} to {last}",
                    mark_shared(shorten_text(translation), [shorten_text(reference)]),
                )
                for first, last, translation in sample_evenly(outputs[source, reference], MAX_OUTPUTS)
            ],
        }
        # The last ones: an earlier session may have shown other sentences.
        for source, reference in list(outputs)[-MAX_SENTENCES:]
    ]


def _describe_data(line: MetricsLine) -> dict[str, Any]:
    """Lengths, cleaning and digests of the run's text, from the line of kind "data"."""
    lengths, cleaning = line.get("lengths"), line.get("cleaning")
    return {
        "lengths": lengths and _describe_lengths(lengths),
        "cleaning": cleaning and _tabulate_cleaning(cleaning, line.get("corpora", [])),
        "digests": line.get("digests"),
    }


def _describe_lengths(lengths: Mapping[str, Any]) -> dict[str, Any]:
    width, sides = lengths["width"], ("source", "target")
    counts = {side: lengths[side] for side in sides}
    num_bins = len(counts["source"])
    return {
        "chart": draw_histogram("Lengths of the training sentences", width, counts, "tokens", "sentences"),
        "facts": [[name, *(f"{lengths[name][side]:,}" for side in sides)] for name in ("median", "longest")],
        "bins": [
            [name_bin(index, width, num_bins), *(f"{counts[side][index]:,}" for side in sides)]
            for index in range(num_bins)
            if any(counts[side][index] for side in sides)
        ],
    }


def describe_rule(rule: str) -> str:
    """The text for a cleaning rule, by its name in the counts."""
    return "sharing a sentence with a held-out pair" if rule == "like_held_out" else rule.replace("_", " ")


def _tabulate_cleaning(
    cleaning: Mapping[str, int], corpora: Sequence[Mapping[str, Any]]
) -> list[tuple[str, list[Any]]]:
    """Name and rows (rule, pairs, percentage) of the counts of all corpora, and if there are several, of each."""
    tables = {"": cleaning}
    if len(corpora) > 1:
        each = {f": {corpus['name']} (weight {corpus['weight']:g})": corpus["cleaning"] for corpus in corpora}
        tables = {": all corpora": cleaning, **each}

    def rows(counts: Mapping[str, int]) -> list[Any]:
        total = sum(counts.values()) or 1
        return [(describe_rule(rule), f"{count:,}", 100 * count / total) for rule, count in counts.items()]

    return [(name, rows(counts)) for name, counts in tables.items()]


def _list_changed_settings(config: RunConfig) -> list[list[str]]:
    """Setting, value and default where a value differs from the default, which is the paper's base model."""
    defaults = flatten(RunConfig().model_dump())
    own = {f"model.{name}" for name in config.model.select_own_settings()}
    return [
        [key, *("" if one is None else str(one) for one in (value, defaults[key]))]
        for key, value in flatten(config.model_dump()).items()
        if value != defaults[key] and key != "output" and (key in own or not key.startswith("model."))
    ]


REPORT_EVERY_SECONDS = 60.0
"""Seconds between two reports, if only training lines are written."""


def check_tensorboard() -> None:
    """Raise `MissingExtraError` unless TensorBoard is installed, without importing it."""
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingExtraError("tensorboard", "tensorboard", "training.tensorboard = true")


class EventFile:
    """TensorBoard's event file of one session, which repeats all of metrics.jsonl and so replaces earlier files.

    No point is shown twice, and none is missing because TensorBoard was turned on later or failed temporarily. The time
    axis shows seconds of training, without validations and pauses.
    """

    def __init__(self, folder: Path, lines: Sequence[MetricsLine]) -> None:
        """Begin a file in `folder` with the `lines` of metrics.jsonl so far."""
        with warnings.catch_warnings():  # warnings of other packages
            warnings.simplefilter("ignore")
            from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: PLC0415 - an optional package
            from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415
        self._protocol, self._summary, self._record_writer = event_pb2, summary_pb2, RecordWriter
        folder.mkdir(exist_ok=True)
        seconds = max((line["seconds"] for line in lines if "seconds" in line), default=0.0)
        self._began = time.time() - seconds
        # The name says when, as TensorBoard reads the files of a folder in order of their names.
        self.path = folder / f"events.out.tfevents.{time.time_ns()}"
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        # From here on TensorBoard ignores what earlier files have from step 0 on. If they were deleted, a TensorBoard
        # that watches one of them would stop reading.
        heads = [
            event_pb2.Event(wall_time=self._began, file_version="brain.Event:2"),
            event_pb2.Event(wall_time=self._began, step=0, session_log=start),
        ]
        self._write(heads + [self._event(line) for line in lines])

    def append(self, line: MetricsLine) -> None:
        """Write the figures of one line of metrics.jsonl, with the update as their step."""
        self._write([self._event(line)])

    def _event(self, line: MetricsLine) -> Any:  # noqa: ANN401 - a class of protobuf
        values = [self._summary.Summary.Value(tag=tag, simple_value=value) for tag, value in _iterate_scalars(line)]
        wall_time = self._began + line.get("seconds", 0.0)
        return self._protocol.Event(
            wall_time=wall_time, step=line["update"], summary=self._summary.Summary(value=values)
        )

    def _write(self, events: Sequence[Any]) -> None:
        # TensorBoard's own writer works in a thread, whose errors would come late and with a traceback.
        records = io.BytesIO()
        writer = self._record_writer(records)
        for event in events:
            writer.write(event.SerializeToString())
        with self.path.open("ab") as file:
            file.write(records.getvalue())


def _iterate_scalars(line: MetricsLine) -> Iterator[tuple[str, float]]:
    """Every figure of a line by its tag, as in "training/loss" or "validation/bleu_low"."""
    kind = line["kind"]
    if kind in {"data", "comparison", "scorecard"}:  # constant values need no curve
        return
    for name, value in line.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "update":
            yield f"{kind}/{name}", float(value)
    for score in line.get("scores", []):
        name = score["metric"].lower()
        for key, suffix in (("value", ""), ("low", "_low"), ("high", "_high")):
            if score.get(key) is not None:
                yield f"{kind}/{name}{suffix}", score[key]


class Trackers:
    """Keeps report.html and TensorBoard's event file up to date; a failure is reported once and never stops the run."""

    def __init__(self, folder: RunFolder, config: RunConfig, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._config = config
        self._report = report
        self._failed: set[str] = set()
        self._event_file: EventFile | None = None
        self._last_report = 0.0

    def begin(self) -> None:
        """Write the existing lines of metrics.jsonl."""
        if self._config.training.tensorboard:
            with self._ignore_failure("TensorBoard's event file"):
                self._event_file = EventFile(self._folder.tensorboard, self._folder.metrics.read())
        self.update_report()

    def append(self, line: MetricsLine) -> None:
        """Write a new line of metrics.jsonl."""
        if self._event_file is not None:
            event_file, self._event_file = (
                self._event_file,
                None,
            )  # abandoned if it fails, as an incomplete record ends a file
            with self._ignore_failure("TensorBoard's event file"):
                event_file.append(line)
                self._event_file = event_file
        is_frequent = line["kind"] in {"training", "source_use"}
        if not is_frequent or time.monotonic() - self._last_report >= REPORT_EVERY_SECONDS:
            self.update_report()

    def update_report(self) -> None:
        """Write report.html as of now."""
        with self._ignore_failure(self._folder.report.name):
            write_report(self._folder.report, self._config, self._folder.metrics.read())
        self._last_report = time.monotonic()

    @contextmanager
    def _ignore_failure(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - training must not fail because of a report
            if what not in self._failed:
                self._failed.add(what)
                self._report(f"warning: {what} could not be written; training continues without it: {error}")
