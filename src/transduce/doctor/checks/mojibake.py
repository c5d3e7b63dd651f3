"""Mojibake: text in UTF-8 that was read in another encoding, how it is found, and how it is repaired."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Mapping
from functools import cache, partial

_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes 2 to 4 of a character in UTF-8."""

_WINDOWS = _CONTINUATION_BYTES.decode("cp1252", errors="ignore") + _CONTINUATION_BYTES.decode("latin-1")
"""The characters that they become, read as CP1252 or Latin-1."""

_LETTERS = "ŠšŽžŒœŸƒ"
"""Letters among the characters of `_WINDOWS`, which may follow another letter in good text."""

_PUNCTUATION = "\xa0«»“”‘’…–—®©°²³¹ªº·´"
"""Punctuation and signs among them that often follow a letter in good text, as in "Spaß“" and "voilà\xa0»"."""


def _one_of(characters: str, without: str = "") -> str:
    """A pattern for one of some characters."""
    return "[" + re.escape("".join(sorted(set(characters) - set(without)))) + "]"


_ANY = _one_of(_WINDOWS)
_RARE = _one_of(_WINDOWS, without=_LETTERS + _PUNCTUATION)

_MAC = _CONTINUATION_BYTES.decode("mac_roman")
_ANY_MAC = _one_of(_MAC)
_MATHEMATICS = "∞±≤≥≠∂∑∏π∫Ω"
"""Those of MacRoman that stand beside a root and the like in good text."""

_DOS = _CONTINUATION_BYTES.decode("cp850") + _CONTINUATION_BYTES.decode("cp437")
_ANY_DOS = _one_of(_DOS)
_LINES = "".join(character for character in _DOS if "\u2500" <= character <= "\u25ff")
_DOS_LETTER = _one_of(_DOS, without=_LINES)
"""Those of CP850 and CP437 but the ones for drawing tables, which good text has beside each other."""

# The first character comes before all alternatives, so that a search skips all others at once.
MOJIBAKE = re.compile(
    r"[Â-ô√¬ƒ≈‚–—ŒœŸ⁄€◊·‡‰„\uf8ff├┬┼─Γ╨╤ÿ╪┘╬╧╫\xad≡](?:"
    # CP1252 and Latin-1
    rf"(?<=[ÂÃ]){_ANY}|(?<=[Ä-ß])(?:{_RARE}|{_ANY}[Ä-ß]{_ANY})|(?<=[ÄÅ])[{_LETTERS}]"
    rf"|(?<=[à-ï])(?:{_RARE}{_ANY}|{_ANY}{_RARE})|(?<=ð)[Ÿ\x9f]{_ANY}{{2}}"
    # MacRoman: letters with accents, quotation marks and dashes, and other scripts, from two or three letters on
    rf"|(?<=√){_one_of(_MAC, without=_MATHEMATICS)}|(?<=[a-zA-Z]√){_ANY_MAC}|(?<=¬)[†°¢£§•¶ß®©™´¨µªºæø]|(?<=\d¬)∞"
    rf"|(?<=ƒ)[ÄÅÇÉÑÖÜåçôü±†°¢£§•µ]|(?<=≈){_one_of(_MAC, without=_MATHEMATICS + '£¥¢§')}"
    rf"|(?<=‚)(?:Ä[ìîòôúùû†°¢§•¶π∫]|Ç¨|Ñ¢)|(?<=[–—]){_ANY_MAC}(?:[–—]{_ANY_MAC}){{2}}"
    rf"|(?<=[Œœ]){_ANY_MAC}[Œœ]{_ANY_MAC}|(?<=[ÿŸ⁄€]){_ANY_MAC}[ÿŸ⁄€]{_ANY_MAC}|(?<=◊){_ANY_MAC}◊{_ANY_MAC}"
    rf"|(?<=·)[∫ª]{_ANY_MAC}|(?<=‡){_ANY_MAC}{{2}}‡{_ANY_MAC}{{2}}|(?<=\uf8ff)ü"
    rf"|(?<=[‰ÂÊÁËÈ„]){_ANY_MAC}{{2}}[‰ÂÊÁËÈ„]{_ANY_MAC}{{2}}"
    # CP850 and CP437
    rf"|(?<=[├┬┼]){_DOS_LETTER}|(?<=\w├){_ANY_DOS}|(?<=\w─){_DOS_LETTER}|(?<=┬)░"
    rf"|(?<=[ÔΓ])(?:Ç[£ØôöÖÿªÜ¥╗╛]|é¼)|(?<=[ðÐ╨╤]){_ANY_DOS}(?:[ðÐ╨╤]{_ANY_DOS}){{2}}"
    rf"|(?<=[╪┘╬╧╫]){_ANY_DOS}(?:[╪┘╬╧╫]{_ANY_DOS}){{2}}|(?<=[\xad≡])ƒ{_ANY_DOS}{{2}})"
)
"""A character in UTF-8 whose bytes were read as CP1252, Latin-1, MacRoman, CP850 or CP437.

As in "Ã¤", "√§" and "├ñ" for "ä", and "â€™", "‚Äô" and "ÔÇÖ" for "’".
"""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_MAX_TIMES = 3
"""How often in a row a text may have been read in a wrong encoding."""


