"""A model and its tokenizer: text in, translations out."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.bundle import Bundle, Languages, find_bundle
from transduce.config import SearchConfig
from transduce.errors import ConfigError, UserError
from transduce.kernels.hardware import MIN_D_MODEL_OF_AMX, Precision, is_surely_cpu
from transduce.kernels.memory import KERNELS_OF_TRANSLATION, keep_few_kernels, keep_freed_memory
from transduce.kernels.native.library import find_library
from transduce.search import Constraints, Hypothesis, Sampling
from transduce.text import Document, Tokenizer, join_segments, split_segments
from transduce.translation.constraints import TextConstraints, find_contradictions
from transduce.translation.engines.compiled_engine import CompiledEngine, CompiledModel
from transduce.translation.engines.engine import Engine, has_inference_model

if TYPE_CHECKING:
    from transduce.translation.confidence.scoring import ForcedDecoder
    from transduce.translation.engines.pytorch_engine import PyTorchEngine

_NOT_IN_A_LINE = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")
"""Control characters, which a terminal would obey, and every line end of Unicode and Python."""


@dataclass(frozen=True)
class TranslationAlternative:
    """One translation of a text, or of its parts.

    Args:
        text: a single line.
        score: log-probability in nats, `</s>` included, divided by the length penalty; of parts, the sum.
        pieces: pieces of all parts, `</s>` included.
        token_scores: the log-probability of each, in nats.
        utility: mean chrF against the other samples, from 0 to 100; None unless samples are ranked by it.
    """

    text: str
    score: float
    pieces: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    utility: float | None = None


@dataclass(frozen=True)
class Translation:
    """The alternatives for one text, best first, or in the order in which they were drawn; a blank text has one, blank.

    `num_parts` is above 1 if the text was too long for the model and was translated in parts.
    """

    alternatives: tuple[TranslationAlternative, ...]
    num_parts: int = 1

    @property
    def text(self) -> str:
        """The best alternative's text."""
        return self.alternatives[0].text


@dataclass(frozen=True)
class EncodedText:
    """A text in token ids, as the engine reads it.

    Args:
        text: the text.
        num_tokens: number of tokens of the whole text, `</s>` included.
        parts: source ids of each separately translated part, `</s>` included; empty for a blank text.
        segments: the text of each part, with the space around it.
        is_whole: whether the model reads the text as a whole.
    """

    text: str
    num_tokens: int
    parts: tuple[list[int], ...]
    segments: tuple[str, ...]
    is_whole: bool


FAILED_TRANSLATION = Translation((TranslationAlternative("", -math.inf),))
"""The result for a text whose constraints cannot be met."""

_MAX_ATTEMPTS = 8
"""Maximum number of searches for a translation that meets its constraints. After each failed one, further token
sequences are forbidden: see `TextConstraints.learn_spellings`."""


