"""Beam search and sampling: from a step function to hypotheses.

A step function maps the last ids and a state to the log-probabilities of the next ids. The searches know no model and
no tokenizer, work with a table as well as with a network, and return plain lists of numbers.
"""

from transduce.search.beam import beam_search
from transduce.search.constraints import LogitsProcessor
from transduce.search.interface import (
    BeamStep,
    BestContinuations,
    BestStepFunction,
    Constraints,
    Hypothesis,
    SearchState,
    SearchTask,
    StepFunction,
    length_penalty,
)
from transduce.search.sampling import Sampling, sample_search

__all__ = [
    "BeamStep",
    "BestContinuations",
    "BestStepFunction",
    "Constraints",
    "Hypothesis",
    "LogitsProcessor",
    "Sampling",
    "SearchState",
    "SearchTask",
    "StepFunction",
    "beam_search",
    "length_penalty",
    "sample_search",
]
