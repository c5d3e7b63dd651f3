"""The search for translations that have protected spans and terms of a glossary in them."""

from collections.abc import Sequence

from transduce.errors import ConfigError
from transduce.translation.alignment import AlignmentHead, align_pairs
from transduce.translation.engine import NativeEngine
from transduce.translation.forced_decoding import ForcedDecoder
from transduce.translation.projection import with_spans, without_spans
from transduce.translation.protection import ConstrainedText
from transduce.translation.text_constraints import TextConstraints
from transduce.translation.translator import Translation, Translator

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

    def search(self, requests: Sequence[ConstrainedText]) -> list[list[str]]:
        """Translations of each text, best first, that are likely to have what is required; a `protection.Search`."""
        divided = [without_spans(request.text, request.required) for request in requests]
        # What does not stand in the text itself is a term's translation.
        spans = [{span.text for span in removed} for _, removed in divided]
        terms = [
            tuple(phrase for phrase in request.required if phrase not in found)
            for request, found in zip(requests, spans, strict=True)
        ]
        found = self._translations([bare for bare, _ in divided], terms)
        pairs, places = [], []
        for place, ((bare, _), translation) in enumerate(zip(divided, found, strict=True)):
            for best in translation.alternatives:
                if best.score > -float("inf"):
                    pairs.append((bare, best.text))
                    places.append(place)
        texts: list[list[str]] = [[] for _ in requests]
        for place, pair, alignment in zip(places, pairs, align_pairs(self._decoder, pairs, self._head), strict=True):
            texts[place].append(with_spans(pair[1], divided[place][1], alignment))
        return texts

    def _translations(self, texts: Sequence[str], terms: Sequence[tuple[str, ...]]) -> list[Translation]:
        """The best translations of each text with its terms, as many as the beam holds."""
        found: dict[int, Translation] = {}
        wide = self._translator.with_search({"beam": max(BEAM, self._translator.search.beam)})
        for needs_terms, translator in ((False, self._translator), (True, wide)):
            # What is too long to be read as a whole cannot be held to anything.
            chosen = [
                place
                for place, (text, own) in enumerate(zip(texts, terms, strict=True))
                if (bool(own) and self._translator.fits(text)) == needs_terms
            ]
            asked = [TextConstraints(required=terms[place]) for place in chosen] if needs_terms else None
            num_best = translator.search.beam
            results = translator.translations([texts[place] for place in chosen], num_best=num_best, constraints=asked)
            found.update(zip(chosen, results, strict=True))
        return [found[place] for place in range(len(texts))]
