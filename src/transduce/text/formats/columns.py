"""The choice of source and target among the columns of a table, or among the languages of a record."""

import re
from collections.abc import Collection, Sequence
from itertools import islice
from typing import NamedTuple

from transduce.errors import ConfigError, CorpusError
from transduce.text.languages import (
    LANGUAGE_CODES,
    LANGUAGE_NAMES,
    find_codes,
    get_base_code,
    get_language_code,
    normalize_code,
)


class SideSelection(NamedTuple):
    """What a user says about which texts of a file of pairs are source and target.

    Args:
        columns: names of both, in the terms of the format: columns, keys, languages or members; None if not given.
        languages: codes of source and target, which decide where there are no `columns`; "" for one that is not given.
        setting: the setting of `columns`, for messages.
        has_direction: whether the text is for a model that is trained already, and so has a direction: the order of
            columns then says nothing.
    """

    columns: tuple[str, str] | None = None
    languages: tuple[str, str] = ("", "")
    setting: str = "data.columns"
    has_direction: bool = False

    @property
    def has_languages(self) -> bool:
        """Whether there are two different languages, so that they can tell source from target."""
        return "" not in self.languages and self.languages[0] != self.languages[1]

    @property
    def remedy(self) -> str:
        """What an error message tells the user to do if the columns do not say which of them is the source.

        Where the languages are known, as those of a trained model are, only the columns can be chosen.
        """
        choose = f"choose two by {self.setting}"
        if self.has_direction or self.has_languages:
            return choose
        return (
            f"give --source-language and --target-language (data.source_language and data.target_language), or {choose}"
        )


_SOURCE_WORDS = {"source", "src", "original", "input", "sentence1", "text1"}
_TARGET_WORDS = {"target", "tgt", "trg", "translation", "reference", "ref", "output", "sentence2", "text2"}
_LANGUAGE_WITH_SCRIPT = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
_CODE_WITH_COUNTRY = re.compile(r"[a-z]{2,3}(-[a-z]{4})?(-([a-z]{2}|\d{3}))?")
_WHAT_IT_IS = re.compile(r"[\s_-]+(text|sentence|language|lang|translation|source|target)s?$")


def is_header(source: str, target: str, languages: tuple[str, str]) -> bool:
    """Whether the two cells of a first row name columns, as "source" and "target", or "English" and "Swahili".

    True if both are column names, names of languages in English or in themselves, or language codes, and they differ,
    which a sentence and its translation cannot satisfy. If both of `languages` are given, other codes without country
    and script are not accepted, as they may be words such as "is" and "es".
    """
    kinds = [_classify_cell(cell, languages) for cell in (source, target)]
    return "" not in kinds and kinds[0] != kinds[1]


def get_column_name(cell: str) -> str:
    """The name in a cell of a header, without spaces and quotation marks around it."""
    return cell.strip().strip('"')


def _classify_cell(cell: str, languages: tuple[str, str]) -> str:
    """What a cell names: "source", "target", or the code of a language as in "en-us"; "" if it names no column."""
    cell = get_column_name(cell)
    name = _WHAT_IT_IS.sub("", cell.casefold())
    if name in _SOURCE_WORDS:
        return "source"
    if name in _TARGET_WORDS:
        return "target"
    code = get_language_code(name)
    given = {get_language_code(language) for language in languages}
    is_given = code in given or code in map(get_base_code, given)
    if is_given or name in LANGUAGE_CODES or _LANGUAGE_WITH_SCRIPT.fullmatch(cell):
        return code
    if code in LANGUAGE_NAMES:
        return "" if all(languages) else code
    return code if get_base_code(code) in LANGUAGE_NAMES and _CODE_WITH_COUNTRY.fullmatch(code) else ""


