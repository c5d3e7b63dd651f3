"""report.html: how a run goes or went, on one page that opens from disk: no script, nothing from elsewhere."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from transduce.bundle import replace_file
from transduce.config import RunConfig, flatten, to_toml
from transduce.training import chart
from transduce.training.curves import (
    MOST_POINTS,
    Line,
    average_name,
    charts,
    num_not_finite,
    of_kind,
    score_text,
    training_table,
    validation_table,
    validations,
)
from transduce.training.diagnosis import CHECKS
from transduce.training.markup import figure_text, folded, table
from transduce.training.patience import end_of_patience
from transduce.training.samples import samples

SECTIONS = ("Diagnosis", "Curves", "Samples over time", "Data", "Settings", "Environment")


def write_report(path: Path, config: RunConfig, lines: Sequence[Line]) -> None:
    """Write the page at `path`, in place of an earlier one, from the lines of metrics.jsonl.

    Raises:
        OSError: it cannot be written; the earlier one is still there.
    """
    with replace_file(path) as beside:
        beside.write_bytes(_page(config, lines).encode("utf-8", "replace"))


def _page(config: RunConfig, lines: Sequence[Line]) -> str:
    languages = f"{config.data.source_language or 'source'} to {config.data.target_language or 'target'}"
    contents = (
        _diagnosis(lines),
        _curves(lines),
        samples(lines, config.data.source_language, config.data.target_language),
        _data(lines),
        _settings(config),
        _environment(lines),
    )
    links = "".join(f'<a href="#{_anchor(title)}">{title}</a>' for title in SECTIONS)
    sections = "".join(
        f'<section id="{_anchor(title)}"><h2>{title}</h2>{content}</section>'
        for title, content in zip(SECTIONS, contents, strict=True)
    )
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8") + chart.STYLE
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(languages)}: training report</title><style>\n{style}</style></head>\n"
        f"<body><header><h1>{escape(languages)}</h1>{_state(config, lines)}{_facts(lines)}<nav>{links}</nav></header>\n"
        f"<main>{sections}</main></body></html>\n"
    )


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _state(config: RunConfig, lines: Sequence[Line]) -> str:
    update = lines[-1]["update"] if lines else 0
    seconds = max((line["seconds"] for line in lines if "seconds" in line), default=0.0)
    written = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    return (
        f'<p class="soft">Preset {escape(config.preset)}, run in <code>{escape(config.output)}</code>: update '
        f"{update:,} of at most {config.training.updates:,}, after {_duration(seconds)} of training. "
        f"Written {written}.</p>"
        + (f"<p>Training {escape(stopped)}.</p>" if (stopped := end_of_patience(config.training, lines)) else "")
    )


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} seconds"
    return f"{minutes} minutes" if minutes < 120 else f"{minutes // 60} hours {minutes % 60} minutes"


def _facts(lines: Sequence[Line]) -> str:
    """The figures of the best model so far, and its size."""
    facts: list[tuple[str, str, str]] = []
    explained = ""
    for line in [line for line in validations(lines) if line.get("is_best")][-1:]:
        for score in line.get("scores", []):
            value, _, interval = score_text(score).partition(" ")
            facts.append((score["metric"], value, f"95 %: {interval.strip('()')}" if interval else ""))
        facts.append(("perplexity", figure_text(line.get("perplexity"), ",.2f"), "a token, validation text"))
        model = f"the {average_name(line) or 'one'}"
        signatures = "; ".join(
            f"{escape(score['metric'])} <code>{escape(score['signature'])}</code>" for score in line.get("scores", [])
        )
        explained = (
            f'<p class="soft">Best model so far: {escape(model)} after update {line["update"]:,}. {signatures}</p>'
        )
    for line in of_kind(lines, "data"):
        facts.append(("pairs", figure_text(line.get("num_pairs"), ",.0f"), "to train on"))
        facts.append(("parameters", figure_text(line.get("num_parameters"), ",.0f"), ""))
        facts.append(("vocabulary", figure_text(line.get("vocabulary"), ",.0f"), "token ids"))
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd>{f'<dd>{escape(more)}</dd>' if more else ''}</div>"
        for name, value, more in facts
        if value
    )
    return (f'<dl class="facts">{items}</dl>' if items else "") + explained


def _diagnosis(lines: Sequence[Line]) -> str:
    """What is wrong with the run, the latest finding first, and what was wrong and is over."""
    found = of_kind(lines, "finding")
    if not found:
        checked = ", ".join(CHECKS)
        return f'<p class="soft">Nothing was found. Looked for: {escape(checked)}.</p>'
    over = {line["name"] for line in found if line["is_over"]}
    items = "".join(
        (f'<li class="soft"><b>{escape(line["name"])}' if line["name"] in over else f"<li><b>{escape(line['name'])}")
        + f"{' is over' if line['is_over'] else ''}</b>, {_moment(line)}: {escape(line['text'])}.</li>"
        for line in reversed(found)
    )
    return f'<ul class="findings">{items}</ul>'


def _moment(line: Line) -> str:
    return f"after update {line['update']:,}" if line["update"] else "before the first update"


def _curves(lines: Sequence[Line]) -> str:
    notes = "Bands around BLEU and chrF are 95 % confidence intervals."
    if len(of_kind(lines, "training")) > MOST_POINTS:
        notes += " Curves of training show means of neighbouring lines, and their range as a band."
    if left_out := num_not_finite(lines):
        notes += f" {left_out:,} figures that are not finite are left out."
    return (
        f'<p class="soft">{notes}</p><div class="charts">{"".join(charts(lines))}</div>'
        + folded("Validations as a table", validation_table(lines))
        + folded("Training as a table", training_table(lines))
    )


def _data(lines: Sequence[Line]) -> str:
    parts = []
    for line in of_kind(lines, "data"):
        if lengths := line.get("lengths"):
            parts.append(_lengths(lengths))
        if cleaning := line.get("cleaning"):
            parts.append(_cleaning(cleaning, line.get("corpora", [])))
        if digests := line.get("digests"):
            parts.append(
                folded("SHA-256 of the texts", table("What was read", ["text", "SHA-256"], _rows(digests), num_texts=2))
            )
    return "".join(parts) or "<p>Nothing is recorded.</p>"


def _lengths(lengths: Mapping[str, Any]) -> str:
    width, sides = lengths["width"], ("source", "target")
    counts = {side: lengths[side] for side in sides}
    num_bins = len(counts["source"])
    title = "Lengths of the training sentences"
    picture = chart.histogram(title, width, counts, "tokens", "sentences")
    rows = [
        [chart.bin_name(index, width, num_bins), *(f"{counts[side][index]:,}" for side in sides)]
        for index in range(num_bins)
        if any(counts[side][index] for side in sides)
    ]
    facts = [[name, *(f"{lengths[name][side]:,}" for side in sides)] for name in ("median", "longest")]
    numbers = table(title, ["tokens", *sides], rows, num_texts=0)
    summary = table("Tokens of a sentence, with the one that ends it", ["figure", *sides], facts)
    return f'<div class="charts">{picture}<div>{summary}{folded("All lengths as a table", numbers)}</div></div>'


def _cleaning(cleaning: Mapping[str, int], corpora: Sequence[Mapping[str, Any]]) -> str:
    """A table of the counts of all, and if there are several corpora, of each."""
    tables = {"": cleaning}
    if len(corpora) > 1:
        each = {f": {corpus['name']} (weight {corpus['weight']:g})": corpus["cleaning"] for corpus in corpora}
        tables = {": all corpora": cleaning, **each}
    parts = []
    for name, counts in tables.items():
        total = sum(counts.values()) or 1
        rows = "".join(_cleaning_row(rule, count, count / total) for rule, count in counts.items())
        caption = f"Pairs that each rule of cleaning left out, and pairs kept{name}"
        parts.append(
            f'<div class="wide"><table class="bars"><caption>{escape(caption)}</caption><thead><tr><th scope="col">rule'
            '</th><th scope="col" class="number">pairs</th><th scope="col" class="number">share</th><td></td></tr>'
            f"</thead><tbody>{rows}</tbody></table></div>"
        )
    return f'<div class="cleaning">{"".join(parts)}</div>'


def _cleaning_row(rule: str, count: int, share: float) -> str:
    return (
        f'<tr><th scope="row">{escape(rule.replace("_", " "))}</th><td class="number">{count:,}</td>'
        f'<td class="number">{share:.2%}</td><td><span class="bar" style="width:{100 * share:.2f}%"></span></td></tr>'
    )


def _settings(config: RunConfig) -> str:
    """What differs from the defaults, which are the paper's base model; folded, everything."""
    defaults = flatten(RunConfig().model_dump())
    rows = [
        [key, _shown(value), _shown(defaults[key])]
        for key, value in flatten(config.model_dump()).items()
        if value != defaults[key] and key != "output"
    ]
    caption = "Settings that differ from the defaults, the base model of the paper"
    whole = folded("All settings: config.toml", f"<pre>{escape(to_toml(config))}</pre>")
    return table(caption, ["setting", "here", "default"], rows, num_texts=3) + whole


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _environment(lines: Sequence[Line]) -> str:
    rows = [row for line in of_kind(lines, "data") for row in _rows(line.get("environment", {}))]
    return table("When the run began", ["what", "which"], rows, num_texts=2)


def _rows(facts: Mapping[str, object]) -> list[list[str]]:
    return [[name, str(value)] for name, value in facts.items()]
