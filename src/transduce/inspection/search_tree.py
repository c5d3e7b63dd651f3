"""The beam search as a tree (paper 6.1)."""

from transduce.inspection.document import Node, SearchTree
from transduce.inspection.search_trace import TracedSearch
from transduce.inspection.sentence_searches import SentenceSearches
from transduce.search import Hypothesis, length_penalty


def search_tree(traced: TracedSearch, greedy: Hypothesis, searches: SentenceSearches) -> SearchTree:
    """What a search has looked at, and the way that greedy search takes through it."""
    alpha = searches.config.length_penalty
    pieces = searches.tokenizer.pieces([one.token for one in traced.traced])
    nodes = [
        Node(
            id=number,
            parent=one.parent,
            step=one.step,
            token=one.token,
            piece=piece,
            log_probability=round(one.log_probability, 6),
            sum=round(one.sum, 6),
            score=round(one.sum / length_penalty(one.step, alpha), 6),
            state=one.state,
        )
        for number, (one, piece) in enumerate(zip(traced.traced, pieces, strict=True))
    ]
    ends = [traced.path(hypothesis.ids)[-1] for hypothesis in traced.finished]
    return SearchTree(
        beam=searches.config.beam,
        length_penalty=alpha,
        nodes=nodes,
        ranking=[end for end in ends if end is not None],
        greedy=traced.path(greedy.ids),
    )
