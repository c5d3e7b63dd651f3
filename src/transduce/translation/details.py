"""What is known of a translated line, for programs."""

from typing import Any

from transduce.bundle import Bundle
from transduce.errors import ConfigError
from transduce.translation.alignment import AlignmentHead, align_pairs
from transduce.translation.confidence import Confidence
from transduce.translation.engine import NativeEngine
from transduce.translation.forced_decoding import ForcedDecoder
from transduce.translation.lines import Line
from transduce.translation.translator import Alternative, Translator


class LineDetails:
    """Tokens, scores and alternatives of a line; alignment and confidence if the bundle is calibrated.

    Raises:
        BundleError: the bundle's calibration is damaged.
        ConfigError: the engine is not the native one, whose attention is read.
    """

    def __init__(self, bundle: Bundle, translator: Translator) -> None:
        self._confidence = Confidence.load(bundle)
        self._head = AlignmentHead.load(bundle)
        if not isinstance(translator.engine, NativeEngine):
            raise ConfigError("details are known of translations by the native engine alone")
        self._decoder = ForcedDecoder(translator.engine.model, translator.tokenizer, translator.search)

    def of(self, line: Line) -> dict[str, Any]:
        """The line as a JSON object."""
        best = line.translation.alternatives[0]
        found: dict[str, Any] = {
            "source": line.source,
            "translation": best.text,
            "score": None if line.how is not None or line.has_failed else best.score,
            "parts": line.translation.num_parts,
            "tokens": _tokens(best),
            "alternatives": [
                {"translation": other.text, "score": other.score} for other in line.translation.alternatives[1:]
            ],
        }
        if line.how is not None:
            found["kept"] = line.how
        if self._head is not None and self._can_be_aligned(line):
            (aligned,) = align_pairs(self._decoder, [(line.source, best.text)], self._head)
            found["alignment"] = str(aligned)
        if self._confidence is not None and best.pieces and not line.has_failed:
            words = self._confidence.words(best.pieces, best.token_scores)
            found["confidence"] = self._confidence.sentence(best.token_scores)
            found["words"] = [{"word": word, "confidence": confidence} for word, confidence in words]
        return found

    def _can_be_aligned(self, line: Line) -> bool:
        """Whether both sides are read as wholes: attention over thousands of positions takes gigabytes."""
        tokenizer, most = self._decoder.tokenizer, min(self._decoder.search.max_pieces, self._decoder.model.longest - 1)
        (target,) = tokenizer.encode_targets([line.translation.text])
        return max(len(tokenizer.encode(line.source)), len(target)) <= most


def _tokens(alternative: Alternative) -> list[dict[str, Any]]:
    pairs = zip(alternative.pieces, alternative.token_scores, strict=True)
    return [{"piece": piece, "log_probability": score} for piece, score in pairs]
