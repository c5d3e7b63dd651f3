"""Parallel corpora: two files line for line, or one file of pairs (TSV, JSON), streamed; and the cleaning of pairs."""

import json
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from transduce.config import TextConfig
from transduce.errors import ConfigError, CorpusError
from transduce.text.lines import check_file, read_lines

_NAMES = """\
aa Afar; ab Abkhazian; ae Avestan; af Afrikaans; ak Akan; am Amharic; an Aragonese; ar Arabic; as Assamese;
ast Asturian; av Avaric; ay Aymara; az Azerbaijani; ba Bashkir; be Belarusian; bg Bulgarian; bi Bislama; bm Bambara;
bn Bangla; bo Tibetan; br Breton; bs Bosnian; ca Catalan; ce Chechen; ch Chamorro; ckb Central Kurdish; co Corsican;
cr Cree; cs Czech; cu Church Slavic; cv Chuvash; cy Welsh; da Danish; de German; dsb Lower Sorbian; dv Divehi;
dz Dzongkha; ee Ewe; el Greek; en English; eo Esperanto; es Spanish; et Estonian; eu Basque; fa Persian; ff Fula;
fi Finnish; fil Filipino; fj Fijian; fo Faroese; fr French; fur Friulian; fy Western Frisian; ga Irish;
gd Scottish Gaelic; gl Galician; gn Guarani; gsw Swiss German; gu Gujarati; gv Manx; ha Hausa; haw Hawaiian; he Hebrew;
hi Hindi; ho Hiri Motu; hr Croatian; hsb Upper Sorbian; ht Haitian Creole; hu Hungarian; hy Armenian; hz Herero;
ia Interlingua; id Indonesian; ie Interlingue; ig Igbo; ii Sichuan Yi; ik Inupiaq; io Ido; is Icelandic; it Italian;
iu Inuktitut; ja Japanese; jv Javanese; ka Georgian; kab Kabyle; kg Kongo; ki Kikuyu; kj Kuanyama; kk Kazakh;
kl Kalaallisut; km Khmer; kn Kannada; ko Korean; kr Kanuri; ks Kashmiri; ku Kurdish; kv Komi; kw Cornish; ky Kyrgyz;
la Latin; lb Luxembourgish; lg Ganda; li Limburgish; ln Lingala; lo Lao; lt Lithuanian; lu Luba-Katanga; lv Latvian;
mg Malagasy; mh Marshallese; mi Māori; mk Macedonian; ml Malayalam; mn Mongolian; mr Marathi; ms Malay; mt Maltese;
my Burmese; na Nauru; nb Norwegian Bokmål; nd North Ndebele; nds Low German; ne Nepali; ng Ndonga; nl Dutch;
nn Norwegian Nynorsk; no Norwegian; nr South Ndebele; nv Navajo; ny Nyanja; oc Occitan; oj Ojibwa; om Oromo; or Odia;
os Ossetic; pa Punjabi; pb Portuguese (Brazil); pi Pali; pl Polish; ps Pashto; pt Portuguese; qu Quechua; rm Romansh;
rn Rundi; ro Romanian; ru Russian; rw Kinyarwanda; sa Sanskrit; sc Sardinian; scn Sicilian; sd Sindhi;
se Northern Sami; sg Sango; si Sinhala; sk Slovak; sl Slovenian; sm Samoan; sn Shona; so Somali; sq Albanian;
sr Serbian; ss Swati; st Southern Sotho; su Sundanese; sv Swedish; sw Swahili; ta Tamil; te Telugu; tg Tajik; th Thai;
ti Tigrinya; tk Turkmen; tl Tagalog; tn Tswana; to Tongan; tr Turkish; ts Tsonga; tt Tatar; tw Twi; ty Tahitian;
ug Uyghur; uk Ukrainian; ur Urdu; uz Uzbek; ve Venda; vi Vietnamese; vo Volapük; wa Walloon; wo Wolof; xh Xhosa;
yi Yiddish; yo Yoruba; yue Cantonese; za Zhuang; zh Chinese; zt Chinese (traditional); zu Zulu"""

