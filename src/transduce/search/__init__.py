"""Beam search and sampling: from a step function to hypotheses.

A step function maps the last ids and a state to the log-probabilities of the next ids. The searches are independent of
model and tokenizer, work with a table as well as with a network, and return plain lists of numbers.
"""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.search.beam import SearchState, StepFunction, beam_search
    from transduce.search.constraints import LogitsProcessor
    from transduce.search.hypothesis import Hypothesis, length_penalty
    from transduce.search.sampling import sample_search
    from transduce.search.task import Constraints, Sampling, SearchTask
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.search.beam": "SearchState StepFunction beam_search",
            "transduce.search.constraints": "LogitsProcessor",
            "transduce.search.hypothesis": "Hypothesis length_penalty",
            "transduce.search.sampling": "sample_search",
            "transduce.search.task": "Constraints Sampling SearchTask",
        },
    )

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
