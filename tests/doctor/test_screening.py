import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from transduce.config import FilterName, TextConfig
from transduce.doctor import Screening, screen_text
from transduce.doctor.screening import MIN_PAIRS
from transduce.errors import ConfigError, MissingExtraError
from transduce.text import open_parallel_corpus

Pairs = list[tuple[str, str]]
FITTED = TextConfig(vocabulary="fitted")


@pytest.fixture
def screen(tmp_path: Path) -> Callable[..., Screening]:
    def run(
        *corpora: Pairs,
        filters: tuple[FilterName, ...] = (),
        validation: Pairs | None = None,
        tags: tuple[str, ...] = (),
        **options: Any,
    ) -> Screening:
        opened = []
        for number, pairs in enumerate([*corpora, *([] if validation is None else [validation])]):
            names = f"{number}.source", f"{number}.target"
            for name, lines in zip(names, zip(*pairs, strict=True), strict=True):
                (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            corpus = open_parallel_corpus(tmp_path, *names, None, None)
            opened.append((f"corpus {number}", replace(corpus, tag=tags[number] if tags else "")))
        text = None if validation is None else opened.pop()
        return screen_text(opened, text, FITTED, filters, report=lambda _: None, **options)

    return run


def filtered(screening: Screening) -> dict[str, list[int]]:
    return {name: rows.tolist() for name, rows in screening.filtered.items()}


def change(pairs: Pairs, changes: Mapping[int, tuple[Callable[[str], str], Callable[[str], str]]]) -> None:
    for row, (source, target) in changes.items():
        pairs[row] = source(pairs[row][0]), target(pairs[row][1])


SCREEN_AND_EXAMINE = """
import json, sys
from transduce.config import DataConfig, TextConfig
from transduce.doctor import examine_corpus, make_json, screen_text
from transduce.text import open_parallel_corpus
from pathlib import Path

config, folder = TextConfig(vocabulary="fitted"), sys.argv[1]
corpus = open_parallel_corpus(Path(folder), None, None, "pairs.tsv", None)
screening = screen_text([("pairs", corpus)], None, config, ["near_duplicates"], report=lambda _: None)
print(screening.filtered["near_duplicates"].tolist())
data = DataConfig(folder=folder, pairs="pairs.tsv")
print(json.dumps(make_json(examine_corpus(data, config, report=lambda _: None))))
"""


def test_every_process_finds_the_same(tmp_path: Path) -> None:
    """Python's own hashes of text are different in every process."""
    chance = random.Random(1)  # noqa: S311 - nothing here is secret

    def vary(word: str) -> str:
        words = [chance.choice([f"{word}{number}", f"{word}{number}".upper()]) for number in range(6)]
        return " ".join(words) + chance.choice(".!")

    lines = [f"{vary(chance.choice('abc'))}\t{vary(chance.choice('def'))}\n" for _ in range(24)]
    (tmp_path / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    command = [sys.executable, "-c", SCREEN_AND_EXAMINE, str(tmp_path)]
    printed = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in "12"
    ]
    assert b"near_duplicates" in printed[0]
    assert printed[0] == printed[1]


def test_filters_find_single_pairs_in_all_corpora(screen: Callable[..., Screening], invented: Callable) -> None:
    """Also those that are too few for the doctor to tell of."""
    pairs = invented(3000)

    def keep(line: str) -> str:
        return line

    change(
        pairs,
        {
            10: (keep, lambda line: f"{line} über".encode().decode("cp1252")),
            20: (lambda line: f"{line} 12", lambda line: f"{line} 13"),
            2500: (lambda line: f"<b>{line}</b>", keep),
            2600: (keep, lambda line: line * 9),
            2700: (keep, lambda _: "Привет как дела сегодня утром друзья"),
            2800: (lambda line: f"{line} [a]", keep),
        },
    )
    pairs[2900] = pairs[2900][0], pairs[2900][0]
    expected = {
        "copies": [2900],
        "mojibake": [10],
        "different_numbers": [20],
        "markup": [2500],
        "unusual_length_ratios": [2600, 2700],
        "other_script": [2700],
        "different_brackets": [2800],
    }
    screening = screen(pairs[:1000], pairs[1000:], filters=tuple(expected))
    assert filtered(screening) == expected
    assert [finding.name for finding in screening.findings] == ["mojibake"]


def test_of_near_duplicates_the_first_stays(screen: Callable[..., Screening], invented: Callable) -> None:
    pairs = invented(2000)
    long = [row for row, pair in enumerate(pairs) if min(len(side.split()) for side in pair) >= 8][:3]

    def replace(row: int, at: int, word: str) -> tuple[str, str]:
        source, target = (side.split() for side in pairs[row])
        source[at], target[at] = word, word
        return " ".join(source), " ".join(target)

    # The third is near to the second only, which is near to the first.
    pairs[1900], pairs[1901] = replace(long[0], 1, "gugu"), replace(long[0], 2, "gugu")
    second = replace(long[1], 1, "gaga")
    pairs[1902] = second
    pairs[1903] = (
        " ".join([*second[0].split()[:2], "gigi", *second[0].split()[3:]]),
        " ".join([*second[1].split()[:2], "gigi", *second[1].split()[3:]]),
    )
    assert filtered(screen(pairs, filters=("near_duplicates",))) == {"near_duplicates": [1900, 1901, 1902, 1903]}


def test_what_validation_text_has_is_left_out(screen: Callable[..., Screening], invented: Callable) -> None:
    pairs, other = invented(2000), invented(300, seed=2)
    leaked = [pairs[100], (pairs[200][0], other[0][1]), (other[1][0], pairs[300][1])]
    screening = screen(pairs, filters=("leakage", "near_leakage"), validation=[*leaked, *other[2:]])
    assert filtered(screening) == {"leakage": [100, 200, 300], "near_leakage": []}
    with pytest.raises(ConfigError, match=r"^data\.filters: leakage: .* none is given"):
        screen(pairs, filters=("leakage", "markup"))


def test_lines_in_another_language_are_found(screen: Callable[..., Screening]) -> None:
    english = [f"The children of the village number {n} went to the market with their mother" for n in range(150)]
    german = [f"Die Kinder des Dorfes Nummer {n} gingen mit ihrer Mutter auf den Markt" for n in range(150)]
    pairs = list(zip(english, german, strict=True))
    pairs[40] = pairs[40][0], "Les enfants du village sont allés au marché avec leur mère hier matin"
    assert filtered(screen(pairs, filters=("other_language",), languages=("en", "de"))) == {"other_language": [40]}


def test_the_language_filter_needs_its_package(
    screen: Callable[..., Screening], invented: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.doctor.screening.load_language_identifier", lambda: None)
    with pytest.raises(MissingExtraError, match=r"transduce\[data\]"):
        screen(invented(10), filters=("other_language",))


def test_shifted_lines_are_told_and_left_out(screen: Callable[..., Screening], invented: Callable) -> None:
    pairs = invented(3000)
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    del targets[2000]
    shifted = list(zip(sources, targets, strict=False))
    (finding,) = screen(shifted).findings
    assert (finding.name, finding.severity) == ("shifted_lines", "serious")
    assert filtered(screen(shifted, filters=("shifted_lines",))) == {"shifted_lines": list(range(2000, 2999))}


def test_little_text_is_not_judged(screen: Callable[..., Screening], invented: Callable) -> None:
    pairs = [pair[::-1] for pair in invented(MIN_PAIRS - 1)] * 1
    pairs[0] = pairs[0][0], f"{pairs[0][1]} über".encode().decode("cp1252")
    assert screen(pairs) == Screening((), {})
    assert filtered(screen(pairs, filters=("mojibake",))) == {"mojibake": [0]}


def test_text_that_a_model_has_made_is_not_looked_at(screen: Callable[..., Screening]) -> None:
    """Then there are no corpora at all."""
    assert filtered(screen(filters=("copies",))) == {"copies": []}


def test_only_the_beginning_of_much_text_is_read(
    screen: Callable[..., Screening], invented: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.doctor.screening.MAX_SCREENED_PAIRS", 1500)
    pairs = invented(2000)
    for row in (1100, 1200, 1700):
        pairs[row] = pairs[row][0], f"{pairs[row][1]} über".encode().decode("cp1252")
    (finding,) = screen(pairs[:1000], pairs[1000:]).findings
    assert finding.rows.tolist() == [1100, 1200]
    assert filtered(screen(pairs[:1000], pairs[1000:], filters=("mojibake",))) == {"mojibake": [1100, 1200, 1700]}


def test_every_filter_finds_what_is_planted(screen: Callable[..., Screening], invented: Callable) -> None:
    """The names of filters are those of findings, which the configuration cannot look up."""
    pairs, others, num = invented(6000), invented(400, seed=2), 60
    untranslated = [" ".join(pairs[row][0].split()[1:6]) for row in range(10)]
    planted: dict[str, dict[int, tuple[str, str]]] = {
        "copies": {0: (pairs[0][0], pairs[0][0])},
        "different_addresses": {100: (f"{pairs[100][0]} https://a.example/b", pairs[100][1])},
        "different_brackets": {200: (pairs[200][0], f"{pairs[200][1]} (a)")},
        "different_endings": {300: (f"{pairs[300][0][:-1]}?", pairs[300][1])},
        "different_numbers": {400: (f"{pairs[400][0]} 12", f"{pairs[400][1]} 13")},
        "html_entities": {500: (pairs[500][0], f"&quot;{pairs[500][1]}")},
        "leakage": {600: pairs[600]},
        "markup": {700: (f"<i>{pairs[700][0]}</i>", f"<i>{pairs[700][1]}</i>")},
        "mispaired_lines": {row: (pairs[row][0], pairs[row + 1][1]) for row in range(800, 920, 2)},
        "mojibake": {1000: (pairs[1000][0], f"{pairs[1000][1]} über".encode().decode("cp1252"))},
        "other_script": {1100: (pairs[1100][0], "Привет как дела сегодня утром друзья")},
        "partly_untranslated": {
            1200 + row: (pairs[row][0], f"{pairs[row][1]} {untranslated[row]}") for row in range(10)
        },
        "repeated_sources": {1300 + row: ("See also.", others[row][1]) for row in range(num)},
        "repeated_targets": {1400 + row: (others[num + row][0], "Vidu.") for row in range(num)},
        "replacement_characters": {1500: (f"{pairs[1500][0]}\ufffd", pairs[1500][1])},
        "source_in_language_of_targets": {1600: (others[300][1], pairs[1600][1])},
        "swapped_pairs": {1700: pairs[1700][::-1]},
        "target_in_language_of_sources": {1800: (pairs[1800][0], others[301][0])},
        "unrelated_lines": {row: (pairs[row][0], pairs[2000 + (row * 7 + 3) % 600][1]) for row in range(2000, 2600)},
        "shifted_lines": {row: (pairs[row][0], pairs[row - 1][1]) for row in range(4000, 5000)},
        "unusual_length_ratios": {1900: (pairs[1900][0], pairs[1900][1] * 9)},
        "wrong_code_page": {1950: (pairs[1950][0], f"{pairs[1950][1]} Büsche".encode("cp1252").decode("cp850"))},
    }
    original = list(pairs)
    for changed in planted.values():
        for row, pair in changed.items():
            pairs[row] = pair
    similar = next(row for row in range(3000, 4000) if min(len(side.split()) for side in original[row]) > 7)
    pairs[3999] = tuple(" ".join(["gugu", *side.split()[1:]]) for side in original[similar])
    near = next(row for row in range(3000, 4000) if row != similar and len(original[row][0].split()) > 7)
    validation = [original[600], (" ".join(["gugu", *original[near][0].split()[1:]]), others[350][1]), *others[351:]]
    names = tuple(name for name in get_args(FilterName) if name != "other_language")
    found = filtered(screen(pairs, filters=names, validation=validation))
    assert found.keys() == {*planted, "near_duplicates", "near_leakage"}
    assert found["near_duplicates"] == [3999]
    assert near in found["near_leakage"]
    for name, changed in planted.items():
        share = len(changed.keys() & set(found[name])) / len(changed)
        assert share >= (0.7 if name in {"mispaired_lines", "unrelated_lines", "shifted_lines"} else 1.0), name


def test_the_filter_of_languages_keeps_every_language_that_has_a_tag(screen: Callable[..., Screening]) -> None:
    pytest.importorskip("py3langid")
    source = "The weather in the northern mountains is cold, and nobody leaves the house number {}."
    german = "Das Wetter in den nördlichen Bergen ist kalt, und niemand verlässt das Haus Nummer {}."
    french = "Il fait froid dans les montagnes du nord, et personne ne quitte la maison numéro {}."
    corpora = [[(source.format(row), target.format(row)) for row in range(120)] for target in (german, french)]
    corpora[1][7] = corpora[1][7][0], corpora[0][7][1]
    options = {"filters": ("other_language",), "languages": ("en", "")}
    screening = screen(*corpora, tags=(">>de<<", ">>fr<<"), **options)
    assert filtered(screening) == {"other_language": [127]}
