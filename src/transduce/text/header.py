"""Whether the first row of a table names its columns."""

import re

from transduce.text.language_names import LANGUAGE_NAMES

_SOURCE_WORDS = {"source", "src", "original", "input", "sentence1", "text1"}
_TARGET_WORDS = {"target", "tgt", "trg", "translation", "reference", "ref", "output", "sentence2", "text2"}
_LANGUAGES = {*LANGUAGE_NAMES, *(name.casefold() for name in LANGUAGE_NAMES.values())}
_LANGUAGE_WITH_SCRIPT = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
_WHAT_IT_IS = re.compile(r"[\s_-]+(text|sentence|language|lang|translation|source|target)s?$")


def is_header(source: str, target: str, languages: tuple[str, str]) -> bool:
    """Whether the two cells of a first row name columns, as "source" and "target", or "English" and "Swahili".

    That is so if both are names of columns or of languages in English, or codes of languages, and not the same: no
    sentence and its translation are. Single words that happen to be codes, as "is" and "es", count only where nothing
    else is known of the languages.

    Args:
        source: the cell in the source's column.
        target: the cell in the target's column.
        languages: codes of source and target, "" for one that is not known; where both are, other codes do not count.
    """
    kinds = [_kind(cell.strip().strip('"'), languages) for cell in (source, target)]
    return "" not in kinds and kinds[0] != kinds[1]


def _kind(cell: str, languages: tuple[str, str]) -> str:
    """What a cell names: "source", "target" or a language, as it is called there; "" if it names nothing."""
    name = _WHAT_IT_IS.sub("", cell.casefold())
    if name in _SOURCE_WORDS:
        return "source"
    if name in _TARGET_WORDS:
        return "target"
    if name in {language.casefold() for language in languages} or _LANGUAGE_WITH_SCRIPT.fullmatch(cell):
        return name
    base = re.split("[-_]", name)[0]
    if name in LANGUAGE_NAMES or (base in LANGUAGE_NAMES and re.fullmatch(r"[a-z]{2,3}[-_][a-z]{2}", name)):
        return "" if all(languages) else name
    return name if name in _LANGUAGES else ""
