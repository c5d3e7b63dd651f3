"""report.html: how a run went, on one page that opens from disk."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from transduce.config import RunConfig, to_toml
from transduce.training.chart import Series, line_chart

Line = Mapping[str, Any]

_STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #666; --paper: #fff; --rule: #ddd; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #a0a0a0; --paper: #101215; --rule: #33363b; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 760px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.facts, figcaption, caption { color: var(--soft); } caption { text-align: left; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; } dt { color: var(--soft); font-size: .85rem; }
dd { margin: 0; font-size: 1.5rem; font-weight: 600; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top;
  padding: .3rem .6rem .3rem 0; border-top: 1px solid var(--rule); }
svg { max-width: 100%; height: auto; margin: .5rem 0; } pre { overflow-x: auto; font-size: .85rem; }
code, td { overflow-wrap: anywhere; }
th { font-weight: 600; } .number { text-align: right; font-variant-numeric: tabular-nums; }
.samples { table-layout: fixed; } summary { cursor: pointer; }
@media (max-width: 600px) { svg { overflow: visible; } svg text { font-size: 15px; }
  .samples tr:first-child { display: none; } .samples td { display: block; border: 0; padding: .1rem 0; }
  .samples td::before { content: attr(data-side); display: block; color: var(--soft); font-size: .8rem; }
  .samples tr { display: block; border-top: 1px solid var(--rule); padding: .5rem 0; } }
"""


def write_report(path: Path, config: RunConfig, lines: Sequence[Line]) -> None:
    """Write the page at `path`, in place of an earlier one, from the lines of metrics.jsonl."""
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(_page(config, lines), encoding="utf-8", newline="\n")
    beside.replace(path)


def learning_curve(lines: Sequence[Line]) -> str:
    """BLEU on the validation text over the updates, as an SVG file: the picture of a run in one glance."""
    return line_chart("BLEU on the validation text", [Series("BLEU", _score_points(lines, "BLEU"))], "updates", "")


