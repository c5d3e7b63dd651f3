"""The search for translations that have protected spans and terms of a glossary in them."""

import math
from collections.abc import Sequence
from dataclasses import replace

from transduce.errors import ConfigError
from transduce.text import find_protected_spans, find_whole
from transduce.translation.alignment import AlignmentHead, align_pairs
from transduce.translation.alternatives import Translation
from transduce.translation.engine import NativeEngine
from transduce.translation.forced_decoding import ForcedDecoder
from transduce.translation.projection import with_spans, without_spans
from transduce.translation.protected_sentence import ConstrainedText, Place, Proposal, replaced
from transduce.translation.text_constraints import TextConstraints, spelled
from transduce.translation.translator import Translator

BEAM = 8
"""Hypotheses at least, where terms are required: stages of a translation share the beam out."""


class SpanKeeper:
    """Translates what `protection` asks for: spans are put in by alignment, terms are required of the search.

    Raises:
        ConfigError: the engine is not the native one, whose attention is read.
    """

    def __init__(self, translator: Translator, head: AlignmentHead | None = None) -> None:
        engine = translator.engine
        if not isinstance(engine, NativeEngine):
            raise ConfigError("spans and terms are kept in translations by the native engine alone")
        self._translator = translator
        self._decoder = ForcedDecoder(engine.model, translator.tokenizer, translator.search)
        self._head = head or AlignmentHead(engine.model.config.num_decoder_layers - 1)

    def using(self, translator: Translator) -> "SpanKeeper":
        """The same with other settings of the search."""
        return SpanKeeper(translator, self._head)

    def fits(self, text: str) -> bool:
        """Whether the model reads a text, whose spans may be spaces, as a whole; a `protection.Fits`."""
        return self._translator.fits(" ".join(text.split()))

    def search(self, requests: Sequence[ConstrainedText]) -> list[list[Proposal]]:
        """Translations of each text, best first, that are likely to have what is required; a `protection.Search`."""
        divided = [without_spans(request.text, request.spans) for request in requests]
        found = self._translations([bare for bare, _ in divided], requests)
        proposals: list[list[Proposal]] = [[] for _ in requests]
        places, pairs = [], []
        for place, ((bare, removed), translation) in enumerate(zip(divided, found, strict=True)):
            for best in translation.alternatives:
                is_found = best.score > -math.inf
                if is_found and (not removed or self._decoder.fits(bare, best.text)):
                    proposals[place].append(Proposal(best.text, replace(translation, alternatives=(best,))))
                    if removed:
                        places.append((place, len(proposals[place]) - 1))
                        pairs.append((bare, best.text))
        alignments = align_pairs(self._decoder, pairs, self._head)
        for (place, rank), alignment in zip(places, alignments, strict=True):
            proposal = proposals[place][rank]
            text = with_spans(proposal.text, divided[place][1], alignment)
            proposals[place][rank] = replace(proposal, text=text)
        return [
            [replace(one, text=self._as_in_glossary(one.text, request)) for one in found]
            for request, found in zip(requests, proposals, strict=True)
        ]

    def _as_in_glossary(self, text: str, request: ConstrainedText) -> str:
        """The text with terms as the glossary writes them, where translations spell them otherwise."""
        waiting: dict[str, list[str]] = {}
        for term in request.terms:
            spelling = spelled(self._translator.tokenizer, term)
            if spelling is not None and spelling != term:
                waiting.setdefault(spelling, []).append(term)
        for spelling, terms in waiting.items():
            spans = find_protected_spans(text, {span.kind for span in request.spans})
            places = [Place(start, start + len(spelling)) for start in find_whole(text, spelling)]
            free = [
                place
                for place in places
                if not any(span.start < place.end and place.start < span.end for span in spans)
            ]
            text = replaced(text, dict(zip(free, terms, strict=False)))
        return text

    def _translations(self, texts: Sequence[str], requests: Sequence[ConstrainedText]) -> list[Translation]:
        """The best translation of each text; if something must be in it, as many as the beam holds.

        Terms are not required at first: often they are there anyway. What is too long to be read as a whole cannot be
        held to anything.
        """
        search = self._translator.search
        found: dict[int, Translation] = {}
        for keeps, num_best in ((False, 1), (True, search.beam)):
            places = [place for place, one in enumerate(requests) if bool(one.spans or one.terms) == keeps]
            results = self._translator.translations([texts[place] for place in places], num_best=num_best)
            found.update(zip(places, results, strict=True))
        tokenizer = self._translator.tokenizer
        asked = [TextConstraints(required=request.terms).as_written(tokenizer) for request in requests]
        lacking = [
            place
            for place in range(len(requests))
            if not asked[place].are_met_by(found[place].text) and self._translator.fits(texts[place])
        ]
        wide = self._translator.with_search({"beam": max(BEAM, search.beam)})
        chosen, held = [texts[place] for place in lacking], [asked[place] for place in lacking]
        found.update(zip(lacking, wide.translations(chosen, num_best=wide.search.beam, constraints=held), strict=True))
        return [found[place] for place in range(len(texts))]
