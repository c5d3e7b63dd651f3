"""A guard against models that know every next token and cannot write a sentence."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

LEARNING = 0.4
"""Teacher-forced accuracy below which a model has not learned enough for its own sentences to mean anything."""

FAR_AHEAD = 0.5
"""Share of the teacher-forced accuracy that a model's own sentences have to reach."""


def token_f1(hypotheses: Sequence[Sequence[int]], references: Sequence[Sequence[int]]) -> float:
    """F1 of the tokens of all hypotheses against those of their references, wherever they stand; from 0 to 1.

    It is compared with the teacher-forced accuracy. Position by position, one word more at the beginning would make all
    tokens behind it wrong, and the figure of a good model low; up to the first error, other words for the same would
    end the counting. As a bag of tokens, a healthy translation shares with its reference about as many as are predicted
    right with the reference at hand: 0.77 to 1.1 times as many, in trainings on the demonstration's and on Multi30k's
    text, as soon as the accuracy was above 0.3. With a decoder that sees the token it has to predict, it was at most
    0.06 times as many.
    """
    pairs = [
        (Counter(hypothesis), Counter(reference)) for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
    num_common = sum((hypothesis & reference).total() for hypothesis, reference in pairs)
    num_tokens = sum(hypothesis.total() + reference.total() for hypothesis, reference in pairs)
    return 2 * num_common / num_tokens if num_tokens else 1.0


def warning(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """What to say after the last of these lines of metrics.jsonl; nothing, unless it is the first cause for it.

    The cause is a teacher-forced accuracy far ahead of the `token_f1` of the model's own translations, twice in a row:
    for a moment, young models do repeat themselves.
    """
    scored = [line for line in lines if line["kind"] in {"validation", "average"}]
    ahead = [_is_ahead(line) for line in scored]
    twice = [first and second for first, second in pairwise(ahead)]
    if True not in twice or twice.index(True) < len(twice) - 1:
        return None
    last = scored[-1]
    return (
        f"warning: {last['accuracy']:.0%} of the validation text's tokens are predicted right with those before them "
        f"at hand, but the model's own translations have {last['token_f1']:.0%} of them. The usual causes: in changed "
        f"code, a mask that lets the decoder see the token it has to predict; a tokenizer other than the model's; too "
        f"little training, so that one mistake leads to the next (exposure bias)"
    )


def _is_ahead(line: Mapping[str, Any]) -> bool:
    accuracy, own = line.get("accuracy", 0.0), line.get("token_f1", 1.0)
    return bool(accuracy >= LEARNING and own < FAR_AHEAD * accuracy)