LANGUAGE_NAMES = dict(entry.split(" ", 1) for entry in _NAMES.replace(";\n", "; ").split("; "))
"""English names of the two-letter codes and some others, from Unicode's CLDR; "pb" and "zt" are Argos's own codes."""

_SOURCE_WORDS = {"source", "src", "original", "input", "sentence1", "text1"}
_TARGET_WORDS = {"target", "tgt", "trg", "translation", "reference", "ref", "output", "sentence2", "text2"}
_LANGUAGES = {*LANGUAGE_NAMES, *(name.casefold() for name in LANGUAGE_NAMES.values())}
_LANGUAGE_WITH_SCRIPT = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
_WHAT_IT_IS = re.compile(r"[\s_-]+(text|sentence|language|lang|translation|source|target)s?$")


def is_header(source: str, target: str, languages: tuple[str, str]) -> bool:
    """Whether the two cells of a first row name columns, as "source" and "target", or "English" and "Swahili".

    True if both are column names, English names of languages, or language codes, and they differ, which a sentence and
    its translation cannot satisfy. Other language codes, which may be words such as "is" and "es", are not accepted if
    both of `languages` are given.
    """
    kinds = [_classify_cell(cell.strip().strip('"'), languages) for cell in (source, target)]
    return "" not in kinds and kinds[0] != kinds[1]


def _classify_cell(cell: str, languages: tuple[str, str]) -> str:
    """The column that a cell names: "source", "target" or a language as written; "" if it names none."""
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


Pair = tuple[str, str]


def read_tsv(
    path: Path, columns: tuple[str, str] | None = None, languages: tuple[str, str] = ("", "")
) -> Iterator[Pair]:
    """The pairs of a file whose columns have one tab between them; nothing is quoted or escaped.

    A first row that names the columns is left out. Columns are numbered from 1; by default those that such a row names
    by `languages` or as source and target, or else the first two.

    Raises:
        ConfigError: A column is not a number from 1 on.
        CorpusError: The first row names several columns of which source and target are unknown, or a line has too few;
            see also `read_lines`.
    """
    positions, has_header = _find_columns(path, columns, languages)
    yield from islice(_read_rows(path, positions), int(has_header), None)


def read_tsv_header(path: Path, columns: tuple[str, str] | None, languages: tuple[str, str]) -> Pair | None:
    """The first row of a TSV file if it names the columns (`is_header`). Arguments and errors are `read_tsv`'s."""
    positions, has_header = _find_columns(path, columns, languages)
    return next(_read_rows(path, positions)) if has_header else None


def _find_columns(
    path: Path, columns: tuple[str, str] | None, languages: tuple[str, str]
) -> tuple[tuple[int, int], bool]:
    """The positions of source and target in a row, from 0, and whether the first row names them."""
    row = next(read_lines(path), "").split("\t")
    if columns is None:
        return _choose_columns(path, row, languages)
    for column in columns:
        if not (column.isascii() and column.isdigit() and int(column) > 0):
            raise ConfigError(f'data.columns: "{column}" must be a column number in {path}, from 1, as in "2"')
    source, target = (int(column) - 1 for column in columns)
    return (source, target), max(source, target) < len(row) and is_header(row[source], row[target], languages)


def _choose_columns(path: Path, row: list[str], languages: tuple[str, str]) -> tuple[tuple[int, int], bool]:
    """`_find_columns` without given columns: they follow from the first row, if it is a header."""
    kinds = [_name_language(_classify_cell(cell.strip().strip('"'), languages)) for cell in row]
    named = [position for position, kind in enumerate(kinds) if kind]
    if len({kinds[position] for position in named}) < 2:
        return (0, 1), False
    for source, target in ((_name_language(languages[0]), _name_language(languages[1])), ("source", "target")):
        if source != target and source and target and kinds.count(source) == kinds.count(target) == 1:
            return (kinds.index(source), kinds.index(target)), True
    if named == [0, 1]:
        return (0, 1), True
    names = ", ".join(f"{row[position]!r} (column {position + 1})" for position in named)
    raise CorpusError(
        f"{path}: cannot tell which of the columns {names} are source and target: give "
        f"--source-language and --target-language (data.source_language and data.target_language), or choose two by "
        f"data.columns"
    )


