"""A model and its tokenizer: text in, text out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from transduce.bundle import Bundle, find_bundle
from transduce.config import SearchConfig
from transduce.errors import ConfigError, UserError
from transduce.search import Hypothesis
from transduce.text import Tokenizer, segments
from transduce.translation.device import find_device
from transduce.translation.engine import Engine, NativeEngine

LINES_AT_A_TIME = 2048
"""Lines read from a stream before they are translated: enough to find companions of similar length."""

_LINE_ENDS = str.maketrans("\r\n", "  ")


@dataclass(frozen=True)
class Alternative:
    """One translation: its text, and its score, the log-probability in nats divided by the length penalty."""

    text: str
    score: float


@dataclass(frozen=True)
class Translation:
    """The best `alternatives` for one line, best first; a blank line has one, blank.

    `num_parts` is above 1 where the line was too long for the model and was translated in parts.
    """

    alternatives: tuple[Alternative, ...]
    num_parts: int = 1

    @property
    def text(self) -> str:
        """The best alternative's text."""
        return self.alternatives[0].text


class Translator:
    """Translates raw text with an engine, its tokenizer, and the settings of search that came with the model."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, search: SearchConfig, source_language: str = "") -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.search = search
        self.source_language = source_language

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> "Translator":
        """The translator of a bundle, or of a run folder's best bundle.

        Raises:
            BundleError: there is no bundle, or it is damaged.
            ConfigError: the device is not there.
        """
        bundle = Bundle.open(find_bundle(Path(path)))
        tokenizer = bundle.load_tokenizer()
        model = bundle.load_model().to(find_device(device))
        description = bundle.description
        engine = NativeEngine(model, tokenizer.end_id)
        return cls(engine, tokenizer, description.search, description.languages.source)

    def translate(self, texts: Sequence[str], *, beam: int | None = None) -> list[str]:
        """The best translation of each text; `beam` 1 is greedy. A blank text stays blank."""
        return [translation.text for translation in self.translations(texts, beam=beam)]

    def translations(self, texts: Sequence[str], *, beam: int | None = None, num_best: int = 1) -> list[Translation]:
        """The `num_best` best translations of each text, with scores.

        Raises:
            ConfigError: more alternatives are asked for than the beam holds.
            UserError: one text is given instead of a sequence of texts.
        """
        if isinstance(texts, str):
            raise UserError(f"{texts!r} is one text: give a list of texts, as in [{texts!r}]")
        if beam is not None and beam < 1:
            raise ConfigError(f"beam = {beam}: must be at least 1, which is greedy search")
        search = self.search if beam is None else SearchConfig.model_validate({**dict(self.search), "beam": beam})
        if not 1 <= num_best <= search.beam:
            raise ConfigError(f"num_best = {num_best}: must be from 1 to the beam, {search.beam}")
        lengths = map(len, self.tokenizer.encode_all(texts))
        parts = [self._parts(text, num_pieces) for text, num_pieces in zip(texts, lengths, strict=True)]
        sources = self.tokenizer.encode_all([part for text_parts in parts for part in text_parts])
        found = iter(self.engine.search([[*ids, self.tokenizer.end_id] for ids in sources], search, num_best))
        return [self._joined(text_parts, list(islice(found, len(text_parts)))) for text_parts in parts]

    def translate_stream(
        self, lines: Iterable[str], *, beam: int | None = None, num_best: int = 1
    ) -> Iterator[Translation]:
        """The translation of each line of a stream, in order, holding only some thousand lines at a time."""
        waiting = iter(lines)
        while block := list(islice(waiting, LINES_AT_A_TIME)):
            yield from self.translations(block, beam=beam, num_best=num_best)

    def _parts(self, text: str, num_pieces: int) -> list[str]:
        """What of `text` is translated at a time, spaces between included: nothing of a text that shows nothing."""
        if not text.strip() or not num_pieces:
            return []
        if num_pieces <= self.search.max_pieces:
            return [text]

        def fits(part: str) -> bool:
            return len(self.tokenizer.encode(part)) <= self.search.max_pieces

        parts = segments(text, self.source_language, fits)
        return [part for part in parts if part.strip() and self.tokenizer.encode(part)]

    def _joined(self, parts: Sequence[str], found: Sequence[Sequence[Hypothesis]]) -> Translation:
        """The translations of consecutive parts as one; the k-th best of the whole is made of the k-th best of each."""
        if not parts:
            return Translation((Alternative("", 0.0),))
        depth = min(len(hypotheses) for hypotheses in found)
        alternatives = []
        for rank in range(depth):
            # Pieces spell single bytes, too, line ends among them; a translation is one line.
            texts = [self.tokenizer.decode(hypotheses[rank].ids).translate(_LINE_ENDS) for hypotheses in found]
            score = sum(hypotheses[rank].score for hypotheses in found)
            alternatives.append(Alternative(" ".join(text for text in texts if text), score))
        return Translation(tuple(alternatives), len(parts))


def translate(path: str | Path, texts: Sequence[str], *, beam: int | None = None) -> list[str]:
    """The translations of `texts` by the model in `path`; to translate more than once, keep a `Translator`."""
    return Translator.load(path).translate(texts, beam=beam)