def find_column(column: str, names: Sequence[str], selection: SideSelection, rule: str) -> int:
    """The position, from 0, of the only one of `names` that is `column`.

    Raises:
        ConfigError: there is none, or more than one. The message says that `column` must be `rule`.
    """
    count = names.count(column)
    if count != 1:
        found = f"{count} columns of that name" if count else list_names(names)
        raise ConfigError(f'{selection.setting}: "{column}" must be {rule}, which has {found}')
    return names.index(column)


def choose_columns(names: Sequence[str], selection: SideSelection, place: str) -> tuple[int, int] | None:
    """The positions, from 0, of source and target among columns with these names; None if the names do not say.

    Source and target are the columns named by the two languages; otherwise those named "source" and "target"; otherwise
    the first two columns, if no others have such names. "en" also matches "en-US", and vice versa, if there is no other
    English. The order of columns counts only in training, where it sets the direction of the model: a trained model may
    have the other direction.

    Raises:
        CorpusError: several columns have such names, and which of them is the source is unknown.
    """
    kinds = [_classify_cell(name, selection.languages) for name in names]
    named = [position for position, kind in enumerate(kinds) if kind]
    if len({kinds[position] for position in named}) < 2:
        return None
    by_language = [_find_language(language, kinds) for language in selection.languages]
    by_word = [kinds.index(word) if kinds.count(word) == 1 else None for word in ("source", "target")]
    for source, target in (by_language, by_word):
        if source is not None and target is not None and source != target:
            return source, target
    if by_language[0] == by_language[1]:
        follows_order = not selection.has_direction
    else:  # one language alone must not contradict the order
        follows_order = by_language[0] != 1 and by_language[1] != 0
    if named == [0, 1] and follows_order:
        return 0, 1
    found = ", ".join(f"{names[position]!r} (column {position + 1})" for position in named)
    raise CorpusError(f"{place}: cannot tell which of the columns {found} are source and target: {selection.remedy}")


def _find_language(language: str, kinds: list[str]) -> int | None:
    """The position of the only code in `kinds` that `language` matches."""
    found = _find_language_name(language, kinds)
    return None if found is None else kinds.index(found)


def _find_language_name(language: str, names: Collection[str]) -> str | None:
    """The only one of the names that `language` matches, in either direction, as "en" and "en-US" do."""
    code = get_language_code(language)
    found = find_codes(code, names) or [name for name in names if normalize_code(name) == get_base_code(code)]
    return found[0] if code and len(found) == 1 else None


def find_language_names(names: Collection[str], languages: tuple[str, str]) -> tuple[str, str] | None:
    """The names that the two languages have among `names`; None if they have not one each."""
    source, target = (_find_language_name(language, names) for language in languages)
    return None if source is None or target is None or source == target else (source, target)


def choose_languages(found: Collection[str], selection: SideSelection, place: str) -> tuple[str, str]:
    """The keys of source and target in "translation", in which the data sets of Hugging Face have texts by language.

    `found` are the keys that there are. Given columns are not compared with them.

    Raises:
        CorpusError: no languages are given, or one of them is not among `found`.
    """
    keys = selection.columns or ("source", "target")
    if selection.columns is not None or all(key in found for key in keys):
        return keys
    languages = selection.languages
    if not selection.has_languages:
        raise CorpusError(
            f'{place}: its "translation" has {list_names(found) if found else "no languages"}, and the source is '
            f"unknown: {selection.remedy}"
        )
    missing = [language for language in languages if language not in found]
    if missing and (names := find_language_names(found, languages)) is not None:
        return names
    if missing:
        raise CorpusError(
            f'{place}: its "translation" must have the languages {languages[0]!r} and {languages[1]!r}, but has '
            f"{list_names(found)}: if {missing[0]!r} has another name there, give both names "
            f"by {selection.setting}"
        )
    return languages


def list_names(names: Collection[str]) -> str:
    """The first 20 names in quotation marks for a message."""
    more = "…" if len(names) > 20 else ""
    return ", ".join(map(shorten, islice(names, 20))) + more or "none"


def shorten(text: str) -> str:
    """The text in quotation marks for a message, cut after 60 characters."""
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}…"