def _name_language(code: str) -> str:
    """The name of a language for a known code, otherwise the text itself; in lower case."""
    return LANGUAGE_NAMES.get(code.casefold(), code).casefold()


def _read_rows(path: Path, positions: tuple[int, int]) -> Iterator[Pair]:
    source, target = positions
    needed = max(positions) + 1
    for number, line in enumerate(read_lines(path), start=1):
        values = line.split("\t")
        if len(values) < needed:
            raise CorpusError(
                f"{path}, line {number}: has {len(values)} of {needed} required columns, separated by single tabs: "
                f"{_excerpt(line)}; correct the line, or choose other columns by data.columns"
            )
        yield values[source], values[target]


def read_json(path: Path, columns: tuple[str, str] | None, languages: tuple[str, str]) -> Iterator[Pair]:
    """The pairs of a file with one JSON object per line, or with one JSON array of objects.

    An object has its texts under two keys, or, as in the data sets of Hugging Face, by language in its "translation":
    {"translation": {"en": "A dog.", "de": "Ein Hund."}}. The keys are `columns`; by default "source" and "target", or
    `languages` in "translation".

    Raises:
        CorpusError: A record is not a JSON object, lacks a key, has a value that is not text, or has several texts of
            which the source is unknown; see also `read_lines`.
    """
    for place, record in _read_records(path):
        if not isinstance(record, dict):
            raise CorpusError(f"{place}: must be a JSON object, not {_excerpt(json.dumps(record))}")
        texts, keys = _find_texts(record, columns, languages, place)
        yield _get_text(texts, keys[0], place), _get_text(texts, keys[1], place)


def _read_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Read every JSON value of the file, with the place where it ends."""
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        if number == 1 and line.lstrip().startswith("["):
            yield from _read_items(path, line, lines)
            return
        place = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{place}: must be a JSON object, not {_excerpt(line)} ({error})") from None
        yield place, record


def _read_items(path: Path, text: str, lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Read the items of the array that begins in `text`, the first line, and continues in `lines`, one at a time."""
    line, item, position, needs_comma = 1, 1, text.index("[") + 1, False
    while True:
        position = _SPACE.match(text, position).end()  # type: ignore[union-attr] # it always matches
        place, next_character = f"{path}, line {line}, item {item} of its array", text[position : position + 1]
        if next_character == "]":
            break
        if next_character and needs_comma:
            if next_character != ",":
                found = _excerpt(text[position : position + 61])
                raise CorpusError(f"{place}: must follow a comma, but found {found}")
            position, needs_comma = position + 1, False
        elif next_character and (read := _read_item(text, position, place)) is not None:
            yield place, read[0]
            position, item, needs_comma = read[1], item + 1, True
        else:
            more = next(lines, None)
            if more is None:
                raise CorpusError(f"{path}: its JSON array is not closed: download or create the file again")
            text, position, line = f"{text[position:]}\n{more}", 0, line + 1
    if text[position + 1 :].strip() or any(rest.strip() for rest in lines):
        raise CorpusError(f"{path}: has text after its JSON array: give one array, or one object per line")


def _read_item(text: str, position: int, place: str) -> tuple[Any, int] | None:
    """The item of an array at `position`, and the position after it; None if the item continues on the next line."""
    try:
        return json.JSONDecoder().raw_decode(text, position)
    except (ValueError, RecursionError) as error:
        # An error at the very end means that the item continues: JSON strings cannot contain line ends.
        if getattr(error, "pos", 0) >= len(text.rstrip()) - 1:
            return None
        found = _excerpt(text[position : position + 61])
        raise CorpusError(f"{place}: must be a JSON object, not {found} ({error})") from None


