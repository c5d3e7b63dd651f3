"""A model and its tokenizer: text in, text out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from transduce.bundle import Bundle, Languages, find_bundle
from transduce.config import SearchConfig
from transduce.errors import ConfigError, UserError
from transduce.search import Constraints, Hypothesis, Sampling
from transduce.text import Tokenizer, split_segments
from transduce.translation.allocator import KERNELS_OF_TRANSLATION, keep_few_kernels, keep_freed_memory
from transduce.translation.alternatives import Alternative, Translation, as_line, distinct, verified
from transduce.translation.device import find_device
from transduce.translation.engine import Engine, NativeEngine
from transduce.translation.feasibility import contradictions
from transduce.translation.precision import Precision
from transduce.translation.text_constraints import TextConstraints

_IMPOSSIBLE = Translation((Alternative("", -math.inf),))


class Translator:
    """Translates raw text with an engine, its tokenizer, and the settings of search that came with the model."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        search: SearchConfig,
        source_language: str = "",
        target_language: str = "",
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.search = search
        self.source_language, self.target_language = source_language, target_language

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        precision: Precision = "auto",
        ensemble: Sequence[str | Path] = (),
    ) -> "Translator":
        """The translator of a bundle, or of a run folder's best bundle.

        `precision` is that of all arithmetic: float32 gives the same translation in every batch; auto is what is
        fastest on the device, bfloat16 where it has that in hardware. The models of other bundles with the same
        tokenizer form an `ensemble` with it.

        Raises:
            BundleError: there is no bundle, or it is damaged.
            ConfigError: the device or precision is not there, or tokenizers or languages differ.
        """
        keep_freed_memory()
        keep_few_kernels(KERNELS_OF_TRANSLATION)
        where = find_device(device)
        bundle = Bundle.open(find_bundle(Path(path)))
        tokenizer, description = bundle.load_tokenizer(), bundle.description
        languages = description.languages
        others = [Bundle.open(find_bundle(Path(other))) for other in ensemble]
        for other in others:
            pairs = zip(dict(other.description.languages).values(), dict(languages).values(), strict=True)
            if any(known and expected and known != expected for known, expected in pairs):
                raise ConfigError(
                    f"{other.folder} translates {_named(other.description.languages)}, and {bundle.folder} "
                    f"{_named(languages)}: models of an ensemble must translate between the same languages"
                )
            if other.load_tokenizer().files != tokenizer.files:
                raise ConfigError(
                    f"{other.folder} has another tokenizer than {bundle.folder}: models of an ensemble need the same, "
                    f"so train them with the same text.tokenizer"
                )
        models = [one.load_model().to(where) for one in (bundle, *others)]
        engine = NativeEngine(models[0], tokenizer.end_id, precision, models[1:])
        search = description.search
        for other in others:  # a source must be short enough for all of them
            search = search.changed({"max_pieces": min(search.max_pieces, other.description.search.max_pieces)})
        return cls(engine, tokenizer, search, languages.source, languages.target)

    def with_search(self, settings: Mapping[str, Any]) -> "Translator":
        """The same with other settings of the search, by their names in `SearchConfig`.

        Raises:
            ConfigError: a setting is unknown or has a value that it cannot have.
        """
        search = self.search.changed(settings)
        return Translator(self.engine, self.tokenizer, search, self.source_language, self.target_language)

    def translate(self, texts: Sequence[str], *, beam: int | None = None) -> list[str]:
        """The best translation of each text; `beam` 1 is greedy. A blank text stays blank."""
        return [translation.text for translation in self.translations(texts, beam=beam)]

    def translations(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        num_best: int = 1,
        constraints: Sequence[TextConstraints] | None = None,
    ) -> list[Translation]:
        """The `num_best` best translations of each text, with scores.

        `constraints` are those of each text; where they cannot be kept, the one alternative has the score -inf, at once
        if `check` can tell. Alternatives differ in their texts; there are fewer only where the search has
        found no more.

        Raises:
            ConfigError: more alternatives are asked for than the beam holds.
            UserError: one text is given instead of a sequence of texts, or a text with constraints is too long for the
                model.
        """
        search = self.search if beam is None else self.search.changed({"beam": beam})
        _check_num_best(num_best, search)
        parts = self._parts_of_all(texts)
        if constraints is None:
            joined = self._joined_all(parts, self.engine.search(self._ids(parts), search, _depth(num_best, search)))
            return [replace(one, alternatives=distinct(one.alternatives)[:num_best]) for one in joined]
        for number, text_parts in enumerate(parts, start=1):
            if len(text_parts) > 1:
                raise UserError(
                    f"text {number} is longer than the {self.search.max_pieces} pieces that the model reads at a time, "
                    f"and would be translated in parts: divide it, or ask for nothing in its translation"
                )
        constraints = [wish.as_written(self.tokenizer) for wish in constraints]
        found = self._constrained(parts, constraints, search, num_best)
        failed = [place for place, translation in enumerate(found) if translation.alternatives[0].score == -math.inf]
        if failed:
            chosen = [parts[place] for place in failed], [constraints[place] for place in failed]
            again = self._constrained(*chosen, search, num_best, nowhere_else=True)
            for place, translation in zip(failed, again, strict=True):
                found[place] = translation
        return found

    def _constrained(
        self,
        parts: Sequence[Sequence[str]],
        constraints: Sequence[TextConstraints],
        search: SearchConfig,
        num_best: int,
        *,
        nowhere_else: bool = False,
    ) -> list[Translation]:
        """Translations of texts of one part or none, each verified; see `TextConstraints.as_ids`."""
        wishes = [wish.as_ids(self.tokenizer, nowhere_else=nowhere_else) for wish in constraints]
        is_possible = [self._problem(*both, search) is None for both in zip(constraints, wishes, strict=True)]
        searched = [text_parts if possible else [] for text_parts, possible in zip(parts, is_possible, strict=True)]
        asked = [wish for text_parts, wish in zip(searched, wishes, strict=True) if text_parts]
        # Not all that the search finds have the words that they have the tokens of.
        found = self._joined_all(searched, self.engine.search(self._ids(searched), search, 2 * search.beam, asked))
        return [
            verified(translation, wish, num_best) if possible or not text_parts else _IMPOSSIBLE
            for translation, wish, possible, text_parts in zip(found, constraints, is_possible, parts, strict=True)
        ]

    def check(self, *, num_best: int = 1, constraints: TextConstraints | None = None, num_samples: int = 0) -> None:
        """That the engine has what is asked, and that there can be translations that keep the constraints.

        All this as far as it is known before any translation is looked for.

        Raises:
            ConfigError: constraints contradict each other or the settings of the search, or are longer than the model
                reads, or have characters that it cannot write; more alternatives are asked for than the beam holds; the
                engine does not have something, and is named.
        """
        asked = None if constraints is None else constraints.as_ids(self.tokenizer)
        if constraints is not None and asked is not None:
            problem = self._problem(constraints, asked, self.search)
            if problem is not None:
                raise ConfigError(problem)
        self.engine.check(self.search, asked, num_samples=num_samples)
        if not num_samples:
            _check_num_best(num_best, self.search)

    def _problem(self, wish: TextConstraints, asked: Constraints, search: SearchConfig) -> str | None:
        problems = chain(wish.unwritable(self.tokenizer), contradictions(asked, search, self.tokenizer.decode))
        return next(problems, None)

    def samples(
        self, texts: Sequence[str], num_samples: int, *, sampling: Sampling | None = None, seed: int = 1
    ) -> list[Translation]:
        """`num_samples` translations of each text drawn at random, the same for the same text and seed.

        Raises:
            ConfigError: `num_samples` is below 1.
            UserError: one text is given instead of a sequence of texts.
        """
        parts = self._parts_of_all(texts)
        found = self.engine.sample(self._ids(parts), self.search, num_samples, sampling or Sampling(), seed)
        return self._joined_all(parts, found)

    def fits(self, text: str) -> bool:
        """Whether the model reads the text as a whole."""
        return len(self.tokenizer.encode(text)) <= self.search.max_pieces

    def _parts_of_all(self, texts: Sequence[str]) -> list[list[str]]:
        if isinstance(texts, str):
            raise UserError(f"{texts!r} is one text: give a list of texts, as in [{texts!r}]")
        lengths = map(len, self.tokenizer.encode_all(texts))
        return [self._parts(text, num_pieces) for text, num_pieces in zip(texts, lengths, strict=True)]

    def _parts(self, text: str, num_pieces: int) -> list[str]:
        """What of `text` is translated at a time, spaces between included: nothing of a text that shows nothing."""
        if not text.strip() or not num_pieces:
            return []
        if num_pieces <= self.search.max_pieces:
            return [text]
        language, rest = self.tokenizer.split_language(text)
        parts = split_segments(rest, self.source_language, lambda part: self.fits(language + part))
        return [language + part for part in parts if part.strip() and self.tokenizer.encode(part)]

    def _ids(self, parts: Sequence[Sequence[str]]) -> list[list[int]]:
        sources = self.tokenizer.encode_all([part for text_parts in parts for part in text_parts])
        return [self.tokenizer.as_source(ids) for ids in sources]

    def _joined_all(self, parts: Sequence[Sequence[str]], found: Sequence[Sequence[Hypothesis]]) -> list[Translation]:
        rest = iter(found)
        return [self._joined(list(islice(rest, len(text_parts)))) for text_parts in parts]

    def _joined(self, found: Sequence[Sequence[Hypothesis]]) -> Translation:
        """The translations of consecutive parts as one; the k-th best of the whole is made of the k-th best of each."""
        if not found:
            return Translation((Alternative("", 0.0),))
        depth = min(len(hypotheses) for hypotheses in found)
        alternatives = []
        for rank in range(depth):
            chosen = [hypotheses[rank] for hypotheses in found]
            texts = [as_line(self.tokenizer.decode(hypothesis.ids)) for hypothesis in chosen]
            alternatives.append(
                Alternative(
                    " ".join(text for text in texts if text),
                    sum(hypothesis.score for hypothesis in chosen),
                    tuple(piece for one in chosen for piece in self.tokenizer.pieces(one.ids)),
                    tuple(score for one in chosen for score in one.token_scores),
                )
            )
        return Translation(tuple(alternatives), len(found))


def _named(languages: Languages) -> str:
    return f"{languages.source or '?'} to {languages.target or '?'}"


def _check_num_best(num_best: int, search: SearchConfig) -> None:
    """That a search can find so many.

    Raises:
        ConfigError: the beam holds fewer.
    """
    if not 1 <= num_best <= search.beam:
        raise ConfigError(f"num_best = {num_best}: must be from 1 to the beam, {search.beam}")


def _depth(num_best: int, search: SearchConfig) -> int:
    """Hypotheses to ask for: of several alternatives some may be the same text, so all that a search finishes."""
    return 1 if num_best == 1 else 2 * search.beam


def translate(path: str | Path, texts: Sequence[str], *, beam: int | None = None) -> list[str]:
    """The translations of `texts` by the model in `path`; to translate more than once, keep a `Translator`."""
    return Translator.load(path).translate(texts, beam=beam)
