"""Behaviours on input that is unlike the sentences of a training text: words, several sentences, blank or foreign text.

Translation models are trained on sentences, and outside of them they tend to lose text, to repeat themselves, and to
write fluent sentences that have nothing to do with the input (hallucinations: Lee et al. 2018, Raunak et al. 2021).
Whether such a sentence is a good translation, no rule can tell; these rules find what no good translation has.
"""

import re
import unicodedata
from itertools import islice

from transduce.evaluation.scorecard.behaviour import (
    MAX_MADE_CASES,
    Behaviour,
    Case,
    Judgement,
    SourceText,
    Translations,
)
from transduce.evaluation.scorecard.changed_input import CONSISTENT, compute_chrf
from transduce.evaluation.scorecard.options import DOCUMENT, GUARD
from transduce.pages import choose_evenly
from transduce.text import WITHOUT_SPACES, Tokenizer
from transduce.translation import PROBLEMS
from transduce.translation.confidence.guard import measure_length

NUM_REPETITIONS = 5
"""How often a word is repeated."""

SHORT_RATIO, SHORT_MARGIN = 2, 10
"""A translation of a word is too long above this many times its length and this many characters more: enough for an
article and a compound, or for the seven words that a Turkish verb may need, not for a sentence about it."""

MIN_JOINED_RATIO, MAX_JOINED_RATIO = 0.7, 1.5
"""Bounds of the length of the translation of several sentences or words at once, divided by the total length of their
separate translations."""

LONG_RATIO = 1.5
"""Minimum number of tokens of a long input, as a multiple of those that the model reads at once."""

NUM_LONG_CASES = 3

BLANK = ("", " ", "\t", "\N{NO-BREAK SPACE}\N{EM SPACE}", "\N{ZERO WIDTH SPACE}")

SCRIPTS = {
    "Latin": "Where is the station?",
    "Cyrillic": "Где находится вокзал?",
    "Greek": "Πού είναι ο σταθμός;",
    "Arabic": "أين المحطة؟",
    "Hebrew": "איפה התחנה?",
    "Devanagari": "स्टेशन कहाँ है?",
    "Thai": "สถานีอยู่ที่ไหน",
    "Georgian": "სად არის სადგური?",
    "Ethiopic": "ጣቢያው የት ነው?",
    "Hangul": "역이 어디에 있습니까?",
    "Kana": "えきはどこですか。",
    "Han": "车站在哪里？",
}
"""The same question in the writing of many languages."""

_SENTENCE_END = re.compile(r"[.!?。！？।۔։።][\"'”’»)\]]*$")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def _choose_words(text: SourceText) -> list[str]:
    """Different words of the text, from three letters on."""
    if not text.has_spaces:
        return []
    words = [word.strip(".,;:!?\"'()[]“”„«»…।۔") for sentence in text.sentences for word in sentence.source.split()]
    chosen = [word for word in dict.fromkeys(words) if len(word) > 2 and all(map(_is_of_word, word))]
    return choose_evenly(chosen, MAX_MADE_CASES)


def _is_of_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LM"


def _make_words(text: SourceText) -> list[Case]:
    return [Case(word) for word in _choose_words(text)]


def _make_repeated_words(text: SourceText) -> list[Case]:
    return [Case(" ".join(words), words) for word in _choose_words(text) if (words := (word,) * NUM_REPETITIONS)]


def _judge_word(case: Case, translations: Translations) -> Judgement:
    """The translation is not blank, not much longer than the word, and has no loops."""
    translation = translations[case.text]
    source_length, length = measure_length(case.text), measure_length(translation)
    if PROBLEMS["empty"](case.text, translation):
        return Judgement(0.0, "the translation is blank")
    if PROBLEMS["repetition"](case.text, translation):
        return Judgement(0.0, "the translation repeats itself")
    if length > SHORT_RATIO * source_length + SHORT_MARGIN:
        return Judgement(0.0, f"{length} characters for {source_length}: text is invented")
    return Judgement(1.0)


def join_sentences(sentences: list[str]) -> str:
    """The sentences as one line, with spaces between them if the language has any."""
    return ("" if WITHOUT_SPACES.search(sentences[0]) else " ").join(sentences)


def _list_complete(text: SourceText) -> list[str]:
    """The sentences that end in a full stop, a question mark or an exclamation mark."""
    return [sentence.source for sentence in text.sentences if _SENTENCE_END.search(sentence.source)]


def _make_several_sentences(text: SourceText) -> list[Case]:
    """Cases of two or three neighbouring sentences in turn, as far as the model can read them as a whole."""
    rest, cases = iter(_list_complete(text)), list[Case]()
    while len(parts := list(islice(rest, 2 + len(cases) % 2))) > 1:
        while len(parts) > 1 and not text.translator.fits(join_sentences(parts)):
            parts.pop()
        if len(parts) > 1:
            cases.append(Case(join_sentences(parts), tuple(parts)))
    return choose_evenly(cases, MAX_MADE_CASES)


