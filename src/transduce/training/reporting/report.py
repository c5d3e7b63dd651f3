"""report.html: how a run goes or went, on one page that opens from disk: no script, nothing from elsewhere."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from html import escape
from pathlib import Path
from typing import Any

from transduce.bundle import written_file
from transduce.config import RunConfig, flatten, to_toml
from transduce.training.diagnosis import CHECKS
from transduce.training.reporting.charts import (
    MOST_POINTS,
    STYLE,
    Line,
    _groups,
    _mean,
    bin_name,
    charts,
    finite,
    histogram,
    of_kind,
    spread,
    validations,
)
from transduce.training.stopping import end_of_patience


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], num_texts: int = 1) -> str:
    """A `<table>`; each row has as many cells as there are `heads`.

    Args:
        caption: what it shows.
        heads: of the columns.
        rows: cells from left to right; the first one names the row.
        num_texts: so many columns from the left hold text, the others numbers.
    """

    def cell(index: int, text: str) -> str:
        tag = '<th scope="row"' if index == 0 else "<td"
        return f"{tag}{_aligned(index, num_texts)}>{escape(text)}{tag[:3].replace('<', '</')}>"

    head = "".join(
        f'<th scope="col"{_aligned(index, num_texts)}>{escape(text)}</th>' for index, text in enumerate(heads)
    )
    body = "".join("<tr>" + "".join(cell(*pair) for pair in enumerate(row)) + "</tr>" for row in rows)
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def folded(summary: str, content: str) -> str:
    """`content` that opens on a click on `summary`."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def figure_text(value: object, form: str) -> str:
    """A figure in a format as in ",.2f"; one that is not finite as it is, one that is missing as nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return format(value, form)


def _aligned(index: int, num_texts: int) -> str:
    return "" if index < num_texts else ' class="number"'


MOST_SENTENCES, MOST_OUTPUTS = 6, 10
MOST_CHARACTERS = 400
"""Of a text; a longer one is cut, so that a page of anybody's text stays small."""


def samples(lines: Sequence[Line], source_language: str, target_language: str) -> str:
    """Source, reference and, by update, every output that differs from the one before it."""
    outputs: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for line in of_kind(lines, "validation"):
        update = f"{line['update']:,}"
        for sample in line.get("samples", []):
            runs = outputs.setdefault((sample["source"], sample["reference"]), [])
            if runs and runs[-1][2] == sample["translation"]:
                runs[-1] = (runs[-1][0], update, sample["translation"])
            else:
                runs.append((update, update, sample["translation"]))
    if not outputs:
        return "<p>The first validation will bring them.</p>"
    languages = _language(source_language), _language(target_language)
    # The last ones: an earlier sitting may have shown other sentences.
    return "".join(_sentence(*pair, outputs[pair], *languages) for pair in list(outputs)[-MOST_SENTENCES:])


def _sentence(
    source: str, reference: str, runs: Sequence[tuple[str, str, str]], source_lang: str, target_lang: str
) -> str:
    rows = "".join(
        f'<tr><th scope="row" class="number">{first if first == last else f"{first} to {last}"}</th>'
        f'<td dir="auto"{target_lang}>{_marked(_cut(translation), _cut(reference))}</td></tr>'
        for first, last, translation in spread(runs, MOST_OUTPUTS)
    )
    return (
        f'<article><dl class="sample"><dt>source</dt><dd dir="auto"{source_lang}>{escape(_cut(source))}</dd>'
        f'<dt>reference</dt><dd dir="auto"{target_lang}>{escape(_cut(reference))}</dd></dl><table class="outputs">'
        f'<thead><tr><th scope="col" class="number">update</th><th scope="col">output</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></article>"
    )


def _marked(translation: str, reference: str) -> str:
    """`translation` as HTML, in which everything stands out that the reference has, too, in the same order."""
    pieces, wanted = _pieces(translation, reference), _pieces(reference, reference)
    parts, behind = [], 0
    for block in SequenceMatcher(None, pieces, wanted, autojunk=False).get_matching_blocks():
        parts.append(escape("".join(pieces[behind : block.a])))
        same = escape("".join(pieces[block.a : block.a + block.size]))
        parts.append(f"<b>{same}</b>" if same.strip() else same)
        behind = block.a + block.size
    return "".join(parts)


