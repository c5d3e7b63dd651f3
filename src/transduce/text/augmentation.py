"""Augmentation: training pairs are changed at random, so that the model also translates text in capitals, without a
full stop, or with typing errors.
"""

import random
import re
from collections.abc import Sequence

from transduce.config import TAG_PATTERN, TextConfig
from transduce.text.corpus import Pair
from transduce.text.letter_case import to_lower_case, to_upper_case

_TAG = re.compile(rf"{TAG_PATTERN} ")
_CLAUSE_END = re.compile(r"[,;:](?=\s)")
_FINAL_MARK = re.compile(r"[.!?。！？।۔؟…]+\s*$")

LETTERS_PER_ERROR = 25
"""Letters of a source for each typing error; there is at least one."""


def augment_pairs(
    pairs: Sequence[Pair], config: TextConfig, seed: int, languages: tuple[str, str] = ("", "")
) -> list[Pair]:
    """Change random pairs, as many as the shares `config.augment_...` say; a pair may be changed in several ways.

    Tags in front of sources stay. Targets are changed like their sources, but have no typing errors. `languages` are
    the codes of source and target, by which the letter i changes its case (`has_dotless_i`). The same arguments give
    the same pairs in every process.
    """
    chance = random.Random(seed)  # noqa: S311 - not for security
    return [_augment(pair, config, chance, languages) for pair in pairs]


def _augment(pair: Pair, config: TextConfig, chance: random.Random, languages: tuple[str, str]) -> Pair:
    tag = match[0] if (match := _TAG.match(pair[0])) else ""
    source, target = pair[0][len(tag) :], pair[1]
    # All numbers are drawn for every pair, so that one setting does not decide what another one changes.
    clauses, mark, case, errors = (chance.random() for _ in range(4))
    if clauses < config.augment_clauses:
        source, target = cut_clauses(source, target, chance)
    if mark < config.augment_missing_marks:
        source, target = drop_final_marks(source, target)
    if case < config.augment_upper_case:
        source, target = map(to_upper_case, (source, target), languages)
    elif case < config.augment_upper_case + config.augment_lower_case:
        source, target = map(to_lower_case, (source, target), languages)
    if errors < config.augment_typing_errors:
        source = make_typing_errors(source, chance)
    return tag + source, target


def cut_clauses(source: str, target: str, chance: random.Random) -> Pair:
    """Cut both sides of a pair at the same comma, semicolon or colon, if both have the same ones in the same order.

    One without text before it, as at the beginning of a line, is not chosen.
    """
    ends, others = (list(_CLAUSE_END.finditer(side)) for side in (source, target))
    if [end[0] for end in ends] != [end[0] for end in others]:
        return source, target
    clauses = [(source[: end.start()], target[: other.start()]) for end, other in zip(ends, others, strict=True)]
    clauses = [pair for pair in clauses if all(side.strip() for side in pair)]
    return clauses[chance.randrange(len(clauses))] if clauses else (source, target)


def drop_final_marks(source: str, target: str) -> Pair:
    """Both sides without their final full stop, question or exclamation mark, if both have one and text before it."""
    without = _FINAL_MARK.sub("", source), _FINAL_MARK.sub("", target)
    have_mark = without[0] != source and without[1] != target
    return without if have_mark and all(side.strip() for side in without) else (source, target)


def make_typing_errors(line: str, chance: random.Random) -> str:
    """The line with typing errors: letters left out, typed twice, exchanged with the next, or replaced."""
    letters = list(line)
    places = [at for at, letter in enumerate(letters) if letter.isalpha()]
    if len(places) < 2:
        return line
    for at in chance.sample(places, max(1, len(places) // LETTERS_PER_ERROR)):
        kind = chance.randrange(4)
        if kind == 0:
            letters[at] = ""
        elif kind == 1:
            letters[at] *= 2
        elif kind == 2 and at + 1 < len(letters) and letters[at + 1].isalpha():
            letters[at], letters[at + 1] = letters[at + 1], letters[at]
        else:
            letters[at] = chance.choice([line[place] for place in places])
    return "".join(letters)
