"""Translations that keep addresses, tags and placeholders, and use the terms of a glossary, whatever the model does.

Whoever translates is asked for what must be kept, and what comes back is verified. Where nothing passes, only the text
between what is kept is translated, part by part, and a part for which nothing passes stays as it is. The worst that can
come out of this is the source with its terms replaced, which keeps everything: so something that does is always found.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from transduce.text import USUAL_KINDS, Glossary, Kind, find_fitting_spans, split_tagged_sentences
from transduce.translation.alternatives import Translation
from transduce.translation.protected_sentence import ConstrainedText, Place, Proposal, ProtectedSentence, replaced

How = Literal["free", "constrained", "in parts", "copied"]

Search = Callable[[Sequence[ConstrainedText]], list[list[Proposal]]]
"""Gives translations of each text, best first. There may be none, and any of them may lack what is required."""

Fits = Callable[[str], bool]
"""Whether the model reads a text, which is without its protected spans, as a whole."""


@dataclass(frozen=True)
class ProtectedTranslation:
    """A translation that keeps what it must, and how it was reached.

    - "free": there was nothing to keep.
    - "constrained": each sentence was translated as a whole.
    - "in parts": of a sentence, only the text between what is kept was translated, and perhaps not all of it.
    - "copied": nothing was translated, as there is no word to translate, or no translation that will do.

    Args:
        text: the translation.
        how: it was reached.
        searched: what was searched for, in order, and put together to be the text; none of what was copied.
        num_parts: above 1 where the line was too long for the model, and was divided.
        is_given_up: whether it was copied though there are words to translate.
    """

    text: str
    how: How
    searched: tuple[Translation, ...] = ()
    num_parts: int = 1
    is_given_up: bool = False


def translate_protected(
    lines: Sequence[str],
    search: Search,
    *,
    kinds: Collection[Kind] = USUAL_KINDS,
    glossary: Glossary | None = None,
    language: str = "",
    fits: Fits = lambda _: True,
) -> list[ProtectedTranslation]:
    """A translation of each line that keeps its protected spans and uses the glossary.

    Each span is there as often as in the source, and no other one, except numbers; tags are in the same order, and
    elements that have words keep some. Each term's target is there in whole words as often as the term, more often only
    where the source has these words, too. Where a span and a term overlap, the longer one counts.

    Sentences with tags between them are translated each by itself (see `transduce.text.segmentation`), and so are
    those of a line with something to keep that is too long for the model.

    Args:
        lines: one text each; a blank one gives "".
        search: translates; called at most twice, each time with all that is to be translated.
        kinds: of spans that are kept; all but numbers unless given.
        glossary: the terms; none unless given.
        language: of the lines; see `transduce.text.sentences`.
        fits: whether the model reads a text as a whole; any unless given.
    """
    divided = [_Line(line, kinds, glossary or Glossary({}), language, fits) for line in lines]
    translations = iter(_translated([sentence for line in divided for sentence in line.sentences], search))
    return [line.joined(list(islice(translations, len(line.sentences)))) for line in divided]


def _translated(sources: Sequence[ProtectedSentence], search: Search) -> list[ProtectedTranslation]:
    """The translation of each sentence by itself."""
    results = [
        ProtectedTranslation(source.copy, "copied", is_given_up=source.has_words(source.body)) for source in sources
    ]

    with_words = [index for index, source in enumerate(sources) if source.has_words(source.body)]
    requests = [sources[index].request(sources[index].body) for index in with_words]
    failed: dict[int, dict[Place, list[Proposal]]] = {}  # sentences, and translations of their parts
    for index, found in zip(with_words, search(requests) if requests else [], strict=True):
        whole = sources[index].whole(found)
        if whole is None:
            failed[index] = {}
        else:
            how: How = "constrained" if sources[index].kept else "free"
            results[index] = ProtectedTranslation(whole.text, how, () if whole.searched is None else (whole.searched,))

    parts = [(index, part) for index in failed for part in sources[index].parts()]
    requests = [sources[index].request(part) for index, part in parts]
    for (index, part), found in zip(parts, search(requests) if requests else [], strict=True):
        failed[index][part] = found
    for index, translations in failed.items():
        in_parts = sources[index].in_parts(translations)
        if in_parts is not None:
            text, searched = in_parts
            results[index] = ProtectedTranslation(text, "in parts", tuple(searched))
    return results


class _Line:
    """A line and the sentences that it is divided into."""

    def __init__(self, text: str, kinds: Collection[Kind], glossary: Glossary, language: str, fits: Fits) -> None:
        self._whole = whole = ProtectedSentence(text, kinds, glossary)
        between_tags = [Place(*place) for place in split_tagged_sentences(text, whole.tags, language)]
        self._places = between_tags
        if whole.kept:  # what is free is divided by whoever translates it
            self._places = [part for place in between_tags for part in _parts(whole, place, language, fits)]
        self._num_parts = 1 + len(self._places) - len(between_tags)
        self.sentences = [whole]
        if len(self._places) > 1:
            self.sentences = [ProtectedSentence(text[slice(*place)], kinds, glossary) for place in self._places]

    def joined(self, translations: Sequence[ProtectedTranslation]) -> ProtectedTranslation:
        """The line with these translations of its sentences."""
        if len(translations) == 1:
            return translations[0]
        texts = [translation.text for translation in translations]
        text = replaced(self._whole.text, dict(zip(self._places, texts, strict=True)))
        pairs = zip(self.sentences, translations, strict=True)
        ways = {translation.how for sentence, translation in pairs if sentence.has_words(sentence.body)}
        if ways <= {"copied"} or not self._whole.will_do(text):
            return ProtectedTranslation(
                self._whole.copy,
                "copied",
                num_parts=self._num_parts,
                is_given_up=self._whole.has_words(self._whole.body),
            )
        searched = tuple(one for translation in translations for one in translation.searched)
        how: How = "constrained" if ways <= {"free", "constrained"} else "in parts"
        return ProtectedTranslation(text, how, searched, self._num_parts)


def _parts(line: ProtectedSentence, place: Place, language: str, fits: Fits) -> list[Place]:
    """A place of a line in parts that fit, as far as that can be."""
    first, last = (bisect_left(line.kept, index, key=lambda item: item.place.start) for index in place)
    kept = [
        (Place(item.place.start - place.start, item.place.end - place.start), item.kind)
        for item in line.kept[first:last]
    ]
    hidden = [one for one, kind in kept if kind != "term"]
    places = find_fitting_spans(line.text[slice(*place)], hidden, [one for one, _ in kept], language, fits)
    return [Place(place.start + start, place.start + end) for start, end in places]
