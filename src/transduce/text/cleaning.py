"""The rules by which training leaves out pairs."""

import re
import unicodedata

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
        rules = ("blank", "control_characters", "copy", "too_long", "ratio", "duplicate")  # their names are in reports
        self.counts = dict.fromkeys([*rules, "kept"], 0)

    def keeps(self, source: str, target: str, source_pieces: int, target_pieces: int, *, repeats: bool) -> bool:
        """Whether training keeps the pair.

        Args:
            source: the text.
            target: its translation.
            source_pieces: number of pieces of the source, without `</s>`.
            target_pieces: number of pieces of the target, without `</s>`.
            repeats: whether an earlier pair is the same.
        """
        decision = self._find_broken_rule(source, target, source_pieces, target_pieces, repeats=repeats) or "kept"
        self.counts[decision] += 1
        return decision == "kept"

    def _find_broken_rule(
        self, source: str, target: str, source_pieces: int, target_pieces: int, *, repeats: bool
    ) -> str | None:
        config = self.config
        shorter, longer = sorted((source_pieces, target_pieces))
        # The tokenizer may drop characters that can be seen, as in a side with nothing but "▁".
        if not (shorter and _is_visible(source) and _is_visible(target)):
            return "blank"
        if _CONTROL.search(source) or _CONTROL.search(target):
            return "control_characters"
        if config.drop_copies and source.strip() == target.strip():
            return "copy"
        if longer > config.max_pieces:
            return "too_long"
        if longer > _SHORT and longer > config.max_ratio * shorter:
            return "ratio"
        # Repetitions come last: what they repeat is left out by the same rules.
        return "duplicate" if config.drop_duplicates and repeats else None


def _is_visible(text: str) -> bool:
    return any(unicodedata.category(character) not in _INVISIBLE for character in text)
