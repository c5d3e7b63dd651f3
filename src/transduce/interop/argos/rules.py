"""Where sentences end: rules about the characters around a place, for the splitter inside an Argos package.

A rule is a row of words, one for each of some characters side by side, as in "stop* space starter". A word is the name
of a set in `character_sets`, or a single character, a letter in either case. "!" before a set: the character is not in
it, or there is none, as in front of a text. "*" marks the character that is the last of a sentence, or might be.

Where in doubt nothing ends: two sentences that are translated together lose less than one that is cut in half.
"""

import string
from itertools import product

from transduce.interop.argos.abbreviations import abbreviations

UNKNOWN_BELONGS = ("character", "letter-before", "word-before", "starter")
"""The sets to which a character belongs that is not known: most likely one of a script without capitals."""

_ORDINALS = "be bs cs da de dsb et eu fi fo hr hsb hu is lb lv me nb nn no pl sk sl sr tr"
"""Languages that write a full stop behind the number in "3. Mai"."""

_STOPS = ".!?…‽؟۔।॥።"
_STOPS_OF = {"el": ".!?…;", "hy": ".!?…։"}
_WIDE_STOPS = "。！？｡．"
_QUOTES = "'’‘‚\"“”„«»‹›"
_WIDE_CLOSING = "」』）】》〉”’］｣\"')]"
_DASHES = "-–—"
_FRONT = "#$%&*+<=@_~§€£•"
"""Signs that a sentence may begin with."""


def character_sets(language: str) -> dict[str, frozenset[str]]:
    """All characters that are known, in sets by name.

    Args:
        language: a code without region, as in "de".
    """
    stops = _STOPS_OF.get(language, _STOPS)
    every = [chr(number) for number in range(0x10000)]
    # Georgian has had capitals since Unicode 11, and begins no sentence with one.
    all_letters = [one for one in every if (one.islower() or one.isupper()) and not "\u10d0" <= one <= "\u10ff"]
    digits = [one for one in every if one.isdecimal()]
    signs = set(string.punctuation + _STOPS + stops + _WIDE_STOPS + _QUOTES + _WIDE_CLOSING + _DASHES + _FRONT + "¿¡ ")
    capitals = [letter for letter in all_letters if not letter.islower()]
    sets = {
        "character": [*all_letters, *digits, *signs],
        "space": " ",
        "digit": digits,
        "letter": all_letters,
        "letter-before": [*all_letters, *digits, *"'’/@_"],  # what makes a letter part of something longer
        "word-before": [*all_letters, *digits, *"./@_"],  # and a word, as in the name of a site
        "starter": [*capitals, *digits, *_FRONT],
        "stop": stops,
        "opening": _QUOTES + "([{<¿¡",
        "closing": _QUOTES + ")]}>",
        "apart": _DASHES + "«",  # with a space behind it, as French has it behind its opening quotation mark
        "wide-stop": _WIDE_STOPS,
        "wide-closing": _WIDE_CLOSING,
        "wide-continuing": _WIDE_STOPS + _WIDE_CLOSING + stops,
    }
    return {name: frozenset(characters) for name, characters in sets.items()}


def ends() -> list[str]:
    """The rules by which a sentence ends."""
    last = ["stop*", "stop closing*", "stop closing closing*", "stop closing closing closing*", "stop space »*"]
    next_sentence = [
        "space starter",
        "space opening starter",
        "space opening opening starter",
        "space apart space starter",
    ]
    wide = ["wide-stop*", "wide-stop wide-closing*", "wide-stop wide-closing wide-closing*"]
    return [
        *(f"{one} {other}" for one, other in product(last, next_sentence)),
        # Chinese and Japanese put no space between sentences.
        *(f"{one} !wide-continuing" for one in wide),
    ]


def exceptions(language: str) -> list[str]:
    """The rules by which it does not, whatever the others say.

    Args:
        language: a code without region, as in "de".
    """
    always, before_numbers = abbreviations(language)
    found = [
        "!letter-before letter .*",  # J. S. Bach, z. B., e.g.
        "!character digit .*",  # the first of a numbered list
        "!character digit digit .*",
        "wide-stop wide-closing* と",  # Japanese: 「はい。」と言った
        *(f"{_spelled(word)} .*" for word in always),
        *(f"{_spelled(word)} .* space digit" for word in before_numbers),
    ]
    # In "Nr. 3. Dann", the number belongs to what is in front of it.
    ordinals = ["!. space digit .*", "!. space digit digit .*"]
    return [*found, *ordinals] if language in _ORDINALS.split() else found


def _spelled(abbreviation: str) -> str:
    """The words of a rule for it; a hyphen in front says that it may be the end of a longer word."""
    start, letters = ("letter", abbreviation[1:]) if abbreviation.startswith("-") else ("!word-before", abbreviation)
    return " ".join([start, *letters])
