"""A text with its tokens, and what the model thinks of each of them."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.inspection.text_parts import Choice, Side, Step
from transduce.text import Tokenizer
from transduce.translation.confidence.words import score_words

NUM_ALTERNATIVES = 5
"""Tokens that are named for each position."""


def source_side(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> Side:
    """The source as the network reads it."""
    pieces = tokenizer.pieces(ids)
    return Side(
        text=text,
        pieces=pieces,
        ids=list(ids),
        words=word_numbers(pieces),
        log_probabilities=None,
        steps=None,
    )


def target_side(
    text: str, ids: Sequence[int], log_probs: Float[Tensor, "target vocabulary"], tokenizer: Tokenizer
) -> Side:
    """A target, with the log-probabilities of all tokens at each of its positions."""
    pieces = tokenizer.pieces(ids)
    chosen = log_probs.gather(1, torch.tensor(ids, device=log_probs.device)[:, None])
    ranks = (log_probs > chosen).sum(dim=1) + 1
    probabilities = log_probs.exp()
    entropies = torch.special.entr(probabilities.cpu().double()).sum(dim=1)
    best, tokens = probabilities.topk(min(NUM_ALTERNATIVES, probabilities.size(1)), dim=1)
    steps = [
        Step(
            chosen_rank=rank,
            entropy=round(entropy, 6),
            alternatives=[
                Choice(token=token, piece=piece, probability=round(probability, 6))
                for token, piece, probability in zip(row_tokens, tokenizer.pieces(row_tokens), row_best, strict=True)
            ],
        )
        for rank, entropy, row_tokens, row_best in zip(
            ranks.tolist(), entropies.tolist(), tokens.tolist(), best.tolist(), strict=True
        )
    ]
    return Side(
        text=text,
        pieces=pieces,
        ids=list(ids),
        words=word_numbers(pieces),
        log_probabilities=rounded(chosen.squeeze(1).tolist()),
        steps=steps,
    )


def rounded(values: Sequence[float]) -> list[float]:
    """To six places, more than float32 is sure of."""
    return [round(value, 6) for value in values]


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """For each piece the number of the word that it helps to spell; the last piece, `</s>`, has a number of its own.

    Pieces that spell no word at all, as spaces at the end, belong to the word before them.
    """
    # In place of a score every piece brings its own number.
    words = score_words(pieces, [float(place) for place in range(len(pieces))])
    of_piece = {int(place): number for number, (_, places) in enumerate(words) for place in places}
    numbers: list[int] = []
    for place in range(len(pieces)):
        numbers.append(of_piece.get(place, numbers[-1] if numbers else 0))
    if pieces and pieces[-1] == "</s>":
        numbers[-1] = len(words)
    return numbers
