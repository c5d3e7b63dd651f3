"""Glossaries: source terms with the translations that they must have."""

import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from transduce.errors import CorpusError, UserError
from transduce.text.corpus import is_one_line, is_visible
from transduce.text.languages import WITHOUT_SPACES
from transduce.text.letter_case import fold_case
from transduce.text.lines import read_lines


class Term(NamedTuple):
    """A term in a text: its characters from `start` up to, but without, `end` must be translated as `target`."""

    start: int
    end: int
    target: str


_CHECKED_EVERY = 1000
"""Characters of a text between two calls of the argument `check_waiting`."""


class Glossary:
    """Source terms with their translations, which are found in a text as whole words, in upper or lower case.

    Of terms that differ only in case, the one spelled as in the text is used; of overlapping terms the leftmost, then
    the longest. A term is found whatever white space is between its words, in either normal form of Unicode, but not
    inflected. In scripts without spaces between words a term may stand anywhere.

    Args:
        targets: the translations of the terms.
        language: code of the language of the terms, by which letters change their case; empty where it is unknown.

    Raises:
        UserError: a term or its translation is blank or invisible, or contains a line end, which no translation does.
    """

    def __init__(self, targets: Mapping[str, str], language: str = "") -> None:
        for source, target in targets.items():
            problem = _find_problem(source, target)
            if problem is not None:
                raise UserError(problem)
        self.targets = dict(targets)
        self._language = language
        self._folded = [_fold_text(source, language).text for source in self.targets]  # in their order
        self._any_case: dict[str, str] = {}
        self._same_case: dict[str, str] = {}
        lengths: dict[str, set[int]] = defaultdict(set)
        for (source, target), folded in zip(self.targets.items(), self._folded, strict=True):
            self._any_case.setdefault(folded, target)
            self._same_case.setdefault(_normalize_text(source), target)
            lengths[folded[0]].add(len(folded))
        # of the terms that begin with a character: few, however many terms there are
        self._lengths = {first: sorted(of_first, reverse=True) for first, of_first in lengths.items()}

    @classmethod
    def read(cls, path: Path) -> "Glossary":
        """The glossary in a file with one term per line: source term, tab, target term; in UTF-8, plain or compressed.

        Blank lines are skipped, and so are spaces around a term.

        Raises:
            CorpusError: a line is not two terms separated by a tab, or a term is invisible or contains a line end; a
                source term has two translations, or there are no terms; see also `read_lines`.
        """
        return cls.from_rows((line.split("\t") for line in read_lines(path)), str(path), "\t")

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[str]], name: str, separator: Literal["\t", ","]) -> "Glossary":
        """The glossary in the lines of a file, each divided into columns by `separator`.

        Args:
            rows: the lines in order; blank ones are skipped, and so are spaces around a term.
            name: what error messages call the file.
            separator: named in error messages.

        Raises:
            CorpusError: as for `read`.
        """
        mark = {"\t": "tab", ",": "comma"}[separator]
        targets: dict[str, str] = {}
        numbers: dict[str, int] = {}
        for number, row in enumerate(rows, start=1):
            terms = [column.strip() for column in row]
            if not any(terms):
                continue
            if len(terms) != 2 or not all(terms):
                raise CorpusError(
                    f"{name}, line {number}: must be a source term, one {mark} and a target term, not "
                    f"{separator.join(row)!r:.80}"
                )
            source, target = terms
            problem = _find_problem(source, target)
            if problem is not None:
                raise CorpusError(f"{name}, line {number}: {problem}")
            if targets.setdefault(source, target) != target:
                raise CorpusError(
                    f"{name}, line {number}: {source!r} has the translation {target!r:.80} here, but "
                    f"{targets[source]!r:.80} in line {numbers[source]}: keep one of them"
                )
            numbers.setdefault(source, number)
        if not targets:
            raise CorpusError(
                f"{name}: contains no terms: give one per line, as a source term, a {mark} and a target term"
            )
        return cls(targets)

    def select_terms(self, texts: Iterable[str], check_waiting: Callable[[], None] = lambda: None) -> dict[str, str]:
        """The source terms that `find_terms` may find in the texts or in parts of them, with their translations.

        Args:
            texts: where terms are looked for.
            check_waiting: is called every thousand characters, and may raise to end the search, as when nobody waits.
        """
        found: set[str] = set()
        for text in texts:
            check_waiting()
            whole = _fold_text(text, self._language)
            for index, character in enumerate(whole.text):
                if index % _CHECKED_EVERY == 0:
                    check_waiting()
                if character in self._lengths and whole.has_border(text, index):
                    for length in self._lengths[character]:
                        written = whole.text[index : index + length]
                        if written in self._any_case:  # all others would fill the memory
                            found.add(written)
        terms = zip(self.targets.items(), self._folded, strict=True)
        return {source: target for (source, target), folded in terms if folded in found}

    def find_terms(self, text: str) -> list[Term]:
        """The terms in `text` from left to right; a source term that stands there twice is found twice."""
        found: list[Term] = []
        if not self.targets:
            return found
        folded, end = _fold_text(text, self._language), 0
        for index, character in enumerate(folded.text):
            if character in self._lengths and folded.has_border(text, index) and folded.places[index] >= end:
                term = self._find_longest_term(text, folded, index)
                if term:
                    found.append(term)
                    end = term.end
        return found

    def _find_longest_term(self, text: str, folded: "_FoldedText", index: int) -> Term | None:
        for length in self._lengths[folded.text[index]]:
            target = self._any_case.get(folded.text[index : index + length])
            if target and index + length <= len(folded.text) and folded.has_border(text, index + length):
                start, end = folded.places[index], folded.places[index + length]
                written = text[start:end]
                same_case = self.targets.get(written) or self._same_case.get(_normalize_text(written))
                return Term(start, end, same_case or target)
        return None


