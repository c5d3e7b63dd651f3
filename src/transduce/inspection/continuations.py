"""What would have followed if another token had been taken."""

from math import inf

from transduce.inspection.sentence_searches import SentenceSearches
from transduce.inspection.sides import rounded
from transduce.inspection.text_parts import Continuation, Side

NUM_CONTINUATIONS = 4
"""Other tokens that are tried at each position."""


def continuations(searches: SentenceSearches, target: Side) -> list[Continuation]:
    """The four most probable other tokens at each position behind the prefix, and greedy search from there."""
    others = [
        (position, choice)
        for position, step in enumerate(target.steps or [])
        if position >= len(searches.prefix)
        for choice in [one for one in step.alternatives if one.token != target.ids[position]][:NUM_CONTINUATIONS]
        if choice.probability > 0
    ]
    found = searches.greedy([(*target.ids[:position], choice.token) for position, choice in others])
    return [
        Continuation(
            position=position,
            token=choice.token,
            piece=choice.piece,
            probability=choice.probability,
            text=searches.text(hypothesis.ids),
            pieces=searches.tokenizer.pieces(hypothesis.ids),
            log_probabilities=rounded(hypothesis.token_scores),
        )
        for (position, choice), hypothesis in zip(others, found, strict=True)
        if hypothesis.score > -inf  # logits_processor may forbid what the prefix itself repeats
    ]
