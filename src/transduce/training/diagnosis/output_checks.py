"""Checks of a model's own translations, and of how they go together with the loss."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from transduce.training.diagnosis.history import RunHistory
from transduce.training.diagnosis.initial_checks import is_foreign
from transduce.training.diagnosis.learning_checks import recent_loss
from transduce.training.reporting.metrics import Line
from transduce.translation import PROBLEMS


def token_f1(hypotheses: Sequence[Sequence[int]], references: Sequence[Sequence[int]]) -> float:
    """F1 of the tokens of all hypotheses against those of their references, regardless of order; from 0 to 1.

    It is compared with the teacher-forced accuracy. Counted position by position, one more word at the beginning would
    make all tokens after it wrong. As a bag of tokens, a healthy translation shares with its reference 0.77 to 1.1
    times as many as are predicted right by teacher forcing, on the demonstration's and on Multi30k's text, as soon as
    the accuracy was above 0.3. With a decoder that sees the token it has to predict, it was at most 0.06 times as many.
    """
    pairs = [
        (Counter(hypothesis), Counter(reference)) for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
    num_common = sum((hypothesis & reference).total() for hypothesis, reference in pairs)
    num_tokens = sum(hypothesis.total() + reference.total() for hypothesis, reference in pairs)
    return 2 * num_common / num_tokens if num_tokens else 1.0


def commonest_share(sources: Sequence[str], translations: Sequence[str]) -> float:
    """Share of different sources that have the most frequent of all translations, from 0 to 1; 0 of a single one."""
    different = dict(zip(sources, translations, strict=True))
    return max(Counter(different.values()).values()) / len(different) if len(different) > 1 else 0.0


def repetition_share(sources: Sequence[str], translations: Sequence[str]) -> float:
    """Share of translations in which the same words or characters come again and again, from 0 to 1."""
    return sum(map(PROBLEMS["repetition"], sources, translations)) / len(sources)


LEARNING = 0.4
"""Teacher-forced accuracy from which a model has learned enough for its own translations to be checked."""

FAR_AHEAD = 0.5
"""Share of the teacher-forced accuracy that the `token_f1` of a model's own translations has to reach."""

ALIKE = 0.5
"""Share of sources with the same translation, from which a model counts as writing one output for everything."""

REPETITIVE = 0.5
"""Share of translations that repeat themselves, from which a model does so. Of a small one on captions (Multi30k, BLEU
32) it was 0.03, of one on news, healthy but young, 0.32 after 1,500 updates."""

NUM_WORSE = 3
"""Validations in a row that have to be worse than the best."""

OVERFITTED = 0.1
"""Nats by which they have to be worse."""

STILL = 0.01
"""Share of the loss by which it falls from one validation to the next while a model still learns."""


def find_one_output(run: RunHistory) -> str | None:
    """Find a model that writes the same for most sources, in two validations in a row, though it is no longer young."""
    last = _mature_validations(run)
    if len(last) < 2 or not all(line.get("commonest_share", 0.0) >= ALIKE for line in last):
        return None
    return (
        f"{last[-1]['commonest_share']:.0%} of the validation text's sources have one and the same translation: the "
        f"model writes what is frequent, whatever it reads. The usual causes: training.learning_rate is too high, "
        f"model.dropout too strong, or most pairs of the training text have the same target"
    )


def find_end_of_one_output(run: RunHistory) -> str | None:
    """Find the end of `find_one_output`."""
    share = run.validations[-1].get("commonest_share", 1.0)
    return (
        f"translations now differ: the most frequent one has {share:.0%} of the sources" if share < ALIKE / 2 else None
    )