class _FoldedText(NamedTuple):
    """A text without what does not tell terms apart: case, normal forms, and kinds and numbers of spaces.

    Args:
        text: the folded text.
        places: for each index in it, and for its end, where that is in the original; -1 within a character of that.
    """

    text: str
    places: Sequence[int]

    def has_border(self, original: str, index: int) -> bool:
        """Whether a word may begin or end at an index."""
        place = self.places[index]
        return place >= 0 and is_border(original, place)


_SPACES = re.compile(r"\s+")
_PIECES = re.compile(r"\s+|\S+")
_UNFOLDED = re.compile(r"\s\s|[^\S ]|[^\x00-\x7f]")


def _normalize_text(text: str) -> str:
    """Text in normal form D with single spaces."""
    return _SPACES.sub(" ", unicodedata.normalize("NFD", text))


def _fold_text(text: str, language: str) -> _FoldedText:
    """Fold a text: characters as for canonical caseless matching (Unicode Standard, D145), runs of spaces to one."""
    if not _UNFOLDED.search(text):
        return _FoldedText(fold_case(text, language), range(len(text) + 1))
    pieces, places = [], array("q")
    for found in _PIECES.finditer(text):
        piece, start = found[0], found.start()
        if piece.isspace():
            pieces.append(" ")
            places.append(start)
        elif piece.isascii():
            pieces.append(fold_case(piece, language))
            places.extend(range(start, found.end()))
        else:
            for offset, character in _split_characters(piece):
                decomposed = unicodedata.normalize("NFD", character)
                pieces.append(unicodedata.normalize("NFD", fold_case(decomposed, language)))
                places.extend([start + offset, *[-1] * (len(pieces[-1]) - 1)])
    places.append(len(text))
    return _FoldedText("".join(pieces), places)


def _split_characters(word: str) -> Iterator[tuple[int, str]]:
    """Yield each character with the accents behind it, and where it begins."""
    start = 0
    for place in range(1, len(word) + 1):
        if place == len(word) or not unicodedata.combining(word[place]):
            yield start, word[start:place]
            start = place


def _find_problem(source: str, target: str) -> str | None:
    for term in (source, target):
        if not is_visible(term):
            return f"{source!r} and its translation {target!r} must not be blank: leave the term out"
        if not is_one_line(term):
            return (
                f"{source!r} and its translation {target!r} must not contain line ends, as a translation is one line: "
                "remove them"
            )
    return None


def count_phrase(text: str, phrase: str) -> int:
    """The number of occurrences of `phrase` in `text` as whole words, without overlaps."""
    return len(find_phrase(text, phrase))


def find_phrase(text: str, phrase: str) -> list[int]:
    """The start of each occurrence of `phrase` in `text` as whole words."""
    found: list[int] = []
    start = 0
    while (start := text.find(phrase, start)) >= 0:
        if is_border(text, start) and is_border(text, start + len(phrase)):
            found.append(start)
            start += len(phrase)
        else:
            start += 1
    return found


def is_border(text: str, place: int) -> bool:
    """Whether a word may begin or end at `place`: not within a run of letters, digits and accents."""
    if place in (0, len(text)):
        return True
    before, behind = text[place - 1], text[place]
    if not (_is_of_word(before) and _is_of_word(behind)):
        return True
    is_accent = unicodedata.category(behind).startswith("M")
    return not is_accent and bool(WITHOUT_SPACES.match(before) or WITHOUT_SPACES.match(behind))


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