@dataclass(eq=False)
class Translator:
    """Translates raw text with an engine, the tokenizer of its model, and settings of the search.

    Texts are given as strings, or as encoded by `encode`, to avoid tokenising twice.
    """

    engine: Engine
    tokenizer: Tokenizer
    search: SearchConfig
    source_language: str = ""
    target_language: str = ""

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        precision: Precision = "auto",
        ensemble: Sequence[str | Path] = (),
        should_keep_weights: bool = True,
    ) -> "Translator":
        """The translator of a bundle, or of a run folder's best bundle.

        Args:
            path: the folder.
            device: cpu, cuda, mps or auto.
            precision: float32 gives the same translation in every batch; int8, too, and is fastest on a CPU, but rounds
                weights to 8 bits. auto is int8 on a CPU if all bundles are in int8; else float32 on a CPU with the
                compiled kernels, unless it has AMX and d_model is at least `MIN_D_MODEL_OF_AMX`; otherwise bfloat16
                if the hardware supports it (see `resolve_precision`), else float32.
            ensemble: other bundles with the same tokenizer, whose probabilities are averaged with the model's.
            should_keep_weights: whether the weights stay in memory beside those packed for compiled kernels, for what
                only PyTorch computes, such as sampling. False: they are then read again, and the bundle must not have
                changed.

        Raises:
            BundleError: there is no bundle, or it is damaged.
            ConfigError: the device or precision is not available, also for this network; or tokenizers or languages
                differ.
        """
        keep_freed_memory()
        keep_few_kernels(KERNELS_OF_TRANSLATION)
        is_on_cpu = is_surely_cpu(device)
        if not is_on_cpu:
            from transduce.kernels.device import find_device  # noqa: PLC0415 - loads PyTorch

            is_on_cpu = find_device(device).type == "cpu"
        bundle = Bundle.open(find_bundle(Path(path)))
        tokenizer, description = bundle.load_tokenizer(), bundle.description
        languages = description.languages
        others = [Bundle.open(find_bundle(Path(other))) for other in ensemble]
        for other in others:
            pairs = zip(dict(other.description.languages).values(), dict(languages).values(), strict=True)
            if any(known and expected and known != expected for known, expected in pairs):
                raise ConfigError(
                    f"{other.folder} translates {_name_languages(other.description.languages)}, and {bundle.folder} "
                    f"translates {_name_languages(languages)}: the models of an ensemble must have the same languages"
                )
            if other.load_tokenizer().files != tokenizer.files:
                raise ConfigError(
                    f"{other.folder} has a different tokenizer than {bundle.folder}: train the models of an ensemble "
                    "with the same text.tokenizer"
                )
        for one in (bundle, *others):
            if precision in {"int8", "bfloat16"} and not has_inference_model(one.model_config):
                raise ConfigError(
                    f"precision {precision!r}: {one.folder} has a network that is computed in float32 alone: choose "
                    "auto or float32"
                )
        are_int8 = all(one.description.precision == "int8" for one in (bundle, *others))
        if precision == "auto" and is_on_cpu:
            precision = "int8" if are_int8 else _choose_precision(bundle)
        compiled = None
        if is_on_cpu and not others:
            compiled = _load_compiled_engine(
                bundle, tokenizer.end_id, precision, should_keep_weights=should_keep_weights
            )
        engine = compiled or _load_pytorch_engine((bundle, *others), tokenizer.end_id, device, precision)
        search = description.search
        for other in others:  # a source must be short enough for all of them
            search = search.with_overrides({"max_pieces": min(search.max_pieces, other.description.search.max_pieces)})
        return cls(engine, tokenizer, search, languages.source, languages.target)

    def make_forced_decoder(self, purpose: str) -> "ForcedDecoder":
        """A decoder for forced decoding of given translations, for their attention and probabilities.

        Raises:
            ConfigError: the engine is not the native one, which `purpose` needs.
        """
        from transduce.translation.confidence.scoring import ForcedDecoder  # noqa: PLC0415 - loads PyTorch
        from transduce.translation.engines.pytorch_engine import find_pytorch_engine  # noqa: PLC0415 - loads PyTorch

        engine = find_pytorch_engine(self.engine)
        if engine is None:
            raise ConfigError(f"{purpose}: needs the native engine, the default, which provides attention weights")
        return ForcedDecoder(engine.model, self.tokenizer, self.search)

    def with_search(self, settings: Mapping[str, Any]) -> "Translator":
        """The translator with other settings of the search, by their names in `SearchConfig`."""
        return replace(self, search=self.search.with_overrides(settings))

    def translate(self, texts: Sequence[str], *, beam: int | None = None) -> list[str]:
        """The best translation of each text; `beam` 1 is greedy. A blank text stays blank."""
        translator = self if beam is None else self.with_search({"beam": beam})
        return [translation.text for translation in translator.find_translations(texts)]

    def repeat_tags(self, document: Document, tag: str = "") -> Document:
        """The document with the language tag that the model needs in front of every sentence, as in ">>de<< ".

        A sentence without one gets that of the sentence before it, and the first one `tag`. What is rebuilt from
        translations has no tags.
        """
        return replace(document, sentences=tuple(self.tokenizer.repeat_tags(document.sentences, tag)))

    def encode(self, texts: Sequence[str | EncodedText]) -> list[EncodedText]:
        """Each text in token ids; a text that is too long for the model is divided into sentences or smaller parts.

        Raises:
            UserError: one text is given instead of a sequence of texts.
        """
        if isinstance(texts, str):
            raise UserError(f"{texts!r} is a single text: give a list of texts, as in [{texts!r}]")
        ids = iter(self.tokenizer.encode_all([text for text in texts if isinstance(text, str)]))
        return [self.encode_ids(text, next(ids)) if isinstance(text, str) else text for text in texts]

    def encode_ids(self, text: str, ids: list[int], fits: Callable[[str], bool] | None = None) -> EncodedText:
        """Encode a text from its ids, without `</s>`; `fits` replaces the method of this name. See `encode`."""
        num_tokens = len(ids) + 1
        language, rest = self.tokenizer.split_tag(text)
        if not rest.strip() or not ids:
            return EncodedText(text, num_tokens, (), (), is_whole=True)
        if len(ids) <= self.search.max_pieces:
            return EncodedText(text, num_tokens, (self.tokenizer.as_source(ids),), (rest,), is_whole=True)
        part_fits = fits or self.fits
        segments = split_segments(rest, self.source_language, lambda part: part != rest and part_fits(language + part))
        encoded = self.tokenizer.encode_all([language + segment for segment in segments])
        # The language is one token; without another one, there is nothing to translate.
        shown = [(part, segment) for part, segment in zip(encoded, segments, strict=True) if len(part) > bool(language)]
        parts = tuple(self.tokenizer.as_source(part) for part, _ in shown)
        return EncodedText(text, num_tokens, parts, tuple(segment for _, segment in shown), is_whole=False)

    def find_translations(
        self,
        texts: Sequence[str | EncodedText],
        *,
        num_best: int = 1,
        constraints: Sequence[TextConstraints] | None = None,
    ) -> list[Translation]:
        """The `num_best` best translations of each text, with scores.

        Alternatives differ in their texts; there are fewer than `num_best` only if the search finds no more. A
        translation with constraints is verified; if it violates them, the search is repeated with stricter ones. If
        they cannot be met, the only alternative of the text has the score -inf; there is no search if `check` detects
        this.

        Raises:
            ConfigError: `num_best` is above the beam.
            UserError: one text is given instead of a sequence of texts, or a text with constraints is too long for the
                model.
        """
        self._check_num_best(num_best)
        encoded = self.encode(texts)
        if constraints is None:
            # Of several alternatives some may be the same text, so all that a search finishes are needed.
            depth = 1 if num_best == 1 else 2 * self.search.beam
            found = self._join_all(encoded, self.engine.search(_flatten(encoded), self.search, depth))
            return [replace(one, alternatives=remove_duplicates(one.alternatives)[:num_best]) for one in found]
        for number, text in enumerate(encoded, start=1):
            if len(text.parts) > 1:
                raise UserError(
                    f"text {number} is longer than the {self.search.max_pieces} pieces that the model reads at once, "
                    "and constraints cannot apply to parts: split it, or remove the constraints"
                )
        waiting = {place: one.as_written(self.tokenizer) for place, one in enumerate(constraints)}
        results: dict[int, Translation] = {}
        for _ in range(_MAX_ATTEMPTS):
            if not waiting:
                break
            found = self._find_constrained([encoded[place] for place in waiting], list(waiting.values()), num_best)
            stricter: dict[int, TextConstraints] = {}
            for (place, own), result in zip(waiting.items(), found, strict=True):
                results[place] = result
                if result.alternatives[0].score == -math.inf:
                    results[place] = replace(result, alternatives=result.alternatives[:1])
                    stricter[place] = own
                    for alternative in result.alternatives:
                        stricter[place] = stricter[place].learn_spellings(self.tokenizer, alternative.pieces)
            waiting = {place: own for place, own in stricter.items() if own != waiting[place]}
        return [results[place] for place in range(len(encoded))]

    def draw_samples(
        self, texts: Sequence[str | EncodedText], num_samples: int, *, sampling: Sampling | None = None, seed: int = 1
    ) -> list[Translation]:
        """`num_samples` translations of each text in the order in which they are drawn at random.

        They are the same for the same text and seed.
        """
        encoded = self.encode(texts)
        found = self.engine.sample(_flatten(encoded), self.search, num_samples, sampling or Sampling(), seed)
        return self._join_all(encoded, found)

    def check(self, *, num_best: int = 1, constraints: TextConstraints | None = None, num_samples: int = 0) -> None:
        """Check that the engine supports the options, and that translations can meet the constraints.

        Only problems that are known before a search are detected.

        Raises:
            ConfigError: constraints contradict each other or the settings of the search, or are longer than the model
                reads, or have characters that it cannot write; `num_best` is above the beam; the engine does not
                support an option; names it.
        """
        in_ids = None if constraints is None else constraints.as_ids(self.tokenizer)
        problem = None if constraints is None or in_ids is None else self._find_problem(constraints, in_ids)
        if problem is not None:
            raise ConfigError(problem)
        self.engine.check(self.search, in_ids, num_samples=num_samples)
        if not num_samples:
            self._check_num_best(num_best)

    def fits(self, text: str) -> bool:
        """Whether the model reads the text as a whole."""
        return len(self.tokenizer.encode(text)) <= self.search.max_pieces

    def _check_num_best(self, num_best: int) -> None:
        if not 1 <= num_best <= self.search.beam:
            raise ConfigError(
                f"num_best = {num_best}: must be from 1 to the beam, {self.search.beam}; for more, raise `beam`"
            )

    def _find_constrained(
        self, texts: Sequence[EncodedText], constraints: Sequence[TextConstraints], num_best: int
    ) -> list[Translation]:
        """Verified translations of texts with at most one part."""
        in_ids = [one.as_ids(self.tokenizer) for one in constraints]
        is_possible = [self._find_problem(*both) is None for both in zip(constraints, in_ids, strict=True)]
        searched = [
            text if possible else replace(text, parts=()) for text, possible in zip(texts, is_possible, strict=True)
        ]
        given = [one for text, one in zip(searched, in_ids, strict=True) if text.parts]
        # Hypotheses may have the tokens of a word without containing the word.
        hypotheses = self.engine.search(_flatten(searched), self.search, 2 * self.search.beam, given)
        return [
            verify_constraints(translation, one, num_best) if possible or not text.parts else FAILED_TRANSLATION
            for translation, one, possible, text in zip(
                self._join_all(searched, hypotheses), constraints, is_possible, texts, strict=True
            )
        ]

    def _find_problem(self, constraints: TextConstraints, in_ids: Constraints) -> str | None:
        unwritable = constraints.find_unwritable(self.tokenizer)
        return next(chain(find_contradictions(in_ids, self.search, self._show), unwritable), None)

    def _show(self, ids: Sequence[int]) -> str:
        """The text of the ids, or the pieces of those that have none."""
        return self.tokenizer.decode(ids) or " ".join(self.tokenizer.pieces(ids))

    def _join_all(self, texts: Sequence[EncodedText], found: Sequence[Sequence[Hypothesis]]) -> list[Translation]:
        rest = iter(found)
        return [self._join(list(islice(rest, len(text.parts))), text.segments) for text in texts]

    def _join(self, found: Sequence[Sequence[Hypothesis]], segments: Sequence[str]) -> Translation:
        """The translations of consecutive parts as one; the k-th best of the whole is made of the k-th best of each."""
        if not found:
            return Translation((TranslationAlternative("", 0.0),))
        alternatives = []
        for parts in zip(*found, strict=False):  # as many as each part has
            texts = [make_single_line(self.tokenizer.decode(hypothesis.ids)) for hypothesis in parts]
            alternatives.append(
                TranslationAlternative(
                    join_segments(segments, texts),
                    sum(hypothesis.score for hypothesis in parts),
                    tuple(piece for one in parts for piece in self.tokenizer.pieces(one.ids)),
                    tuple(score for one in parts for score in one.token_scores),
                )
            )
        return Translation(tuple(alternatives), len(found))