def find_repetition(run: RunHistory) -> str | None:
    """Find a model whose translations repeat themselves, in two validations in a row, though it is no longer young."""
    last = _mature_validations(run)
    if len(last) < 2 or not all(line.get("repetition_share", 0.0) >= REPETITIVE for line in last):
        return None
    return (
        f"{last[-1]['repetition_share']:.0%} of the translations repeat themselves. The usual causes: too little "
        f"training (raise training.updates) or too little text; training text with such repetitions. For the time "
        f"being, translate with --guard or --no-repeat-ngram 3"
    )


def find_end_of_repetition(run: RunHistory) -> str | None:
    """Find the end of `find_repetition`."""
    share = run.validations[-1].get("repetition_share", 1.0)
    return f"few translations repeat themselves now: {share:.0%}" if share < REPETITIVE / 2 else None


def find_exposure_bias(run: RunHistory) -> str | None:
    """Find a teacher-forced accuracy far above the `token_f1` of the model's own translations.

    Two validations in a row have to show it, as young models repeat themselves for a while.
    """
    last = run.validations[-2:]
    if len(last) < 2 or not all(map(_is_ahead, last)):
        return None
    return (
        f"{last[-1]['accuracy']:.0%} of the validation text's tokens are predicted right with those before them at "
        f"hand, but the model's own translations have {last[-1]['token_f1']:.0%} of them. The usual causes: in changed "
        f"code, a mask that lets the decoder see the token it has to predict; a tokenizer other than the model's; too "
        f"little training, so that one mistake leads to the next (exposure bias)"
    )


def find_end_of_exposure_bias(run: RunHistory) -> str | None:
    """Find the end of `find_exposure_bias`."""
    last = run.validations[-1]
    if last.get("accuracy", 0.0) < LEARNING or _is_ahead(last):
        return None
    return f"the model's own translations now have {last['token_f1']:.0%} of the references' tokens"


def find_overfitting(run: RunHistory) -> str | None:
    """Find a loss that rises on the validation text and is lower on the training text, while no score improves."""
    if is_foreign(run) or len(run.validations) <= NUM_WORSE:
        return None
    best = min(run.validations, key=lambda line: float(line["loss"]))
    since = [line for line in run.validations if line["update"] > best["update"]]
    is_worse = len(since) >= NUM_WORSE and all(line["loss"] > best["loss"] + OVERFITTED for line in since[-NUM_WORSE:])
    has_improved = any(line.get("is_best") for line in since)
    if not is_worse or has_improved or recent_loss(run.training) > best["loss"]:
        return None
    return (
        f"the model overfits: on the validation text the loss was lowest after update {best['update']:,} "
        f"({best['loss']:.2f}) and is {since[-1]['loss']:.2f} now, on the training text it is "
        f"{recent_loss(run.training):.2f}; no score has improved since. More training will not help: the best model is "
        f"kept in best/. For a better one, raise model.dropout (now {run.config.model.dropout:g}), add text, or choose "
        f"a smaller network"
    )


def find_end_of_overfitting(run: RunHistory) -> str | None:
    """Find the end of `find_overfitting`."""
    if not run.validations[-1].get("is_best"):
        return None
    return f"the validation after update {run.validations[-1]['update']:,} is the best so far"


def _mature_validations(run: RunHistory) -> list[Line]:
    """The last two validations, if the model has learned enough for its translations to be checked; none otherwise.

    It has by its accuracy, or in the second half of the run once the loss hardly falls any more.
    """
    last = run.validations[-2:]
    if len(last) < 2:
        return []
    has_learned = all(line.get("accuracy", 0.0) >= LEARNING for line in last)
    is_late = run.share_done(last[-1]) >= 0.5
    stands_still = all(later["loss"] > (1 - STILL) * line["loss"] for line, later in pairwise(run.validations[-3:]))
    return last if has_learned or (is_late and len(run.validations) > 2 and stands_still) else []


def _is_ahead(line: Line) -> bool:
    accuracy, own = line.get("accuracy", 0.0), line.get("token_f1", 1.0)
    return bool(accuracy >= LEARNING and own < FAR_AHEAD * accuracy)
