"""The languages of both sides, by py3langid on a sample, and the scripts of all lines.

py3langid errs on short sentences, and names a language for any text; so conclusions are drawn from many sentences, only
from those it is sure of, and only for languages it knows.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float64

from transduce.config import TAG_PATTERN, TextConfig
from transduce.doctor.corpus.texts import Side, Text
from transduce.doctor.corpus.vocabulary import NO_SCRIPT, Vocabulary
from transduce.doctor.findings import SCORES_AS_WRONG, Finding, format_pairs, grade
from transduce.text.languages import LANGUAGE_NAMES, load_language_identifier, normalize_code, simplify_code

MAX_SENTENCES = 3_000
"""Sentences of a side whose language is identified, chosen at random; each takes 0.15 ms."""

MIN_LETTERS = 20
"""Minimum number of letters of a sentence whose language is identified."""

_SYLLABLE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]")
LETTERS_OF_SYLLABLE = 3
"""Number of letters that a character counts for in scripts whose characters stand for a syllable or a word."""

MAX_CHARACTERS = 300
"""Maximum number of characters of a sentence that py3langid reads."""

MIN_PROBABILITY = 0.9
"""Minimum probability of the language of a sentence for the sentence to count."""

MIN_SURE = 50
"""Minimum number of sentences of a side that count for any conclusion to be drawn."""

MIN_OTHER_LANGUAGE_SHARE = 0.01
"""Minimum share of sentences in one other language for a finding."""

MIN_OTHER_SCRIPT_SHARE = 0.001
"""Minimum share of lines in another script for a finding."""

MIN_MAIN_SCRIPT_SHARE = 0.8
"""Minimum share of a side's words in one script for it to be the main script. The side is then not in a language that
is written in other scripts, whatever the settings say."""

MIN_SCRIPT_WORDS = 50
"""Minimum number of words with letters on a side for any conclusion to be drawn from their script."""

RARE_SCRIPT = 0.05
"""Share of a side's words below which a script counts as rare on that side."""

_TAG = re.compile(rf"({TAG_PATTERN}) ")

_SIMILAR = (
    {"da", "nb", "nn", "no"},
    {"bs", "hr", "sr"},
    {"id", "ms"},
    {"cs", "sk"},
    {"gl", "pt"},
    {"bg", "mk"},
    {"ca", "oc"},
    {"fil", "tl"},
    {"nds", "de"},
    {"xh", "zu"},
    {"zh", "zt", "yue", "wuu"},
    {"pb", "pt"},
    {"ar", "ary", "arz"},
)
"""Groups of languages that py3langid takes for each other."""

_CHINESE_AND_JAPANESE = {"zh", "zt", "yue", "wuu", "ja"}
"""Languages of which short sentences, such as addresses, may have the same characters."""

_SCRIPTS = {
    code: frozenset(scripts.split(" or "))
    for scripts, codes in {
        "Latin": "ace af an bcl br ca cs cy da de en eo es et eu fi fo fr fy ga gcf gcr gd gl guw ht hu id ig is it jv "
        "kik la lb lg lij ln lt ltg lv mg mt nb nl nn no nso oc om pb pcm pl pt qu ro rw se sk sl sn so sq st sv sw tl "
        "tr vec vi vo wa xh yo zu",
        "Cyrillic": "ba bg mk ru uk",
        "Greek": "el grc",
        "Arabic": "ar ary arz fa ps sdh ur",
        "Hebrew": "he hbo",
        "Devanagari": "hi mr ne sa",
        "Bengali": "as bn",
        "Gujarati": "gu",
        "Gurmukhi or Arabic": "pa",
        "Kannada": "kn",
        "Malayalam": "ml",
        "Oriya": "or",
        "Sinhala": "si",
        "Tamil": "ta",
        "Telugu": "te",
        "Thai": "th",
        "Lao": "lo",
        "Khmer": "km",
        "Myanmar": "my",
        "Tibetan": "dz",
        "Georgian": "ka",
        "Armenian": "hy",
        "Ethiopic": "am",
        "Chinese characters or Bopomofo": "wuu yue zh zt",
        "Chinese characters or Hiragana or Katakana": "ja",
        "Hangul or Chinese characters": "ko",
    }.items()
    for code in codes.split()
}
"""The scripts of languages that py3langid knows and that are written in them alone; others may have several."""


