"""The rules by which training leaves out pairs."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from transduce.config import TextConfig

# Every control character (category Cc) but the tab.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}

# Up to so many pieces, the lengths of two translations say little about each other.
_SHORT = 8


class Cleaner:
    """Decides pair by pair, and counts every decision under the first rule that is broken."""

    def __init__(self, config: TextConfig) -> None:
        self.config = config
        self.counts = dict.fromkeys([*_RULES, "kept"], 0)

    def keeps(self, source: str, target: str, source_pieces: int, target_pieces: int, *, repeats: bool) -> bool:
        """Whether training keeps the pair.

        Args:
            source: the text.
            target: its translation.
            source_pieces: number of pieces of the source, without `</s>`.
            target_pieces: number of pieces of the target, without `</s>`.
            repeats: whether an earlier pair is the same.
        """
        pair = _Pair(source, target, source_pieces, target_pieces, repeats)
        broken = next((rule for rule, breaks in _RULES.items() if breaks(pair, self.config)), "kept")
        self.counts[broken] += 1
        return broken == "kept"


@dataclass(frozen=True)
class _Pair:
    source: str
    target: str
    source_pieces: int
    target_pieces: int
    repeats: bool


def _blank(pair: _Pair, _: TextConfig) -> bool:
    # The tokenizer may drop characters that can be seen, as in a side with nothing but "▁".
    return 0 in (pair.source_pieces, pair.target_pieces) or not (_is_visible(pair.source) and _is_visible(pair.target))


def _is_visible(text: str) -> bool:
    return any(unicodedata.category(character) not in _INVISIBLE for character in text)


def _control_characters(pair: _Pair, _: TextConfig) -> bool:
    return bool(_CONTROL.search(pair.source) or _CONTROL.search(pair.target))


def _copy(pair: _Pair, config: TextConfig) -> bool:
    return config.drop_copies and pair.source.strip() == pair.target.strip()


def _too_long(pair: _Pair, config: TextConfig) -> bool:
    return max(pair.source_pieces, pair.target_pieces) > config.max_pieces


def _ratio(pair: _Pair, config: TextConfig) -> bool:
    shorter, longer = sorted((pair.source_pieces, pair.target_pieces))
    return longer > _SHORT and longer > config.max_ratio * shorter


def _duplicate(pair: _Pair, config: TextConfig) -> bool:
    return config.drop_duplicates and pair.repeats


# In this order; the names stand in reports. Repetitions come last: what they repeat is left out by the same rules.
_RULES: dict[str, Callable[[_Pair, TextConfig], bool]] = {
    "blank": _blank,
    "control_characters": _control_characters,
    "copy": _copy,
    "too_long": _too_long,
    "ratio": _ratio,
    "duplicate": _duplicate,
}
