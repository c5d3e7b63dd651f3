"""The page of a comparison, which opens from disk: scores, significance, charts, phrases and sentences."""

from collections.abc import Sequence
from pathlib import Path

from transduce.evaluation.analysis import ClassScores, PhraseDifference, SentenceDifference, mark_shared
from transduce.evaluation.comparison import Analysis, Comparison
from transduce.pages import MAX_SERIES, Table, draw_bar_chart, make_templates, read_style, shorten_text
from transduce.storage import OwnFileKind

_TEMPLATES = make_templates(Path(__file__).parent)

_MARK = '<meta name="generator" content="transduce compare">'

COMPARISON_PAGE = OwnFileKind("page of transduce compare", (_MARK,))


def render_comparison(comparisons: Sequence[tuple[Comparison, Analysis]], *, is_training_counted: bool) -> str:
    """One page for the comparisons of the same systems on one test set each, without scripts or external resources.

    Args:
        comparisons: each with what `analyse` found.
        is_training_counted: whether frequencies of words are those of the training text, and not of the references.
    """
    where = "the training text" if is_training_counted else "the references"
    return _TEMPLATES.get_template("comparison.html.j2").render(
        title=" and ".join(one.output.system for one in comparisons[0][0].systems),
        style=read_style(),
        mark=_MARK,
        test_sets=[_describe(comparison, analysis, where) for comparison, analysis in comparisons],
    )


def _describe(comparison: Comparison, analysis: Analysis, where: str) -> dict[str, object]:
    systems = [one.output.system for one in comparison.systems]
    return {
        "name": comparison.test_set.name,
        "size": comparison.size,
        "notes": comparison.notes,
        "verdicts": comparison.verdicts,
        "scores": comparison.tabulate(),
        "signatures": [(score.metric, score.signature) for score in comparison.systems[0].scores],
        "charts": [
            _draw("BLEU by length", analysis.by_length, systems, "words of the reference", "BLEU"),
            _draw("Words by frequency", analysis.by_frequency, systems, f"times in {where}", "F1, %"),
        ],
        "tables": [
            _tabulate("BLEU by words of the reference", "words", "sentences", analysis.by_length, systems),
            _tabulate(
                f"F1 of words by how often they are in {where}", "times", "words", analysis.by_frequency, systems
            ),
        ],
        "baseline": systems[0],
        "pairs": [
            {
                "system": pair.system,
                "phrases": [
                    _tabulate_phrases(
                        f"Phrases that {pair.system} has right more often", systems[0], pair.system, pair.better_phrases
                    ),
                    _tabulate_phrases(
                        f"Phrases that {systems[0]} has right more often", systems[0], pair.system, pair.worse_phrases
                    ),
                ],
                "sentences": [
                    (f"Sentences that {pair.system} translates better", list(map(_show, pair.better_sentences))),
                    (f"Sentences that {systems[0]} translates better", list(map(_show, pair.worse_sentences))),
                ],
            }
            for pair in analysis.pairs
        ],
    }


def _draw(title: str, found: ClassScores, systems: Sequence[str], x_label: str, y_label: str) -> str:
    if len(systems) > MAX_SERIES:
        title = f"{title}, first {MAX_SERIES} systems"
    shown = dict(list(zip(systems, found.values, strict=True))[:MAX_SERIES])
    return draw_bar_chart(title, found.names, shown, x_label, y_label)


def _tabulate(caption: str, name: str, counted: str, found: ClassScores, systems: Sequence[str]) -> Table:
    rows = [
        [class_name, f"{count:,}", *(f"{values[index]:.1f}" for values in found.values)]
        for index, (class_name, count) in enumerate(zip(found.names, found.counts, strict=True))
    ]
    return Table(caption, [name, counted, *systems], rows)


def _tabulate_phrases(caption: str, baseline: str, system: str, found: Sequence[PhraseDifference]) -> Table:
    rows = [[one.phrase, f"{one.total:,}", f"{one.baseline:,}", f"{one.value:,}"] for one in found]
    return Table(caption, ["phrase", "in the references", f"right in {baseline}", f"right in {system}"], rows)


def _show(found: SentenceDifference) -> dict[str, object]:
    source, baseline, output, *references = map(
        shorten_text, (found.source, found.baseline, found.output, *found.references)
    )
    return {
        "line": f"{found.line:,}",
        "source": source,
        "references": references,
        "outputs": [
            (mark_shared(baseline, references), f"{found.baseline_score:.1f}"),
            (mark_shared(output, references), f"{found.score:.1f}"),
        ],
    }