_SPACE = re.compile(r"\s*")


def _find_texts(
    record: dict[str, Any], columns: tuple[str, str] | None, languages: tuple[str, str], place: str
) -> tuple[Mapping[str, Any], tuple[str, str]]:
    """The object with the texts, the record or its "translation", and the keys of source and target there."""
    keys = columns or ("source", "target")
    by_language = record.get("translation")
    if not isinstance(by_language, dict) or all(key in record for key in keys):
        return record, keys
    if columns is not None or all(key in by_language for key in keys):
        return by_language, keys
    if "" in languages or languages[0] == languages[1]:
        raise CorpusError(
            f'{place}: its "translation" has {", ".join(map(repr, by_language)) or "no languages"}, and the source is '
            f"unknown: give --source-language and --target-language (data.source_language and "
            f"data.target_language)"
        )
    if missing := [language for language in languages if language not in by_language]:
        raise CorpusError(
            f'{place}: its "translation" must have the languages {languages[0]!r} and {languages[1]!r}, but has '
            f"{', '.join(map(repr, by_language)) or 'none'}: if {missing[0]!r} has another name there, give both names "
            f"by data.columns"
        )
    return by_language, languages


def _get_text(record: Mapping[str, object], key: str, place: str) -> str:
    if key not in record:
        found = ", ".join(map(repr, record)) or "no keys"
        raise CorpusError(f"{place}: must have the key {key!r}, but has {found}; choose keys by data.columns")
    value = record[key]
    if not isinstance(value, str):
        raise CorpusError(f"{place}: {key!r} must be text, but is {_excerpt(json.dumps(value))}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        # JSON can contain an unpaired surrogate; a UTF-8 file cannot.
        raise CorpusError(f"{place}: {key!r} contains an unpaired surrogate, which is not a character: {value!a:.80}")
    return value


def _excerpt(line: str) -> str:
    return repr(line) if len(line) <= 60 else f"{line[:60]!r}…"


_COMPRESSED = {".gz", ".xz", ".zst"}


class CorpusSize(NamedTuple):
    """How much text a parallel corpus has.

    Args:
        num_pairs: number of pairs.
        num_target_characters: number of characters of all targets, before any cleaning.
    """

    num_pairs: int
    num_target_characters: int


@dataclass(frozen=True)
class ParallelCorpus:
    """Pairs of source and target text; each iteration reads the files again.

    Args:
        files: the files read; source and target, or one file of pairs.
        read: opens them and yields the pairs.
        header: opens them and returns the first row of a table if it is a header, which is not a pair.
    """

    files: tuple[Path, ...]
    read: Callable[[], Iterator[Pair]]
    header: Callable[[], Pair | None] = lambda: None

    def __iter__(self) -> Iterator[Pair]:
        return self.read()

    def check(self) -> int:
        """The number of pairs, after reading all of them once; raises what `measure` raises."""
        return self.measure().num_pairs

    def measure(self) -> CorpusSize:
        """The size, after reading all pairs once; one pair is held in memory at a time.

        Raises:
            CorpusError: A file is damaged, is not UTF-8 or breaks its format, or there are no pairs.
        """
        num_pairs = num_target_characters = 0
        for _, target in self:
            num_pairs += 1
            num_target_characters += len(target)
        if not num_pairs:
            names = " and ".join(map(str, self.files))
            raise CorpusError(f"{names}: empty; at least one pair is needed")
        return CorpusSize(num_pairs, num_target_characters)


def open_parallel_corpus(
    folder: Path,
    source: str | None,
    target: str | None,
    pairs: str | None,
    columns: tuple[str, str] | None,
    languages: tuple[str, str] = ("", ""),
) -> ParallelCorpus:
    """Open the corpus in `source` and `target`, or in `pairs`; names are relative to `folder`.

    Args:
        folder: the folder of the files.
        source: text, one sentence per line; plain, .gz, .xz or .zst.
        target: the same for the other side, line for line.
        pairs: instead of both: .tsv, .json, .jsonl or .ndjson, and compressed or not.
        columns: of `pairs`: numbers from 1 (TSV, default 1 and 2) or keys (JSON, default "source" and "target").
        languages: codes of source and target: by them, unless there are `columns`, texts are found that a TSV file's
            first row names, or Hugging Face's "translation"; see `read_tsv` and `read_json`.

    Raises:
        CorpusError: A file is missing, is a folder, or has an unknown extension.
        ConfigError: Neither both sides nor pairs are given.
    """
    if pairs is not None:
        path = folder / pairs
        check_file(path)
        return _open_pairs(path, columns, languages)
    if source is None or target is None:
        raise ConfigError("no parallel text: give source and target, or pairs")
    files = folder / source, folder / target
    for path in files:
        check_file(path)
    return ParallelCorpus(files, partial(_read_line_for_line, *files))


def write_standard_input(stream: BinaryIO, path: Path) -> None:
    """Copy a stream, which can be read only once, to the file `path`."""
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)