def _page(config: RunConfig, lines: Sequence[Line]) -> str:
    languages = f"{config.data.source_language or 'source'} to {config.data.target_language or 'target'}"
    parts = [
        f"<h1>{escape(languages)}</h1>",
        f'<p class="facts">{escape(config.preset)} model; run in <code>{escape(config.output)}</code></p>',
        _figures(lines),
        "<h2>Curves</h2>",
        *_charts(lines),
        _validations(lines),
        _samples(lines),
        _cleaning(lines),
        f"<h2>Settings</h2><details><summary>config.toml</summary><pre>{escape(to_toml(config))}</pre></details>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(languages)}: training report</title><style>{_STYLE}</style></head>\n"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _of(lines: Sequence[Line], *kinds: str) -> list[Line]:
    return [line for line in lines if line.get("kind") in kinds]


def _score_points(lines: Sequence[Line], metric: str) -> list[tuple[float, float]]:
    return [
        (float(line["update"]), score["value"])
        for line in _of(lines, "validation")
        for score in line.get("scores", [])
        if score["metric"] == metric and math.isfinite(score["value"])
    ]


def _figures(lines: Sequence[Line]) -> str:
    """The figures of the best model so far, and what it took."""
    facts: dict[str, str] = {}
    signatures = ""
    for line in [line for line in _of(lines, "validation", "average") if line.get("is_best")][-1:]:
        scores = line.get("scores", [])
        facts |= {score["metric"]: f"{score['value']:.2f}" for score in scores}
        facts |= {"perplexity": f"{line['perplexity']:.2f}"} if "perplexity" in line else {}
        model = "the average of checkpoints" if line["kind"] == "average" else "the one"
        signatures = f'<p class="facts">Best model: {model} after update {line["update"]:,}.</p>' + "".join(
            f'<p class="facts">{escape(score["metric"])}: <code>{escape(score["signature"])}</code></p>'
            for score in scores
        )
    for line in _of(lines, "data"):
        names = {"num_parameters": "parameters", "num_pairs": "pairs"}
        facts |= {name: f"{line[key]:,}" for key, name in names.items() if key in line}
    if lines:
        facts["updates"] = f"{lines[-1]['update']:,}"
        facts["minutes of training"] = f"{lines[-1].get('seconds', 0) / 60:.1f}"
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f"<dl>{items}</dl>{signatures}"


def _charts(lines: Sequence[Line]) -> list[str]:
    def over_updates(name: str, key: str, *kinds: str) -> Series:
        # A chart has no place for a figure that is not finite, and a page must never be what ends a run.
        found = [line for line in _of(lines, *kinds) if math.isfinite(line.get(key, math.nan))]
        return Series(name, [(float(line["update"]), line[key]) for line in found])

    def score(metric: str) -> Series:
        return Series(metric, _score_points(lines, metric))

    training = over_updates("training", "cross_entropy", "training")
    losses = [Series("training", _smooth(training.points)), over_updates("validation", "loss", "validation")]
    return [
        line_chart("Translations of the validation text", [score("BLEU"), score("chrF")], "updates", ""),
        line_chart("Cross-entropy a token (training: mean of ten lines)", losses, "updates", "nats"),
        line_chart("Learning rate", [over_updates("", "learning_rate", "training")], "updates", ""),
        line_chart("Speed", [over_updates("", "tokens_per_second", "training")], "updates", "tokens/s"),
    ]


def _validations(lines: Sequence[Line]) -> str:
    """The figures of the curves once more, for who cannot see them."""
    validations = _of(lines, "validation", "average")
    metrics = list(dict.fromkeys(score["metric"] for line in validations for score in line.get("scores", [])))
    heads = "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in ["update", "loss", *metrics])
    rows = ""
    for line in validations:
        scores = {score["metric"]: f"{score['value']:.2f}" for score in line.get("scores", [])}
        update = f"{line['update']:,}" + (" (average)" if line["kind"] == "average" else "")
        loss = f"{line['loss']:.3f}" if "loss" in line else ""
        cells = [update, loss, *(scores.get(metric, "") for metric in metrics)]
        rows += "<tr>" + "".join(f'<td class="number">{cell}</td>' for cell in cells) + "</tr>"
    return f"<details><summary>Validations as a table</summary><table><tr>{heads}</tr>{rows}</table></details>"


def _smooth(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The mean of each value and up to nine before it: one batch has long sentences, the next has short ones."""
    values = [value for _, value in points]
    return [
        (update, sum(values[max(0, index - 9) : index + 1]) / len(values[max(0, index - 9) : index + 1]))
        for index, (update, _) in enumerate(points)
    ]


def _samples(lines: Sequence[Line]) -> str:
    rows = "".join(
        "<tr>" + "".join(f'<td dir="auto" data-side="{side}">{escape(sample[side])}</td>' for side in _SIDES) + "</tr>"
        for line in _of(lines, "validation")[-1:]
        for sample in line.get("samples", [])
    )
    heads = "".join(f'<th scope="col">{side}</th>' for side in _SIDES)
    table = f'<table class="samples"><tr>{heads}</tr>{rows}</table>' if rows else "<p>nothing to show yet</p>"
    return f"<h2>Samples of the last validation</h2>{table}"


_SIDES = ("source", "translation", "reference")


def _cleaning(lines: Sequence[Line]) -> str:
    rows = ""
    for line in _of(lines, "data"):
        corpora = line.get("corpora", [])
        if len(corpora) > 1:
            names = [f"{corpus['name']} (weight {corpus['weight']:g})" for corpus in corpora]
            heads = "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in ["all corpora", *names])
            rows += f"<tr><td></td>{heads}</tr>"
        for rule, count in line.get("cleaning", {}).items():
            counts = [count, *(corpus["cleaning"][rule] for corpus in corpora if len(corpora) > 1)]
            cells = "".join(f'<td class="number">{number:,}</td>' for number in counts)
            rows += f"<tr><td>{escape(rule.replace('_', ' '))}</td>{cells}</tr>"
    return f"<h2>Cleaning</h2><table><caption>Pairs that each rule left out, and pairs kept</caption>{rows}</table>"
