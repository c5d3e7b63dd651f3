"""What becomes of the translation when a head is switched off."""

from collections.abc import Callable, Sequence

import torch

from transduce.inspection.network_parts import Head, HeadOff
from transduce.inspection.passes import forced, log_probabilities
from transduce.inspection.sentence_searches import SentenceSearches

MOST_LOGITS = 2**24
"""Logits that are held at a time when the target is given."""


def without_each_head(
    searches: SentenceSearches, target: Sequence[int], heads: Sequence[Head], say: Callable[[str], None]
) -> list[HeadOff]:
    """The same search without each of the heads, one at a time; and the old `target` (ids) judged so."""
    num_done = 0

    def done(num_more: int) -> None:
        nonlocal num_done
        num_done += num_more
        say(f"{num_done} of {len(heads)} heads switched off, one at a time")

    found = searches.without_each(heads, done)
    of_target = _log_probabilities_of(searches, heads, target)
    before = searches.text(target)
    texts = [searches.text(hypothesis.ids) for hypothesis in found]
    return [
        HeadOff(
            attention=head.attention,
            layer=head.layer,
            head=head.head,
            text=text,
            log_probability=round(sum(hypothesis.token_scores), 6),
            changed=text != before,
            log_probability_of_target=round(log_probability, 6),
        )
        for head, hypothesis, text, log_probability in zip(heads, found, texts, of_target, strict=True)
    ]


def _log_probabilities_of(searches: SentenceSearches, heads: Sequence[Head], target: Sequence[int]) -> list[float]:
    found: list[float] = []
    size = max(1, MOST_LOGITS // (len(target) * searches.model.config.vocabulary))
    for first in range(0, len(heads), size):
        searches.checkpoint()
        chosen = heads[first : first + size]
        target_ids = torch.tensor([list(target)] * len(chosen), device=searches.device)
        switches = searches.switches([[head] for head in chosen])
        outputs = forced(searches.model, searches.source_ids(len(chosen)), target_ids, switches)
        of_all = log_probabilities(searches.model, outputs[-1])
        found += of_all.gather(2, target_ids[:, :, None]).cpu().double().sum(dim=(1, 2)).tolist()
    return found
