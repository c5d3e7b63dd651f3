"""From a step function to hypotheses: greedy and beam search.

What is searched is a function from the last ids and a state to the log-probabilities of the next ids: the search
knows no model and no tokenizer, works with a table as well as with a network, and hands back plain lists of numbers.
"""

from transduce.search.beam import beam_search
from transduce.search.greedy import greedy_search
from transduce.search.hypothesis import Hypothesis, length_penalty
from transduce.search.step import SearchState, StepFunction

__all__ = ["Hypothesis", "SearchState", "StepFunction", "beam_search", "greedy_search", "length_penalty"]
