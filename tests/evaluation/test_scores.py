import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from transduce.errors import ConfigError, CorpusError
from transduce.evaluation import METRICS, format_scores, score_corpus
from transduce.text import choose_tokenization

REFERENCES = [
    "Ein kleiner Hund läuft über die Wiese.",
    "Zwei Männer stehen am Herd und kochen das Essen.",
    "Das ist, soweit ich weiß, „richtig“.",
    "Es kostet 3,50 € pro Stück – oder 1.000 Yen.",
    "Zeile mit \u2028 im Innern und \x0b auch.",
    "leer wird sie übersetzt",
    "",
    "猫が好きです。",
]
HYPOTHESES = [
    "Ein kleiner Hund rennt über eine Wiese.",
    "Zwei Männer kochen am Herd das Essen . ",
    "Das ist, soweit ich weiß, richtig.",
    "Es kostet 3,50 € das Stück oder 1.000 Yen.",
    "Zeile mit \u2028 im Innern und \x0b auch.",
    "",
    "zu viel\u00a0",
    "犬が好きです。",
]


def _command(folder: Path, hypotheses: Sequence[str], references: Sequence[str], *more: str) -> list[dict[str, Any]]:
    """What sacreBLEU's own command prints for the same lines."""
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        text = "".join(f"{line}\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    arguments = ["references", "-i", "hypotheses", "-m", "bleu", "chrf", "ter", "--format", "json", "-w", "10", *more]
    command = [sys.executable, "-m", "sacrebleu", *arguments]
    printed = subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout
    scores: list[dict[str, Any]] = json.loads(printed)
    return scores


@pytest.mark.parametrize("repetitions", [1, 150])
def test_scores_and_signatures_are_those_of_the_command(
    tmp_path: Path, repetitions: int, capfd: pytest.CaptureFixture[str]
) -> None:
    hypotheses, references = HYPOTHESES * repetitions, REFERENCES * repetitions
    ours = score_corpus(hypotheses, references)
    # 150 lines end in " .", about which sacreBLEU would otherwise complain.
    assert capfd.readouterr() == ("", "")
    theirs = {score["name"].removesuffix("2"): score for score in _command(tmp_path, hypotheses, references)}
    assert [score.metric for score in ours] == ["BLEU", "chrF", "TER"]
    for score in ours:
        assert float(f"{score.value:.10f}") == theirs[score.metric]["score"]
        assert score.signature == theirs[score.metric]["signature"]


def test_intervals_are_those_of_the_command(tmp_path: Path) -> None:
    theirs = {
        score["name"].removesuffix("2"): score for score in _command(tmp_path, HYPOTHESES, REFERENCES, "--confidence")
    }
    for score in score_corpus(HYPOTHESES, REFERENCES, confidence=True):
        mean, half = (theirs[score.metric][f"confidence_{part}"] for part in ("mean", "var"))
        assert score.low == pytest.approx(max(0.0, mean - half), abs=1e-5)
        assert score.high == pytest.approx(mean + half, abs=1e-5)
        assert score.signature == theirs[score.metric]["signature"]
        assert score.low <= score.value <= score.high
    assert score_corpus(HYPOTHESES, REFERENCES, confidence=True) == score_corpus(
        HYPOTHESES, REFERENCES, confidence=True
    )


def test_many_lines_are_resampled_less_often() -> None:
    [score] = score_corpus(["a b"] * 6000, ["a c"] * 6000, ["bleu"], confidence=True)
    assert "bs:500|" in score.signature


@pytest.mark.parametrize("metric", METRICS)
def test_lines_with_nothing_right_do_not_spoil_the_interval(metric: str) -> None:
    hypotheses, references = ["x", "x", "", "a b c d e"], ["a b c d e", "q", "", "a b c d e"]
    [score] = score_corpus(hypotheses, references, [metric], confidence=True)
    assert score.low is not None
    assert score.high is not None
    assert 0 <= score.low < score.value < score.high


def test_a_score_of_zero_has_an_interval() -> None:
    [score] = score_corpus(["a"], ["b"], ["chrf"], confidence=True)
    assert (score.value, score.low, score.high) == (0.0, 0.0, 0.0)


def test_a_perfect_translation() -> None:
    references = [line for line in REFERENCES if len(line.split()) > 4]
    assert [round(score.value, 9) for score in score_corpus(references, references)] == [100.0, 100.0, 0.0]


def test_metrics_come_in_the_order_asked_for() -> None:
    assert [score.metric for score in score_corpus(["a"], ["a"], ("ter", "bleu"))] == ["TER", "BLEU"]


@pytest.mark.parametrize(("hypotheses", "references"), [([""], [""]), ([""], ["a b"]), (["a b"], [""])])
def test_empty_lines_have_finite_scores(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    assert all(0 <= score.value <= 100 for score in score_corpus(hypotheses, references))


def test_unequal_counts_are_refused() -> None:
    with pytest.raises(CorpusError, match="2 hypotheses and 3 references"):
        score_corpus(["a", "b"], ["a", "b", "c"])


def test_nothing_is_refused() -> None:
    with pytest.raises(CorpusError, match="no hypotheses"):
        score_corpus([], [])


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ConfigError, match="'comet' must be one of: bleu, chrf, ter"):
        score_corpus(["a"], ["a"], ["comet"])


def test_text() -> None:
    scores = score_corpus(HYPOTHESES, REFERENCES)
    lines = format_scores(scores).split("\n")
    assert [line.split()[0] for line in lines] == [name for name, _ in METRICS.values()]
    assert all(line.split()[2] == score.signature for line, score in zip(lines, scores, strict=True))


def test_nothing_is_better_than_all_words_right() -> None:
    references = [*REFERENCES, "a b c d e f g"] * 7
    for score in score_corpus(references, references, confidence=True):
        best = 0.0 if score.metric == "TER" else 100.0
        assert (score.value, score.low, score.high) == (best, best, best)
    for first in range(40):  # of some corpora, rounding alone goes beyond
        lines = [f"{'word ' * number}{number * first} ä{number}" for number in range(first, first + 9)]
        assert all(score.value <= 100 for score in score_corpus(lines, lines, ["bleu", "chrf"]))


def test_an_interval_ends_at_100() -> None:
    references = [f"a sentence of ten words or so, with number {number}." for number in range(12)]
    hypotheses = [*references[:-1], "wrong"]
    for score in score_corpus(hypotheses, references, ["bleu", "chrf"], confidence=True):
        assert score.low is not None
        assert score.high is not None
        assert score.low < score.value < score.high <= 100


@pytest.mark.parametrize(
    ("references", "tokenization"),
    [
        (REFERENCES, "13a"),
        (["", "123 ..."], "13a"),
        (["고양이를 좋아합니다."], "13a"),
        (["猫が好きです。", "GNU の tar で書庫を作ります。", "東京特許許可局"], "char"),
        (["ｶﾀｶﾅ"], "char"),
        (["ผมชอบแมว"], "char"),
        (["ខ្ញុំចូលចិត្តឆ្មា"], "char"),
        (["我喜欢猫。", "他在看一部叫《となりのトトロ》的电影，还有许多别的电影和连续剧可以看，他都喜欢。"], "zh"),
        (["Use tar, 或者 gzip, to pack files."], "13a"),
    ],
)
def test_text_without_spaces_between_words_is_not_split_at_them(references: list[str], tokenization: str) -> None:
    assert choose_tokenization(references) == tokenization
    [score] = score_corpus(references, references, ["bleu"])
    assert f"tok:{tokenization}|" in score.signature


def test_japanese_scores_are_those_of_the_command_with_characters(tmp_path: Path) -> None:
    hypotheses, references = ["犬が好きです。", "本を読む"], ["猫が好きです。", "本を読みます"]
    theirs = {score["name"]: score for score in _command(tmp_path, hypotheses, references, "--tokenize", "char")}
    [ours] = score_corpus(hypotheses, references, ["bleu"])
    assert float(f"{ours.value:.10f}") == theirs["BLEU"]["score"] > 30
    assert ours.signature == theirs["BLEU"]["signature"]


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [
        (["我喜欢狗。", "他们在那里看书"], ["我喜欢猫。", "他们在这里看书"]),
        (["犬が好きです。", "本を読む"], ["猫が好きです。", "本を読みます"]),
    ],
)
def test_of_chinese_and_japanese_a_character_is_a_word_to_ter(
    tmp_path: Path, hypotheses: list[str], references: list[str]
) -> None:
    options = ["--ter-normalized", "--ter-asian-support"]
    theirs = {score["name"]: score for score in _command(tmp_path, hypotheses, references, *options)}
    [ours] = score_corpus(hypotheses, references, ["ter"])
    assert 0 < float(f"{ours.value:.10f}") == theirs["TER"]["score"] < 40
    assert ours.signature == theirs["TER"]["signature"]
    assert "|norm:yes|punct:yes|asian:yes|" in ours.signature
    # In each line one word, as all of it is without spaces.
    [by_clause] = score_corpus(hypotheses, references, ["ter"], tokenization="13a")
    assert by_clause.value == 100
    assert "|norm:no|punct:yes|asian:no|" in by_clause.signature