@dataclass(frozen=True)
class LanguageShares:
    """The languages of the sentences of one side that py3langid is sure of."""

    text: str
    side: str
    declared: str
    """The language code that the settings give; "" if none."""
    num_sure: int
    """Number of sentences whose language is sure."""
    shares: Mapping[str, float]
    """The share of these sentences in each language, the most frequent language first."""
    rows: Mapping[str, Sequence[int]]
    """For each language, the indices of the pairs that these sentences are from."""
    by_tag: Mapping[str, "LanguageShares"] = field(default_factory=dict)
    """The same for the pairs with each tag, as of their target language; empty unless there are several tags."""

    @property
    def main(self) -> str | None:
        """The language of most sentences; None if too few are sure, or no language is that of more than half."""
        code = next(iter(self.shares), None)
        return code if code is not None and self.num_sure >= MIN_SURE and self.shares[code] > 0.5 else None

    @property
    def has_several_languages(self) -> bool:
        """Whether pairs with different tags are in different languages."""
        mains = [one.main for one in self.by_tag.values() if one.main is not None]
        return any(not are_similar(main, mains[0]) for main in mains)

    @property
    def is_judged(self) -> bool:
        """Whether the declared language is confirmed or refuted: py3langid knows it, and one language prevails."""
        is_known = simplify_code(self.declared) in load_language_identifier().labels
        return self.main is not None and not self.has_several_languages and is_known


def measure_languages(
    text: Text, sample: Iterable[tuple[int, tuple[str, str]]], declared: tuple[str, str]
) -> list[LanguageShares]:
    """Identify the languages of both sides by a sample of pairs with their indices; nothing without py3langid.

    The tag of a pair is that of its corpus, or what its source begins with.
    """
    identifier = load_language_identifier()
    if identifier is None:
        return []
    found: tuple[dict[str, list[int]], ...] = ({}, {})
    tags: dict[int, str] = {}
    for row, pair in sample:
        written = _TAG.match(pair[0])
        tag = text.find_tag(row) or (written[1] if written else "")
        for line, rows in zip((pair[0][written.end() :] if written else pair[0], pair[1]), found, strict=True):
            beginning = line[:MAX_CHARACTERS]
            if _count_letters(beginning) >= MIN_LETTERS:
                code, probability = identifier.classify(beginning)
                if probability >= MIN_PROBABILITY:
                    rows.setdefault(code, []).append(row)
                    tags[row] = tag
    different = sorted({*tags.values()})
    measured = []
    for position, (side, rows) in enumerate(zip(("source", "target"), found, strict=True)):
        by_tag = {}
        for tag in different if len(different) > 1 else []:
            own = {code: [row for row in some if tags[row] == tag] for code, some in rows.items()}
            by_tag[tag] = _share(text, side, declared[position], {code: some for code, some in own.items() if some})
        measured.append(replace(_share(text, side, declared[position], rows), by_tag=by_tag))
    return measured


def _share(text: Text, side: str, declared: str, rows: Mapping[str, Sequence[int]]) -> LanguageShares:
    counts = Counter({code: len(some) for code, some in rows.items()})
    shares = {code: count / counts.total() for code, count in counts.most_common()}
    return LanguageShares(text.name, side, declared, counts.total(), shares, rows)


def _count_letters(line: str) -> int:
    """The number of letters of a line, in which a character for a syllable or a word counts as several."""
    num_letters = sum(map(str.isalpha, line))
    return num_letters if line.isascii() else num_letters + (LETTERS_OF_SYLLABLE - 1) * len(_SYLLABLE.findall(line))


def are_similar(code: str, other: str) -> bool:
    """Whether two languages are the same, or so similar that they are taken for each other."""
    return code == other or any({code, other} <= group for group in _SIMILAR)


def name_language(code: str) -> str:
    """The English name of a language, or its code."""
    return LANGUAGE_NAMES.get(code, code)


def find_wrong_languages(text: Text, measured: Sequence[LanguageShares]) -> Iterator[Finding]:
    """Find sides in another language than declared, swapped sides, and sentences in further languages."""
    if not measured:
        return
    known = set(load_language_identifier().labels)
    declared = [simplify_code(one.declared) for one in measured]
    mains = [one.main for one in measured]
    if any(one.has_several_languages for one in measured):
        yield from _find_wrong_declarations(text, [one for one in measured if not one.has_several_languages])
        # One model for several languages: the settings name one of them at most.
        for tag in measured[0].by_tag:
            yield from _find_other_languages(text, measured, declared, tag)
        return
    if (
        None not in mains
        and all(code in known for code in declared)
        and not are_similar(*declared)
        and are_similar(str(mains[0]), declared[1])
        and are_similar(str(mains[1]), declared[0])
    ):
        names = [name_language(str(code)) for code in mains]
        yield _conclude(
            text,
            "swapped_languages",
            f"the sources are in {names[0]} and the targets in {names[1]}, and the settings say the opposite",
            "swap the two files, or --source-language and --target-language",
        )
        return
    yield from _find_wrong_declarations(text, measured)
    if None not in mains and mains[0] == mains[1] and not (declared[0] and declared[0] == declared[1]):
        yield _conclude(
            text,
            "same_language",
            f"both sides are in {name_language(str(mains[0]))}",
            "give the other language's file as source or as target",
        )
    yield from _find_other_languages(text, measured, declared)