def _choose_precision(bundle: Bundle) -> Precision:
    """The precision for `auto` on a CPU: float32 if compiled kernels compute the model, else left to PyTorch's `auto`.

    With AMX, a model with a d_model of at least `MIN_D_MODEL_OF_AMX` is left to PyTorch, too: its products of large
    matrices in bfloat16 are faster there.
    """
    config, library = bundle.model_config, find_library()
    if library is None or not has_inference_model(config):
        return "auto"
    return "auto" if library.has_amx and config.d_model >= MIN_D_MODEL_OF_AMX else "float32"


def _load_compiled_engine(
    bundle: Bundle, end_id: int, precision: Precision, *, should_keep_weights: bool
) -> CompiledEngine | None:
    """The compiled engine, which searches on a CPU without PyTorch; None if it does not support this model."""
    config = bundle.model_config
    library = find_library() if precision in {"float32", "int8"} and has_inference_model(config) else None
    if library is None:
        return None
    weights = bundle.load_arrays()
    if weights is None:
        return None
    model = CompiledModel(config, weights, library, is_int8=precision == "int8")
    kept = weights if should_keep_weights else None

    def load_pytorch_engine() -> "PyTorchEngine":
        from transduce.bundle.weights import make_model  # noqa: PLC0415 - loads PyTorch
        from transduce.translation.engines.networks import CompiledNetwork  # noqa: PLC0415 - loads PyTorch
        from transduce.translation.engines.pytorch_engine import PyTorchEngine  # noqa: PLC0415 - loads PyTorch

        arrays = bundle.load_arrays() if kept is None else kept
        assert arrays is not None  # noqa: S101 - they could be read before
        network = make_model(config, arrays, str(bundle.folder))
        return PyTorchEngine(network, end_id, precision, network=CompiledNetwork(model))

    return CompiledEngine(model, end_id, load_pytorch_engine)


