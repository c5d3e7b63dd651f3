import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle
from transduce.translation import Translator


@pytest.fixture
def scored(transduce: Any, workspace: Path, run_folder: Path) -> Any:
    """`transduce score` of what is in the files `source` and `target`, which this writes."""

    def call(pairs: list[tuple[str, str]], *options: str) -> Any:
        for name, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            (workspace / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
        return transduce("score", run_folder, "--source", "source", "--target", "target", *options)

    return call


PAIRS = [("ba do", "ab od"), ("fi", "ku le mo na"), ("", ""), ("\u3000", "\t"), ("", "ba"), ("ba", ""), ("🙂", "☃")]


def test_one_score_a_line(scored: Any) -> None:
    answer = scored(PAIRS)
    assert answer.exit_code == 0
    assert len(answer.lines) == len(PAIRS)
    assert all(math.isfinite(float(line)) for line in answer.lines)
    assert answer.lines[2:4] == ["0.0000", "0.0000"]
    assert answer.lines[0] != answer.lines[1]
    assert "Traceback" not in answer.messages


def test_a_translation_has_the_score_that_translate_gives_it(
    transduce: Any, scored: Any, run_folder: Path, workspace: Path
) -> None:
    sources = (workspace / "train.source").read_text(encoding="utf-8").split("\n")[:40]
    translations = Translator.load(run_folder, precision="float32").find_translations(sources)
    best = [translation.alternatives[0] for translation in translations]
    answer = scored([(source, one.text) for source, one in zip(sources, best, strict=True)], "--json")
    found = [json.loads(line)["score"] for line in answer.lines]
    same = [score == pytest.approx(one.score, abs=1e-4) for score, one in zip(found, best, strict=True)]
    assert sum(same) >= 30  # of the others, the text is cut into other pieces than those it was made of
    assert not any(score > one.score + 1 for score, one in zip(found, best, strict=True))


def test_tokens_and_json_say_the_same(scored: Any) -> None:
    plain, tokens = scored(PAIRS), scored(PAIRS, "--tokens")
    objects = [json.loads(line) for line in scored(PAIRS, "--json").lines]
    assert len(objects) == len(tokens.lines) == len(PAIRS)
    for line, with_tokens, found in zip(plain.lines, tokens.lines, objects, strict=True):
        score, *pieces = with_tokens.split("\t")
        assert score == line == f"{found['score']:.4f}"
        assert pieces == [f"{token['piece']} {token['log_probability']:.4f}" for token in found["tokens"]]
        log_probability = sum(token["log_probability"] for token in found["tokens"])
        assert found["log_probability"] == pytest.approx(log_probability)
        assert found["score"] == pytest.approx(log_probability / ((5 + len(pieces)) / 6) ** 0.6)
    assert [token["piece"] for token in objects[0]["tokens"]][-1] == "</s>"
    assert objects[2] == {"score": 0, "log_probability": 0, "tokens": []}


def test_perplexity_stands_on_standard_error(scored: Any) -> None:
    answer = scored(PAIRS, "--json")
    tokens = [token for line in answer.lines for token in json.loads(line)["tokens"]]
    expected = math.exp(-sum(token["log_probability"] for token in tokens) / len(tokens))
    assert answer.messages.startswith("7 pairs in ")
    assert f": perplexity {expected:,.2f} for {len(tokens)} tokens" in answer.messages


def test_blank_lines_have_no_perplexity(scored: Any) -> None:
    assert scored([("", ""), ("", "")]).messages.endswith("s: nothing but blank lines, which have no perplexity\n")


def test_compressed_text_is_text(transduce: Any, scored: Any, run_folder: Path, workspace: Path) -> None:
    expected = scored(PAIRS)
    (workspace / "source.gz").write_bytes(gzip.compress((workspace / "source").read_bytes()))
    answer = transduce("score", run_folder, "--source", "source.gz", "--target", "target")
    assert answer.output == expected.output


def test_what_is_longer_than_the_model_reads_at_a_time_is_named(scored: Any, run_folder: Path) -> None:
    answer = scored([("ba", "ab " * 100), ("ba " * 100, "ab")])
    assert (answer.exit_code, len(answer.lines)) == (0, 2)
    limit = Bundle.open(run_folder / "best").description.search.max_pieces
    assert answer.messages.startswith(f"line 2 is longer than the {limit} pieces that the model reads at a time")


def test_unequal_numbers_of_lines_are_named_before_anything_is_printed(
    transduce: Any, run_folder: Path, workspace: Path
) -> None:
    answer = transduce("score", run_folder, "--source", "train.source", "--target", "valid.target")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "train.source has 300 lines and valid.target has 10" in answer.messages


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--source", "nope", "--target", "valid.target"], "nope: there is no such file"),
        (["--source", "empty", "--target", "empty"], "empty; at least one pair"),
        (["--source", "latin", "--target", "latin"], "latin, line 1, byte 2 of the line: the byte 0xf6 is not UTF-8"),
        (["--source", "valid.source", "--target", "valid.target", "--tokens", "--json"], "--tokens and --json"),
        (["--source", "valid.source", "--target", "valid.target", "--device", "tpu9"], "'tpu9': must be"),
    ],
)
def test_mistakes_are_named(transduce: Any, run_folder: Path, workspace: Path, options: list[str], named: str) -> None:
    (workspace / "empty").write_bytes(b"")
    (workspace / "latin").write_bytes("dö\n".encode("latin-1"))
    answer = transduce("score", run_folder, *options)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert named in answer.messages
    assert "Traceback" not in answer.messages


def test_there_must_be_a_model(transduce: Any, workspace: Path) -> None:
    answer = transduce("score", "nope", "--source", "valid.source", "--target", "valid.target")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "nope: there is no such folder" in answer.messages
