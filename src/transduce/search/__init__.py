"""From a step function to hypotheses.

What is searched is a function from the last ids and a state to the log-probabilities of the next ids: the search
knows no model and no tokenizer, works with a table as well as with a network, and hands back plain lists of numbers.
"""

from transduce.search.beam import beam_search
from transduce.search.constraints import LogitsProcessor
from transduce.search.interface import Constraints, Hypothesis, SearchState, SearchTask, StepFunction, length_penalty
from transduce.search.sampling import Sampling, sample_search

__all__ = [
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
