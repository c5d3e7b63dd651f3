"""Terms of a glossary in the place of the words by which a translation renders them.

Where the search requires a term that the model would never write, the term often comes after the end of the sentence,
or beside the word that it should replace: such hypotheses are more probable than those with the term in its place. This
happens with terms that the training text does not have, for which people write glossaries. So the best translation
without the term is taken, and the word in it that is aligned with the term of the source is replaced.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from string import punctuation
from typing import TYPE_CHECKING

from transduce.text import Tokenizer, count_phrase, find_phrase
from transduce.translation.confidence.guard import has_repetition
from transduce.translation.constraints.protection import RequiredTerm, TextRange, replace_places

if TYPE_CHECKING:
    from transduce.translation.confidence.alignment import Alignment, Link

COMPARABLE = 0.75
"""Share of the largest weight from which the weight of another word counts as comparable. Articles and prepositions
before a noun are often aligned with it as well as its translation."""

MAX_LENGTH_RATIO = 1.5
"""How many times as long as the translation with replaced words another one may be before its text seems invented."""


@dataclass(frozen=True)
class Substitution:
    """A translation in which terms stand in the place of other words.

    Args:
        text: the translation with the terms.
        replaced: the rarest word that stood in the place of each.
    """

    text: str
    replaced: tuple[str, ...]

    def is_better_than(self, constrained: str, source: str) -> bool:
        """Whether a translation by a search that required the terms seems to have them beside the words that they
        should replace, or invented words around them.
        """
        keeps_words = any(count_phrase(constrained, word) > count_phrase(self.text, word) for word in self.replaced)
        is_long = len(constrained) > MAX_LENGTH_RATIO * len(self.text)
        return keeps_words or is_long or has_repetition(source, constrained)


def substitute_terms(
    source: str, translation: str, alignment: "Alignment", terms: Sequence[RequiredTerm], tokenizer: Tokenizer
) -> Substitution | None:
    """Write each term in the place of the words that are aligned with it.

    Args:
        source: the text that was translated.
        translation: its translation.
        alignment: the alignment of both.
        terms: the terms, in the order of the source.
        tokenizer: that of the model.

    Returns:
        None if a term is not found in the source, or no word of the translation can be replaced by it.
    """
    source_starts = list(accumulate(map(len, alignment.source), initial=0))
    places = find_words(translation, alignment.target)
    pieces: dict[TextRange, str] = {}
    replaced, done = list[str](), 0
    for term in terms:
        start = next((found for found in find_phrase(source, term.source) if found >= done), None)
        if start is None:
            return None
        done = start + len(term.source)
        first, last = (len("".join(source[:end].split())) for end in (start, done))
        words = {
            number
            for number in range(len(alignment.source))
            if source_starts[number] < last and first < source_starts[number + 1]
        }
        links = [
            link
            for link in alignment.links
            if link.source in words and any(map(str.isalnum, alignment.target[link.target]))
        ]
        if not links:
            return None
        rarest = _find_rarest(links, alignment.target, tokenizer)
        run = _extend(rarest, links)
        place = _trim(translation, TextRange(places[run[0]].start, places[run[-1]].end))
        if any(other.start < place.end and place.start < other.end for other in pieces):
            return None
        pieces[place] = term.target
        replaced.append(translation[slice(*_trim(translation, places[rarest.target]))])
    return Substitution(replace_places(translation, pieces), tuple(replaced))


def _find_rarest(links: Sequence["Link"], words: Sequence[str], tokenizer: Tokenizer) -> "Link":
    """The link of the rarest word among those of comparable weight.

    A word of more pieces is rarer, and of two pieces the one that is later in the vocabulary.
    """
    greatest = max(link.weight for link in links)
    likely = [link for link in links if link.weight >= COMPARABLE * greatest]
    encoded = tokenizer.encode_targets([words[link.target].strip(punctuation) for link in likely])
    ranks = [(len(ids), max(ids, default=0), link.target) for ids, link in zip(encoded, likely, strict=True)]
    return likely[ranks.index(max(ranks))]


def _extend(anchor: "Link", links: Sequence["Link"]) -> range:
    """The words of the translation from the first to the last of those beside `anchor` that are aligned with other
    words of the term.
    """
    others = {link.target for link in links if link.source != anchor.source}
    first = last = anchor.target
    while last + 1 in others:
        last += 1
    while first - 1 in others:
        first -= 1
    return range(first, last + 1)


def find_words(text: str, words: Sequence[str]) -> list[TextRange]:
    """Find the characters of each word in a text; `words` are all or some of its words, in their order."""
    places, end = list[TextRange](), 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        places.append(TextRange(start, end))
    return places


def _trim(text: str, place: TextRange) -> TextRange:
    """A place with a letter or digit, without the signs at both ends, such as quotation marks and a full stop."""
    start, end = place
    while not text[start].isalnum():
        start += 1
    while not text[end - 1].isalnum():
        end -= 1
    return TextRange(start, end)