def _make_long_texts(text: SourceText) -> list[Case]:
    """Sentences from different places, the first after the last, until there is more than the model reads at once."""
    complete, translator = _list_complete(text), text.translator
    sizes = [len(ids) for ids in translator.tokenizer.encode_all(complete)]
    if len(complete) < 2:
        return []
    cases = []
    for start in choose_evenly(range(len(complete)), NUM_LONG_CASES):
        parts, num_tokens = list[str](), 0
        while num_tokens <= LONG_RATIO * translator.search.max_pieces:
            place = (start + len(parts)) % len(complete)
            parts.append(complete[place])
            num_tokens += sizes[place]
        cases.append(Case(join_sentences(parts), tuple(parts)))
    return cases


def _judge_joined(case: Case, translations: Translations) -> Judgement:
    """Compare with the separate translations of the parts; 0 if the length shows that text is missing or invented."""
    translation = translations[case.text]
    expected = join_sentences([translations[part] for part in case.related])
    ratio = len(translation) / max(1, len(expected))
    length = f"{ratio:.0%} of the length of its parts' own translations"
    if PROBLEMS["repetition"](case.text, translation):
        return Judgement(0.0, "the translation repeats itself", expected)
    if ratio < MIN_JOINED_RATIO:
        return Judgement(0.0, f"{length}: text is missing", expected)
    if ratio > MAX_JOINED_RATIO:
        return Judgement(0.0, f"{length}: text is invented", expected)
    score = compute_chrf(translation, expected)
    problem = "" if score >= CONSISTENT else f"chrF {100 * score:.0f} with its parts' own translations"
    return Judgement(score, problem, expected)


def _judge_blank(case: Case, translations: Translations) -> Judgement:
    is_blank = PROBLEMS["empty"]("x", translations[case.text])
    return Judgement(1.0) if is_blank else Judgement(0.0, "text is invented")


def is_unknown(tokenizer: Tokenizer, text: str) -> bool:
    """Whether the vocabulary has no piece with a letter of the text, so that the model has hardly ever read one."""
    pieces = tokenizer.pieces([one for one in tokenizer.encode(text) if one != tokenizer.unknown_id])
    return not any(any(map(str.isalpha, piece)) for piece in pieces if not _BYTE.fullmatch(piece))


def _make_unknown_scripts(text: SourceText) -> list[Case]:
    return [Case(question) for question in SCRIPTS.values() if is_unknown(text.translator.tokenizer, question)]


def _judge_unknown_script(case: Case, translations: Translations) -> Judgement:
    """At least half of the letters are those of the input: all others are invented."""
    letters = [character for character in translations[case.text] if character.isalpha()]
    num_invented = sum(letter not in case.text for letter in letters)
    is_invented = 2 * num_invented > len(letters)
    return Judgement(0.0, "text is invented") if is_invented else Judgement(1.0)


UNUSUAL_INPUT = (
    Behaviour(
        "one word",
        "A single word has a translation that is not blank, does not repeat itself, and is no sentence: at most twice "
        "as long and ten characters more.",
        _make_words,
        _judge_word,
        absence="the language has no spaces between words, or the text no words of three letters",
        option=GUARD,
        has_sentences=False,
    ),
    Behaviour(
        "repeated word",
        "A word that is written five times is translated five times: chrF with five times its own translation, and 0 "
        "if less than 70 % or more than 150 % of its length is there.",
        _make_repeated_words,
        _judge_joined,
        absence="the language has no spaces between words, or the text no words of three letters",
        option=GUARD,
        has_sentences=False,
    ),
    Behaviour(
        "several sentences",
        "Two or three sentences in a line are translated as each is by itself: chrF with their own translations, and 0 "
        "if less than 70 % or more than 150 % of their length is there.",
        _make_several_sentences,
        _judge_joined,
        absence="the text has no two sentences that end in a full stop, a question mark or an exclamation mark",
        option=DOCUMENT,
    ),
    Behaviour(
        "long input",
        "More text in a line than the model reads at once is translated as its sentences are by themselves: chrF with "
        "their own translations, and 0 if less than 70 % or more than 150 % of their length is there.",
        _make_long_texts,
        _judge_joined,
        absence="the text has no two sentences that end in a full stop, a question mark or an exclamation mark",
    ),
    Behaviour(
        "blank input",
        "A line without visible characters stays blank.",
        lambda _: [Case(blank) for blank in BLANK],
        _judge_blank,
        has_sentences=False,
    ),
    Behaviour(
        "unknown script",
        "From text in a script that is not in the vocabulary the model makes no text of its own: at most half of the "
        "letters of the translation are others than those of the input.",
        _make_unknown_scripts,
        _judge_unknown_script,
        absence="the vocabulary has letters of all scripts that are tried",
        has_sentences=False,
    ),
)
"""Behaviours on input that is unlike the sentences of a training text."""
