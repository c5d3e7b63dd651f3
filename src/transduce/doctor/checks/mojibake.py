"""Mojibake: text in UTF-8 that was read in another encoding, how it is found, and how it is repaired."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Mapping
from functools import cache, partial

_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes 2 to 4 of a character in UTF-8."""

_WINDOWS = _CONTINUATION_BYTES.decode("cp1252", errors="ignore") + _CONTINUATION_BYTES.decode("latin-1")
"""The characters that these bytes become if they are read as CP1252 or Latin-1."""

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
"""Mathematical signs of MacRoman, which stand beside the signs √ and ≈ in good text."""

_DOS = _CONTINUATION_BYTES.decode("cp850") + _CONTINUATION_BYTES.decode("cp437")
_ANY_DOS = _one_of(_DOS)
_LINES = "".join(character for character in _DOS if "\u2500" <= character <= "\u25ff")
_DOS_LETTER = _one_of(_DOS, without=_LINES)
"""Pattern for characters of CP850 and CP437, except those for drawing tables: they are side by side in good text."""

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
"""Maximum number of times in a row that a text may have been read in a wrong encoding."""


def repair_encoding(line: str) -> str:
    """Repair letters in UTF-8 that were read as CP1252, Latin-1, MacRoman, CP850 or CP437, also several times in a row.

    Letters of which a byte is lost stay as they are, and so does everything else in the line.
    """
    for _ in range(_MAX_TIMES):
        starts = {found.start() for found in MOJIBAKE.finditer(line)}
        # All letters of a line were read in the same encoding: the one whose bytes are UTF-8 in most places.
        best = max(_map_to_bytes(), key=partial(_count_decodable, line, starts))
        if not _count_decodable(line, starts, best):
            break
        line = _repair_line(line, best, starts)
    return line


def _count_decodable(line: str, starts: set[int], to_byte: Mapping[str, int]) -> int:
    """How well `to_byte` fits a line: the number of `starts` at which the bytes are UTF-8, plus, if there are any, the
    number of whole runs of characters beyond ASCII around them whose bytes are UTF-8.
    """
    ordered = sorted(starts)
    runs = [
        run[0]
        for run in _NOT_ASCII.finditer(line)
        if bisect_left(ordered, run.start()) < bisect_left(ordered, run.end())
    ]
    num_decoded = sum(_decode_sequence(line, start, to_byte) is not None for start in starts)
    return num_decoded and num_decoded + sum(_decode(run, to_byte) is not None for run in runs)


def _repair_line(line: str, to_byte: Mapping[str, int], starts: set[int]) -> str:
    """Decode the parts of a line whose bytes are UTF-8: whole runs of characters beyond ASCII where possible, otherwise
    single characters that begin at one of `starts` or directly behind another repaired character.
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
            decoded = _decode_sequence(line, position, to_byte) if is_candidate else None
            is_repaired = decoded is not None
            repaired.append(line[position] if decoded is None else decoded)
            position += 1 if decoded is None else len(decoded.encode())
    return "".join([*repaired, line[end:]])


def _decode_sequence(line: str, start: int, to_byte: Mapping[str, int]) -> str | None:
    """The character whose bytes in UTF-8 became the characters from `start` on; None if the bytes are not UTF-8."""
    first = to_byte.get(line[start], 0)
    length = next((length for length, lead in ((2, 0xC2), (3, 0xE0), (4, 0xF0)) if lead <= first < _END[length]), 1)
    return _decode(line[start : start + length], to_byte)


_END = {2: 0xE0, 3: 0xF0, 4: 0xF5}
"""For characters of two, three and four bytes in UTF-8, the upper bound, exclusive, of their first byte."""


def _decode(characters: str, to_byte: Mapping[str, int]) -> str | None:
    """The text whose bytes in UTF-8 became these characters; None if the bytes are not UTF-8."""
    try:
        decoded = bytes(map(to_byte.__getitem__, characters)).decode()
    except (KeyError, UnicodeDecodeError):
        return None
    # Characters for private use and those that do not exist are in no text.
    return None if any(unicodedata.category(character) in {"Cn", "Co"} for character in decoded) else decoded


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
