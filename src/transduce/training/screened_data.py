"""Preparation of a run's text, after the checks of `transduce doctor` that need no tokenizer."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Int64

from transduce.config import DataConfig, TextConfig
from transduce.data import PreparedData, prepare
from transduce.doctor import Finding, screen_text
from transduce.text import ParallelCorpus


def prepare_screened(
    data: DataConfig,
    text: TextConfig,
    cache: Path,
    *,
    standard_input: BinaryIO | None = None,
    recorded_digests: Mapping[str, str] | None = None,
    report: Callable[[str], None],
) -> PreparedData:
    """Prepare text with `transduce.data.prepare`, without the pairs that `data.filters` leave out.

    If the prepared data does not exist yet, and `data.examine` is true, serious findings are reported, too.
    """
    screen = partial(_screen, data, text, report) if data.examine or data.filters else None
    return prepare(
        data,
        text,
        cache,
        standard_input=standard_input,
        recorded_digests=recorded_digests,
        screen=screen,
        report=report,
    )


def _screen(
    data: DataConfig,
    text: TextConfig,
    report: Callable[[str], None],
    training: Sequence[tuple[str, ParallelCorpus]],
    validation: tuple[str, ParallelCorpus] | None,
) -> Mapping[str, Int64[np.ndarray, " rows"]]:
    screening = screen_text(training, validation, text, data.filters, data.languages, report=report)
    if data.examine:
        for sentence in _describe_findings(screening.findings, data.filters):
            report(sentence)
    return screening.filtered


def _describe_findings(findings: Sequence[Finding], filters: Sequence[str]) -> list[str]:
    """Sentences on serious findings about text that training uses, and how to see all of them."""
    serious = [
        finding
        for finding in findings
        if finding.severity == "serious" and not (finding.text.name == "training" and finding.name in filters)
    ]
    if not serious:
        return []
    sentences = [f"warning: in the {one.text.name} text: {one.summary}. What to do: {one.advice}." for one in serious]
    return [*sentences, "`transduce doctor` with the same text shows samples, and lesser findings."]