def _load_pytorch_engine(bundles: Sequence[Bundle], end_id: int, device: str, precision: Precision) -> "PyTorchEngine":
    """The engine of PyTorch with one model, or with an ensemble."""
    from transduce.kernels.device import find_device  # noqa: PLC0415 - loads PyTorch
    from transduce.translation.engines.pytorch_engine import PyTorchEngine  # noqa: PLC0415 - loads PyTorch

    where = find_device(device)
    first, *others = (bundle.load_model().to(where) for bundle in bundles)
    return PyTorchEngine(first, end_id, precision, others)


def translate(path: str | Path, texts: Sequence[str], *, beam: int | None = None) -> list[str]:
    """The translations of `texts` by the model in `path`; to translate more than once, keep a `Translator`."""
    return Translator.load(path).translate(texts, beam=beam)


def make_single_line(text: str) -> str:
    """The text on one line: byte pieces may spell line ends and control characters, which are replaced."""
    return text.translate(_NOT_IN_A_LINE)


def remove_duplicates(alternatives: Iterable[TranslationAlternative]) -> tuple[TranslationAlternative, ...]:
    """The first of the alternatives with each text."""
    of_text: dict[str, TranslationAlternative] = {}
    for alternative in alternatives:
        of_text.setdefault(alternative.text, alternative)
    return tuple(of_text.values())


def verify_constraints(translation: Translation, constraints: TextConstraints, num_best: int) -> Translation:
    """The translation with those alternatives that meet the constraints; if none does, all, with the score -inf.

    A blank text stays blank, whatever the constraints.
    """
    if not translation.alternatives[0].pieces:
        return translation
    met = remove_duplicates(one for one in translation.alternatives if constraints.are_met_by(one.text))
    failed = tuple(replace(one, score=-math.inf) for one in translation.alternatives)
    return replace(translation, alternatives=met[:num_best] or failed)


def _flatten(texts: Sequence[EncodedText]) -> list[list[int]]:
    return [part for text in texts for part in text.parts]


def _name_languages(languages: Languages) -> str:
    return f"{languages.source or '?'} to {languages.target or '?'}"
