"""What is known of a translated line, for programs."""

from collections.abc import Sequence
from typing import Any

from transduce.bundle import Bundle
from transduce.errors import ConfigError
from transduce.translation.alignment import Alignment, AlignmentHead
from transduce.translation.alternatives import Alternative
from transduce.translation.confidence import Confidence
from transduce.translation.engine import NativeEngine
from transduce.translation.forced_decoding import ForcedDecoder
from transduce.translation.line_alignment import align_lines
from transduce.translation.lines import Line
from transduce.translation.translator import Translator


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

    def of_all(self, lines: Sequence[Line]) -> list[dict[str, Any]]:
        """Each line as a JSON object.

        Where protected spans are kept, score, tokens and confidence are those of the translation that they were put
        into, without them; there are none where it was put together of parts of sentences. The alignment is that of the
        line as it stands, in words between spaces. Neither it nor confidence is known of a line that was too long to be
        read as a whole.
        """
        alignments: list[Alignment | None] = [None] * len(lines)
        if self._head is not None:
            alignments = align_lines(self._decoder, lines, self._head)
        return [self._of(line, alignment) for line, alignment in zip(lines, alignments, strict=True)]

    def _of(self, line: Line, alignment: Alignment | None) -> dict[str, Any]:
        best = line.translation.alternatives[0]
        found: dict[str, Any] = {
            "source": line.source,
            "translation": best.text,
            "score": best.score if line.has_score else None,
            **_utility(best),
            "parts": line.translation.num_parts,
            "tokens": _tokens(best),
            "alternatives": [
                {"translation": other.text, "score": other.score, **_utility(other)}
                for other in line.translation.alternatives[1:]
            ],
        }
        if line.how is not None:
            found["kept"] = line.how
        if alignment is not None:
            found["alignment"] = str(alignment)
        is_measured = best.pieces and not line.has_failed and line.translation.num_parts == 1
        if self._confidence is not None and is_measured:
            words = self._confidence.words(best.pieces, best.token_scores)
            found["confidence"] = self._confidence.sentence(best.token_scores)
            found["words"] = [{"word": word, "confidence": confidence} for word, confidence in words]
        return found


def _utility(alternative: Alternative) -> dict[str, float]:
    return {} if alternative.utility is None else {"utility": alternative.utility}


def _tokens(alternative: Alternative) -> list[dict[str, Any]]:
    pairs = zip(alternative.pieces, alternative.token_scores, strict=True)
    return [{"piece": piece, "log_probability": score} for piece, score in pairs]
