"""The report of an examination: JSON for programs, plain text for terminals, and a page for browsers."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from transduce.doctor.checks.languages import name_language
from transduce.doctor.checks.lengths import BIN_WIDTH, QUANTILES, RATIO_BIN, count_lengths, count_ratios
from transduce.doctor.examination import Examination, TextFigures
from transduce.doctor.filtering import is_refused
from transduce.doctor.findings import Finding, Span
from transduce.pages import Series, Table, draw_histogram, draw_line_chart, format_count, make_templates, read_style
from transduce.storage import OwnFileKind

GENERATOR = "transduce doctor"
LINES_HEADER = "finding\ttext\tcorpus\tunit\tnumber\n"
"""The first line of the table of all lines that findings name."""

REPORT_FILE = OwnFileKind("report of transduce doctor", (GENERATOR, LINES_HEADER))
"""A page, a JSON object or a table of lines, as this module renders them."""

_TEMPLATES = make_templates(Path(__file__).parent)


def make_json(examination: Examination, expectations: Sequence[str] = ()) -> dict[str, Any]:
    """The examination as a JSON object; `expectations` are sentences on what training on the text leads to."""
    return {
        "generator": GENERATOR,
        "is_serious": examination.is_serious,
        "findings": [_describe_finding(examination, finding) for finding in examination.findings],
        "training_estimate": {**asdict(examination.training_estimate), "expectations": list(expectations)},
        "remarks": list(examination.remarks),
        "texts": {figures.text.name: _describe_text(figures) for figures in examination.figures},
    }


def _describe_finding(examination: Examination, finding: Finding) -> dict[str, Any]:
    samples = []
    for sample in finding.shown_samples:
        pairs = [examination.pairs[reference.key] for reference in sample]
        samples.append(
            [
                {
                    **reference.place._asdict(),
                    "source": source,
                    "target": target,
                    "source_marks": source_marks,
                    "target_marks": target_marks,
                }
                for reference, (source, target), (source_marks, target_marks) in zip(
                    sample, pairs, finding.mark(pairs), strict=True
                )
            ]
        )
    return {
        "name": finding.name,
        "severity": finding.severity,
        "text": finding.text.name,
        "summary": finding.summary,
        "advice": finding.advice,
        "num_pairs": finding.num_pairs,
        "share": finding.share,
        "samples": samples,
    }


def _describe_text(figures: TextFigures) -> dict[str, Any]:
    pairing = figures.pairing
    return {
        "num_pairs": len(figures.text),
        "files": [part.name for part in figures.text.parts],
        "quantiles": [*QUANTILES, 1.0],
        "lengths": asdict(figures.lengths),
        "scripts": {one.side: dict(one.shares) for one in figures.scripts},
        "languages": {
            one.side: {"declared": one.declared, "num_sure": one.num_sure, "shares": dict(one.shares)}
            for one in figures.languages
        },
        "tokenizer": figures.tokenizer,
        "tokenization": {
            one.side: {
                "pieces_per_word": one.pieces_per_word,
                "characters_per_piece": one.characters_per_piece,
                "byte_share": one.byte_share,
                "unknown_share": one.unknown_share,
                "too_long": one.too_long,
            }
            for one in figures.tokenization
        },
        "coverage": {
            one.side: {
                "known": one.known,
                "expected": one.expected,
                "most_frequent_unknown": one.most_frequent_unknown,
            }
            for one in figures.coverage
        },
        "leakage": {other: leakage.count() for other, leakage in figures.leakage.items()},
        "near_duplicates": {side: int(near.is_near.sum()) for side, near in figures.near_duplicates.items()},
        "segments": [
            {**figures.text.locate(one.start)._asdict(), "num_pairs": one.end - one.start, "shift": one.shift}
            for one in pairing.segments
        ],
        "mispairing": None
        if pairing.mispairing is None
        else {"num_judged": pairing.mispairing.num_judged, "estimated": pairing.mispairing.estimated},
    }


def list_lines(examination: Examination) -> Iterator[str]:
    """Lines of a table with a tab between columns: every pair that a finding names, by its place."""
    yield LINES_HEADER
    for finding in examination.findings:
        for row in finding.rows.tolist():
            place = finding.text.locate(row)
            yield "\t".join([finding.name, *map(str, place)]) + "\n"


def describe_training_estimate(examination: Examination) -> list[str]:
    """Sentences on how many pairs training keeps, and how many filters would leave out."""
    if is_refused(examination.findings):
        return ["training keeps no pair, as it refuses files that differ in number of lines"]
    estimate = examination.training_estimate
    total = len(examination.figures[0].text)
    filters = ", ".join(f"{name} {count:,}" for name, count in estimate.filters.items())
    return [
        f"training keeps about {estimate.num_kept:,} of {total:,} pairs by its own rules",
        *([f"filters, off by default (data.filters), would leave out: {filters}"] if filters else []),
    ]


def format_summary(examination: Examination, width: int, expectations: Sequence[str] = ()) -> str:
    """The findings as plain text in lines of `width` characters, with a sample each.

    At the end: how many pairs training keeps, and `expectations`, sentences on what it leads to.
    """
    texts = ", ".join(format_count(len(one.text), f"{one.text.name} pair") for one in examination.figures)
    num_serious = sum(finding.severity == "serious" for finding in examination.findings)
    num_minor = len(examination.findings) - num_serious
    lines = [f"{texts}: {format_count(num_serious, 'serious finding')}, {num_minor} minor"]
    for finding in examination.findings:
        lines += ["", f"{finding.severity}: {_name(finding)}, {finding.text.name} text"]
        for paragraph in (f"{finding.summary}.", f"What to do: {finding.advice}."):
            lines += textwrap.wrap(paragraph, width, initial_indent="  ", subsequent_indent="  ")
        for reference in next(iter(finding.shown_samples), ()):
            lines.append(f"    {reference}")
            lines += [_cut(f"      {line}", width) for line in examination.pairs[reference.key]]
    lines.append("")
    for sentence in (*describe_training_estimate(examination), *expectations):
        lines += textwrap.wrap(sentence, width, subsequent_indent="  ", break_on_hyphens=False)
    if examination.remarks:
        lines += ["", *(_cut(f"note: {remark}", 10 * width) for remark in examination.remarks)]
    return "\n".join(lines)


def _name(finding: Finding) -> str:
    return finding.name.replace("_", " ")


def _cut(line: str, width: int) -> str:
    """The line, cut to a width, without characters that would control the terminal."""
    printable = "".join(character if character.isprintable() else "\ufffd" for character in line)
    return printable if len(printable) <= width else f"{printable[: width - 1]}…"


def render_page(examination: Examination, expectations: Sequence[str] = ()) -> str:
    """The report as a page without scripts or external resources, with `expectations` as sentences."""
    return _TEMPLATES.get_template("report.html.j2").render(
        generator=GENERATOR,
        style=read_style(),
        findings=[_show_finding(examination, finding) for finding in examination.findings],
        training=[*describe_training_estimate(examination), *expectations],
        remarks=examination.remarks,
        texts=[_show_text(figures) for figures in examination.figures],
    )


def _show_finding(examination: Examination, finding: Finding) -> dict[str, Any]:
    samples = []
    for sample in finding.shown_samples:
        pairs = [examination.pairs[reference.key] for reference in sample]
        rows = zip(sample, pairs, finding.mark(pairs), strict=True)
        samples.append([(str(reference), *map(_divide_marked, pair, marks)) for reference, pair, marks in rows])
    return {"finding": finding, "title": _name(finding), "text": finding.text.name, "samples": samples}


def _divide_marked(line: str, marks: Sequence[Span]) -> list[tuple[str, bool]]:
    """The line in pieces, each with whether it is marked."""
    limits = [0, *(limit for span in marks for limit in span), len(line)]
    pieces = [(line[start:end], number % 2 == 1) for number, (start, end) in enumerate(pairwise(limits))]
    return [piece for piece in pieces if piece[0]]


def _show_text(figures: TextFigures) -> dict[str, Any]:
    text = figures.text
    words = {side: f"{int(lines.num_words.sum()):,}" for side, lines in text.sides.items()}
    return {
        "name": text.name,
        "files": [part.name for part in text.parts],
        "facts": [("pairs", f"{len(text):,}"), *((f"{side} words", number) for side, number in words.items())],
        "charts": list(_draw_charts(figures)),
        "tables": list(_make_tables(figures)),
    }


def _draw_charts(figures: TextFigures) -> Iterator[str]:
    yield draw_histogram("Length of lines", BIN_WIDTH, count_lengths(figures.text), "words", "lines")
    ratios = count_ratios(figures.text)
    yield draw_histogram("Length of targets", RATIO_BIN, ratios, "% of the source's characters", "pairs")
    if figures.pairing.agreement is not None:
        curves = figures.pairing.curves
        unrelated = float(figures.pairing.agreement.unrelated.mean())
        level = [(line, unrelated) for line, _ in next(iter(curves.values()))]
        series = [Series(name, points) for name, points in [*curves.items(), ("unrelated lines", level)]]
        yield draw_line_chart("Agreement of source and target by their words", series, "pair", "")


def _make_tables(figures: TextFigures) -> Iterator[Table]:
    lengths = figures.lengths
    rows = [
        [f"{unit} of a {side}", *(f"{value:,}" for value in values)]
        for unit, by_side in (("words", lengths.words), ("characters", lengths.characters))
        for side, values in by_side.items()
    ]
    rows.append(["target characters for one of the source", *map(str, lengths.ratio)])
    yield Table("Lengths", ["", *(f"{quantile:.0%} have at most" for quantile in QUANTILES), "most"], rows)
    if figures.languages:
        identified = [
            [
                one.side,
                _list_shares({name_language(code): share for code, share in one.shares.items()}),
                f"{one.num_sure:,}",
            ]
            for one in figures.languages
        ]
        yield Table(
            "Languages, by sentences of a sample that are surely identified",
            ["", "languages", "sentences"],
            identified,
            2,
        )
    scripts = [[one.side, _list_shares(one.shares)] for one in figures.scripts]
    yield Table("Scripts of the words", ["", "scripts"], scripts, 2)
    pieces = [
        [
            one.side,
            f"{one.pieces_per_word:.2f}",
            f"{one.characters_per_piece:.2f}",
            f"{one.byte_share:.2%}",
            f"{one.unknown_share:.2%}",
            f"{one.too_long:.2%}",
        ]
        for one in figures.tokenization
    ]
    heads = ["", "pieces per word", "characters per piece", "bytes", "unknown", "too long lines"]
    yield Table(f"Tokenizer: {figures.tokenizer}", heads, pieces)
    yield from _make_comparisons(figures)


def _make_comparisons(figures: TextFigures) -> Iterator[Table]:
    """Tables of what the text has in common with others."""
    if figures.near_duplicates:
        near = [[f"{side}s", f"{int(one.is_near.sum()):,}"] for side, one in figures.near_duplicates.items()]
        yield Table("Lines that differ from another line by at most one word", ["", "lines"], near)
    if figures.coverage:
        coverage = [
            [
                one.side,
                *(f"{share:.1%}" for share in one.known),
                f"{one.expected:.1%}",
                ", ".join(one.most_frequent_unknown[:5]),
            ]
            for one in figures.coverage
        ]
        heads = ["", "words", "of two words", "of three", "words of such text", "unknown words"]
        yield Table("Share of words and sequences that the training text has", heads, coverage)
    for other, leakage in figures.leakage.items():
        rows = [[name.replace("_", " "), f"{count:,}"] for name, count in leakage.count().items()]
        yield Table(f"Pairs that the {other} text has, too", ["", "pairs"], rows)


def _list_shares(shares: Mapping[str, float]) -> str:
    """The largest shares, as in "English 99.8 %, German 0.2 %"."""
    return ", ".join(f"{name} {share:.1%}" for name, share in list(shares.items())[:5])