def _open_pairs(path: Path, columns: tuple[str, str] | None, languages: tuple[str, str]) -> ParallelCorpus:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    match suffixes[-1:]:
        case [".tsv"]:
            table = path, columns, languages
            return ParallelCorpus((path,), partial(read_tsv, *table), partial(read_tsv_header, *table))
        case [".json" | ".jsonl" | ".ndjson"]:
            return ParallelCorpus((path,), partial(read_json, path, columns, languages))
        case _:
            raise CorpusError(
                f"{path}: a file of pairs must end in .tsv, .json, .jsonl or .ndjson, and then in .gz, .xz or .zst if "
                f"it is compressed: rename it, or give source and target"
            )


def _read_line_for_line(source: Path, target: Path) -> Iterator[Pair]:
    sources, targets = read_lines(source), read_lines(target)
    for index, (source_line, target_line) in enumerate(zip_longest(sources, targets)):
        if source_line is None or target_line is None:
            # What is missing on one side is counted on the other, with the line at hand.
            rest = 1 + sum(1 for _ in sources) + sum(1 for _ in targets)
            num_sources = index if source_line is None else index + rest
            num_targets = index if target_line is None else index + rest
            raise CorpusError(
                f"{source} has {num_sources} line{'' if num_sources == 1 else 's'} and {target} has {num_targets}: "
                f"they must be translations of each other, line for line"
            )
        yield source_line, target_line


# Every control character (category Cc) but the tab.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}

# Up to this many pieces, the length of a sentence says little about that of its translation.
_SHORT = 8


class Cleaner:
    """Decides which pairs training keeps, and counts the others under the first rule that each breaks."""

    def __init__(self, config: TextConfig) -> None:
        self.config = config
        rules = ("blank", "control_characters", "copy", "too_long", "ratio", "duplicate")  # their names are in reports
        self.counts = dict.fromkeys([*rules, "kept"], 0)

    def keeps(self, source: str, target: str, source_pieces: int, target_pieces: int, *, repeats: bool) -> bool:
        """Whether training keeps the pair; `repeats`: an earlier pair is the same. Pieces do not include `</s>`."""
        decision = self._find_broken_rule(source, target, source_pieces, target_pieces, repeats=repeats) or "kept"
        self.counts[decision] += 1
        return decision == "kept"

    def _find_broken_rule(
        self, source: str, target: str, source_pieces: int, target_pieces: int, *, repeats: bool
    ) -> str | None:
        config = self.config
        shorter, longer = sorted((source_pieces, target_pieces))
        # The tokenizer may drop visible characters, as in a side that contains only "▁".
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
        # Repetitions come last: the pairs that they repeat are left out by the same rules.
        return "duplicate" if config.drop_duplicates and repeats else None


def _is_visible(text: str) -> bool:
    return any(unicodedata.category(character) not in _INVISIBLE for character in text)
