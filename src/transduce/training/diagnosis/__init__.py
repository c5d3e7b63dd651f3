"""Whether a run is ill: figures of text, model and translations, and the checks that turn them into findings."""

from transduce.training.diagnosis.diagnosis import CHECKS, Diagnosis, new_findings
from transduce.training.diagnosis.history import Finding, History
from transduce.training.diagnosis.output_figures import commonest_share, repetition_share, token_f1
from transduce.training.diagnosis.source_use import SourceProbe, SourceUse
from transduce.training.diagnosis.text_figures import TextFigures, measure_text

__all__ = [
    "CHECKS",
    "Diagnosis",
    "Finding",
    "History",
    "SourceProbe",
    "SourceUse",
    "TextFigures",
    "commonest_share",
    "measure_text",
    "new_findings",
    "repetition_share",
    "token_f1",
]