def repair_encoding(line: str) -> str:
    """Repair letters in UTF-8 that were read as CP1252, Latin-1, MacRoman, CP850 or CP437, also several times in a row.

    Letters of which a byte is lost stay as they are, and so does everything else in the line.
    """
    for _ in range(_MAX_TIMES):
        starts = {found.start() for found in MOJIBAKE.finditer(line)}
        # All letters of a line were read in the same encoding: the one in which most of them have a meaning.
        best = max(_map_to_bytes(), key=partial(_count_meanings, line, starts))
        if not _count_meanings(line, starts, best):
            break
        line = _repair_line(line, best, starts)
    return line


def _count_meanings(line: str, starts: set[int], to_byte: Mapping[str, int]) -> int:
    """How many places have a meaning, and how many of the runs of characters that these are in have one as a whole."""
    # Every place lies within a run.
    ordered = sorted(starts)
    runs = [
        run[0]
        for run in _NOT_ASCII.finditer(line)
        if bisect_left(ordered, run.start()) < bisect_left(ordered, run.end())
    ]
    meanings = [_decode_sequence(line, start, to_byte) for start in starts]
    num_meant = sum(meant is not None for meant in meanings)
    return num_meant and num_meant + sum(_decode(run, to_byte) is not None for run in runs)


def _repair_line(line: str, to_byte: Mapping[str, int], starts: set[int]) -> str:
    """The line with all that has a meaning if it was read in one encoding: where `MOJIBAKE` was found and directly
    behind, and also all characters beyond ASCII that stand beside each other and have a meaning as a whole.
    """
    repaired, end = [], 0
    for run in _NOT_ASCII.finditer(line):
        repaired.append(line[end : run.start()])
        position, end = run.start(), run.end()
        is_repaired = False
        whole = _decode(run[0], to_byte)
        if whole is not None:
            repaired.append(whole)
            continue
        while position < end:
            is_candidate = is_repaired or position in starts
            meant = _decode_sequence(line, position, to_byte) if is_candidate else None
            is_repaired = meant is not None
            repaired.append(line[position] if meant is None else meant)
            position += 1 if meant is None else len(meant.encode())
    return "".join([*repaired, line[end:]])


def _decode_sequence(line: str, start: int, to_byte: Mapping[str, int]) -> str | None:
    """The character in UTF-8 whose first byte became the character at `start`; None if there is none."""
    first = to_byte.get(line[start], 0)
    length = next((length for length, lead in ((2, 0xC2), (3, 0xE0), (4, 0xF0)) if lead <= first < _END[length]), 1)
    return _decode(line[start : start + length], to_byte)


_END = {2: 0xE0, 3: 0xF0, 4: 0xF5}
"""The bytes with which characters of two, three and four bytes begin end before these."""


def _decode(characters: str, to_byte: Mapping[str, int]) -> str | None:
    """What characters mean that were read in an encoding; None if they have no meaning."""
    try:
        meant = bytes(map(to_byte.__getitem__, characters)).decode()
    except (KeyError, UnicodeDecodeError):
        return None
    # Characters for private use and those that do not exist are in no text.
    return None if any(unicodedata.category(character) in {"Cn", "Co"} for character in meant) else meant


@cache
def _map_to_bytes() -> tuple[dict[str, int], ...]:
    """The byte of each character beyond ASCII, for each encoding.

    CP1252 lacks five bytes, which programs read as in Latin-1.
    """
    encodings: list[dict[str, int]] = []
    for encoding in ("cp1252", "mac_roman", "cp850", "cp437"):
        to_byte = {chr(byte): byte for byte in range(0x80, 0x100)} if encoding == "cp1252" else {}
        to_byte |= {bytes([byte]).decode(encoding, "ignore"): byte for byte in range(0x80, 0x100)}
        encodings.append(to_byte)
    return tuple(encodings)