def _pieces(text: str, reference: str) -> list[str]:
    """Words, and what is between them; single characters where the reference has no spaces."""
    return re.findall(r"\w+|\W", text) if " " in reference else list(text)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _language(code: str) -> str:
    return f' lang="{escape(code)}"' if code else ""


SECTIONS = ("Diagnosis", "Curves", "Samples over time", "Data", "Settings", "Environment")


def write_report(path: Path, config: RunConfig, lines: Sequence[Line]) -> None:
    """Write the page at `path`, in place of an earlier one, from the lines of metrics.jsonl.

    Raises:
        OSError: it cannot be written; the earlier one is still there.
    """
    with written_file(path) as beside:
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
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8") + STYLE
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
    picture = histogram(title, width, counts, "tokens", "sentences")
    rows = [
        [bin_name(index, width, num_bins), *(f"{counts[side][index]:,}" for side in sides)]
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


TRAINING_ROWS, VALIDATION_ROWS = 20, 40
TRAINING_COLUMNS = {
    "loss": ("loss", ".3f"),
    "cross_entropy": ("cross-entropy", ".3f"),
    "accuracy": ("accuracy", ".1%"),
    "learning_rate": ("learning rate", ".2e"),
    "gradient_norm": ("gradient norm", ".3g"),
    "tokens_per_second": ("tokens/s", ",.0f"),
}
"""Key in a line of training, what it is called, and its format."""


def training_table(lines: Sequence[Line]) -> str:
    """The curves of training in numbers."""
    rows = []
    for group in _groups(of_kind(lines, "training"), TRAINING_ROWS):
        means = [(_mean(key, group), form) for key, (_, form) in TRAINING_COLUMNS.items()]
        rows.append(
            [
                f"{group[-1]['update']:,}",
                *("not finite" if mean is None else format(mean, form) for mean, form in means),
            ]
        )
    heads = ["update", *(name for name, _ in TRAINING_COLUMNS.values())]
    return table("Training: means since the row above", heads, rows, num_texts=0)


def validation_table(lines: Sequence[Line]) -> str:
    """The validations in numbers."""
    all_of_them = validations(lines)
    shown = spread(all_of_them, VALIDATION_ROWS)
    metrics = list(dict.fromkeys(score["metric"] for line in shown for score in line.get("scores", [])))
    rows = []
    for line in shown:
        scores = {score["metric"]: score for score in line.get("scores", [])}
        update = f"{line['update']:,}" + (f" ({name})" if (name := average_name(line)) else "")
        rows.append(
            [
                update,
                "best so far" if line.get("is_best") else "",
                figure_text(line.get("loss"), ".3f"),
                figure_text(line.get("perplexity"), ",.2f"),
                figure_text(line.get("accuracy"), ".1%"),
                *(score_text(scores[metric]) if metric in scores else "" for metric in metrics),
            ]
        )
    some = f", {len(shown)} of {len(all_of_them):,}" if len(shown) < len(all_of_them) else ""
    heads = ["update", "rank", "cross-entropy", "perplexity", "accuracy", *(f"{metric} (95 %)" for metric in metrics)]
    return table(f"Validations{some}, with 95 % confidence intervals", heads, rows, num_texts=2)


def average_name(line: Line) -> str:
    """The kind of average that a line is about, if it is one."""
    if line["kind"] != "average":
        return ""
    if line.get("ema_decay"):
        return "moving average"
    return "average of checkpoints" if line.get("averaged_checkpoints", 0) != 1 else "last weights"


def score_text(score: Line) -> str:
    """As in "34.57 (33.12–36.01)"; without the interval where there is none."""
    value = figure_text(score["value"], ".2f")
    low, high = score.get("low"), score.get("high")
    return value if low is None or high is None else f"{value} ({low:.2f}–{high:.2f})"


def num_not_finite(lines: Sequence[Line]) -> int:
    """Figures that the curves leave out since no chart has a place for them."""
    keys = [*TRAINING_COLUMNS, "perplexity"]
    figures = [line[key] for line in lines for key in keys if key in line]
    figures += [score["value"] for line in lines for score in line.get("scores", [])]
    return sum(finite(figure) is None for figure in figures)