def _find_wrong_declarations(text: Text, measured: Sequence[LanguageShares]) -> Iterator[Finding]:
    known = set(load_language_identifier().labels)
    for one in measured:
        code, main = simplify_code(one.declared), one.main
        if main is not None and code in known and not are_similar(main, code):
            yield _conclude(
                text,
                "wrong_language",
                f"{one.shares[main]:.0%} of the {one.side}s are in {name_language(main)}, and the settings say that "
                f"they are in {name_language(code)}",
                f"give the right file, or the right --{one.side}-language",
            )


def _conclude(text: Text, name: str, summary: str, advice: str) -> Finding:
    return Finding(name=name, severity="serious", text=text, summary=summary, advice=advice, rows=np.arange(len(text)))


def _find_other_languages(
    text: Text, measured: Sequence[LanguageShares], declared: Sequence[str], tag: str | None = None
) -> Iterator[Finding]:
    """Find sentences in languages of neither side: those of the other side are found more exactly by their words.

    Of a text in several languages, only the pairs with the tag `tag` are looked at; "" is for those without one.
    """
    own = measured if tag is None else [one.by_tag[tag] for one in measured]
    place = "" if tag is None else f" with the tag {tag}" if tag else " without a tag"
    expected = {*filter(None, declared), *(one.main for one in own if one.main is not None)}
    for one, whole in zip(own, measured, strict=True):
        for code, share in one.shares.items():
            if one.main is None or any(are_similar(code, other) for other in expected):
                continue
            if {code, one.main} <= _CHINESE_AND_JAPANESE:
                continue
            share_of_text = len(one.rows[code]) / whole.num_sure
            yield Finding(
                name="other_language",
                severity=grade(share_of_text, MIN_OTHER_LANGUAGE_SHARE, 0.1),
                text=text,
                summary=f"about {share:.1%} of the {one.side}s{place} are in {name_language(code)} instead of "
                f"{name_language(one.main)}, by {len(one.rows[code]):,} of {one.num_sure:,} sentences of a sample",
                advice="leave these pairs out: "
                + ("the model would learn to write that language, too" if text.is_training else SCORES_AS_WRONG),
                rows=np.array(one.rows[code]),
                estimated=round(share_of_text * len(text)),
            )


@dataclass(frozen=True)
class ScriptShares:
    """The scripts of the words of one side."""

    text: str
    side: str
    shares: Mapping[str, float]
    """Their shares of the words with letters, the most frequent first."""
    num_words: int
    """Number of words with letters."""

    @property
    def main(self) -> str | None:
        """The script of nearly all words; None if there are too few words, or no script is that of nearly all."""
        script = next(iter(self.shares), None)
        is_clear = (
            script is not None and self.num_words >= MIN_SCRIPT_WORDS and self.shares[script] >= MIN_MAIN_SCRIPT_SHARE
        )
        return script if is_clear else None

    def find_wrong_script(self, code: str) -> str | None:
        """The main script if the language with this code is not written in it; otherwise, or if unknown, None."""
        expected = get_scripts(code)
        return self.main if expected and self.main not in expected else None


def measure_scripts(text: Text, vocabulary: Vocabulary) -> list[ScriptShares]:
    """The scripts of all words of both sides."""
    measured = []
    for name, side in text.sides.items():
        shares = share_scripts(side, vocabulary)
        order = [number for number in np.argsort(-shares, kind="stable").tolist() if shares[number] > 0]
        by_name = {vocabulary.scripts[number]: float(shares[number]) for number in order}
        has_letters = vocabulary.script_of_word != vocabulary.scripts.index(NO_SCRIPT)
        num_words = int(side.count_words(len(vocabulary))[has_letters].sum())
        measured.append(ScriptShares(text.name, name, by_name, num_words))
    return measured


