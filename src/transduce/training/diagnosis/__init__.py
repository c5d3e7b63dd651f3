"""Diagnosis of a run: figures of text, model and translations, and the checks that turn them into findings."""

from transduce.training.diagnosis.diagnosis import CHECKS, Diagnosis, new_findings
from transduce.training.diagnosis.history import Finding, RunHistory
from transduce.training.diagnosis.initial_checks import TextFigures, measure_text
from transduce.training.diagnosis.learning_checks import SourceProbe, SourceUse
from transduce.training.diagnosis.output_checks import commonest_share, repetition_share, token_f1

__all__ = [
    "CHECKS",
    "Diagnosis",
    "Finding",
    "RunHistory",
    "SourceProbe",
    "SourceUse",
    "TextFigures",
    "commonest_share",
    "measure_text",
    "new_findings",
    "repetition_share",
    "token_f1",
]