def find_wrong_scripts(
    text: Text, scripts: Sequence[ScriptShares], declared: tuple[str, str], measured: Sequence[LanguageShares]
) -> Iterator[Finding]:
    """Find sides in a script that their language is not written in, where py3langid did not judge.

    Args:
        text: the text.
        scripts: those of both sides.
        declared: the codes of the languages that the settings give; "" if none.
        measured: the languages of both sides; empty if py3langid is not installed.
    """
    for number, (one, code) in enumerate(zip(scripts, declared, strict=True)):
        is_judged = bool(measured) and (measured[number].is_judged or measured[number].has_several_languages)
        script = one.find_wrong_script(code)
        if script is not None and not is_judged:
            language, expected = name_language(simplify_code(code)), get_scripts(code)
            yield _conclude(
                text,
                "wrong_language",
                f"{one.shares[script]:.0%} of the words of the {one.side}s are in the script {script}, and the "
                f"settings say that they are in {language}, whose script is {' or '.join(sorted(expected))}",
                f"give the right file, or the right --{one.side}-language",
            )


def get_scripts(code: str) -> frozenset[str]:
    """The scripts that a language is written in; none if it is unknown, or the code names a script, as "sr-Latn"."""
    has_script = any(len(part) == 4 and part.isalpha() for part in normalize_code(code).split("-")[1:])
    return frozenset() if has_script else _SCRIPTS.get(simplify_code(code), frozenset())


def share_scripts(side: Side, vocabulary: Vocabulary) -> Float64[np.ndarray, " scripts"]:
    """The share of each script among the words with letters."""
    return _share_counts(_count_scripts(side, vocabulary))


def _count_scripts(side: Side, vocabulary: Vocabulary) -> Float64[np.ndarray, " scripts"]:
    """The number of words with letters in each script."""
    counts = np.bincount(
        vocabulary.script_of_word, side.count_words(len(vocabulary)), minlength=len(vocabulary.scripts)
    )
    counts[vocabulary.scripts.index(NO_SCRIPT)] = 0
    return np.asarray(counts, np.float64)


def _share_counts(counts: Float64[np.ndarray, " scripts"]) -> Float64[np.ndarray, " scripts"]:
    return np.asarray(counts / max(1.0, counts.sum()))


def _find_usual_shares(
    training: Text, name: str, vocabulary: Vocabulary, is_trained: Bool[np.ndarray, " pairs"]
) -> Float64[np.ndarray, " scripts"]:
    """The share of each script on a side of the training text; with several tags, where it is the largest."""
    chosen = [is_trained & training.has_tag(tag) for tag in sorted({part.corpus.tag for part in training.parts})]
    side = training.sides[name]
    shares = []
    for own in chosen:
        if 2 * own.sum() > len(own):  # a copy of most of a large text would need much memory
            counts = _count_scripts(side, vocabulary) - _count_scripts(side.select(np.flatnonzero(~own)), vocabulary)
        else:
            counts = _count_scripts(side.select(np.flatnonzero(own)), vocabulary)
        shares.append(_share_counts(counts))
    return np.asarray(np.max(shares, axis=0))


def find_other_scripts(text: Text, training: Text, vocabulary: Vocabulary, config: TextConfig) -> Iterator[Finding]:
    """Find lines in another script than the same side of the training text: most words are in one that is rare there.

    Copies that training leaves out do not count.
    """
    is_trained = ~training.is_exact_copy | (not config.drop_copies)
    if not is_trained.any():  # the copies are what is wrong
        return
    for name, side in text.sides.items():
        shares = _find_usual_shares(training, name, vocabulary, is_trained)
        is_rare = shares < RARE_SCRIPT
        is_rare[vocabulary.scripts.index(NO_SCRIPT)] = False
        num_rare = side.sum_over_words(is_rare[vocabulary.script_of_word])
        num_usual = side.sum_over_words((shares >= RARE_SCRIPT)[vocabulary.script_of_word])
        rows = np.flatnonzero((num_rare > num_usual) & (is_trained if text is training else True))
        share = len(rows) / len(text)
        if len(rows):
            usual = " or ".join(
                script for script, own in zip(vocabulary.scripts, shares, strict=True) if own >= RARE_SCRIPT
            )
            yield Finding(
                name="other_script",
                severity=grade(share, MIN_OTHER_SCRIPT_SHARE, 0.02),
                text=text,
                summary=f"{format_pairs(len(rows), share)} have a {name} in another script than {usual}",
                advice="leave these pairs out if they are in another language",
                rows=rows,
            )
