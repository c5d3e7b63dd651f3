import gzip
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from transduce.baselines import make_encoder_decoder
from transduce.bundle import Bundle, RecordedHead, read_calibration, save_bundle, update_calibration
from transduce.translation import AlignmentHead, Translator


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
    assert scored([("", ""), ("", "")]).messages.endswith("s: no perplexity: all lines are blank\n")


def test_compressed_text_is_text(transduce: Any, scored: Any, run_folder: Path, workspace: Path) -> None:
    expected = scored(PAIRS)
    (workspace / "source.gz").write_bytes(gzip.compress((workspace / "source").read_bytes()))
    answer = transduce("score", run_folder, "--source", "source.gz", "--target", "target")
    assert answer.output == expected.output


def test_what_is_longer_than_the_model_reads_at_a_time_is_named(scored: Any, run_folder: Path) -> None:
    answer = scored([("ba", "ab " * 100), ("ba " * 100, "ab")])
    assert (answer.exit_code, len(answer.lines)) == (0, 2)
    limit = Bundle.open(run_folder / "best").description.search.max_pieces
    assert answer.messages.startswith(f"line 2 is longer than the {limit} pieces that the model reads at once")


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


@pytest.fixture
def bundle_folder(workspace: Path, run_folder: Path) -> Path:
    shutil.copytree(run_folder / "best", workspace / "bundle")
    return workspace / "bundle"


def test_what_is_measured_is_measured_exactly(
    transduce: Any, bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precisions = []
    load = Translator.load

    def watched(path: Path, **options: Any) -> Translator:
        precisions.append(options["precision"])
        return load(path, **options)

    monkeypatch.setattr(Translator, "load", watched)
    assert transduce("calibrate", bundle_folder, *GIVEN).exit_code == 0
    assert precisions == ["float32"]


GIVEN = ("--source", "train.source", "--target", "train.target")


@pytest.mark.exhaustive
def test_figures_are_printed_and_kept(transduce: Any, bundle_folder: Path, contents: Any) -> None:
    before = contents(bundle_folder)
    answer = transduce("calibrate", bundle_folder, *GIVEN, "--json")
    assert answer.exit_code == 0
    expected = f"{bundle_folder}: calibrated on 300 pairs, beam 4; words are aligned by --head "
    assert answer.messages.startswith(expected)
    found = json.loads(answer.output)
    assert found.pop("model") == str(bundle_folder)
    calibration = read_calibration(Bundle.open(bundle_folder))
    assert calibration is not None
    assert calibration.confidence is not None
    assert calibration.alignment is not None
    assert str(AlignmentHead(**dict(calibration.alignment))) == answer.messages.removeprefix(expected).strip()
    assert calibration.confidence.model_dump() == found
    assert {**contents(bundle_folder), "calibration.json": None} == {**before, "calibration.json": None}
    table = transduce("calibrate", bundle_folder, *GIVEN).lines
    assert table[0].split() == ["words", f"{found['num_words']:,}"]
    assert table[4].endswith(f" {found['auc']:.3f}")
    assert transduce("translate", bundle_folder, standard_input=b"ba do\n").exit_code == 0


def test_a_network_without_heads_has_confidence_alone(transduce: Any, bundle_folder: Path, workspace: Path) -> None:
    bundle = Bundle.open(bundle_folder)
    config = bundle.model_config.model_copy(update={"architecture": "recurrent"})
    description = bundle.description.model_copy(update={"model": config})
    save_bundle(workspace / "recurrent", make_encoder_decoder(config), bundle.load_tokenizer(), description)
    answer = transduce("calibrate", "recurrent", *GIVEN, "--beam", "1")
    assert answer.exit_code == 0
    assert "words are not aligned: only a Transformer has heads" in answer.messages
    calibration = read_calibration(Bundle.open(workspace / "recurrent"))
    assert calibration is not None
    assert calibration.confidence is not None
    assert calibration.alignment is None


def test_the_beam_is_kept(transduce: Any, bundle_folder: Path) -> None:
    assert json.loads(transduce("calibrate", bundle_folder, *GIVEN, "--beam", "1", "--json").output)["beam"] == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--source", "train.source", "--target", "valid.target"], "line for line"),
        (["--source", "missing", "--target", "valid.target"], "missing"),
        ([*GIVEN, "--beam", "0"], "at least 1"),
    ],
)
def test_mistakes_are_explained_and_change_nothing(
    transduce: Any, bundle_folder: Path, given: list[str], message: str
) -> None:
    answer = transduce("calibrate", bundle_folder, *given)
    assert answer.exit_code == 2
    assert message in answer.messages
    assert not (bundle_folder / "calibration.json").exists()


def test_an_average_comes_without(transduce: Any, workspace: Path, run_folder: Path) -> None:
    shutil.copytree(run_folder, workspace / "run")
    assert transduce("calibrate", "run", *GIVEN).exit_code == 0
    assert (workspace / "run" / "best" / "calibration.json").is_file()
    shutil.copytree(workspace / "run" / "best", workspace / "run" / "last", dirs_exist_ok=True)
    assert transduce("average", "run", "--last", 2, "--output", "averaged").exit_code == 0
    assert not (workspace / "averaged" / "calibration.json").exists()
    shutil.copytree(workspace / "run" / "best", workspace / "another")
    assert transduce("average", "run", "--last", 2, "--output", "another", "--force").exit_code == 0
    assert not (workspace / "another" / "calibration.json").exists()


TO_ALIGN = ["--source", "valid.source", "--target", "valid.target"]
CHOSEN = re.compile(r"^aligned by --head (\S+), the best of 6 by ([a-z -]+), (-?\d+\.\d{3})\n\d+ pairs in ")


@pytest.fixture
def lines(workspace: Path) -> list[tuple[list[str], list[str]]]:
    """The words of the text that is aligned."""
    sides = [(workspace / name).read_text(encoding="utf-8").split("\n")[:-1] for name in (TO_ALIGN[1], TO_ALIGN[3])]
    return [(source.split(), target.split()) for source, target in zip(*sides, strict=True)]


@pytest.fixture
def gold(lines: list[tuple[list[str], list[str]]], workspace: Path) -> Path:
    """Every word of the task is its source word spelled backwards, in the same place."""
    text = "".join(" ".join(f"{word}-{word}" for word in range(len(target))) + "\n" for _, target in lines)
    (workspace / "gold").write_text(text, encoding="utf-8", newline="\n")
    return workspace / "gold"


@pytest.mark.exhaustive
def test_words_that_translate_each_other(
    transduce: Any, run_folder: Path, lines: list[tuple[list[str], list[str]]]
) -> None:
    answer = transduce("align", run_folder, *TO_ALIGN)
    assert answer.exit_code == 0
    assert len(answer.lines) == len(lines)
    right = total = 0
    for line, (source, target) in zip(answer.lines, lines, strict=True):
        links = [tuple(map(int, link.split("-"))) for link in line.split()]
        assert [link[1] for link in links] == list(range(len(target)))
        assert all(link[0] < len(source) for link in links)
        right += sum(source[link[0]] == target[link[1]][::-1] for link in links)
        total += len(links)
    # It has learned but little.
    assert right / total > 0.6
    assert CHOSEN.match(answer.messages)[2] == "mean log-probability of linked words"


def test_what_was_chosen_can_be_given(transduce: Any, run_folder: Path, workspace: Path) -> None:
    answer = transduce("align", run_folder, *TO_ALIGN)
    head = CHOSEN.match(answer.messages)[1]
    again = transduce("align", run_folder, *TO_ALIGN, "--head", head)
    assert again.output == answer.output
    assert again.messages.startswith("10 pairs in ")
    other = transduce("align", run_folder, *TO_ALIGN, "--head", "1.2+1")
    assert other.output != answer.output


def test_a_head_can_be_chosen_on_other_text(transduce: Any, run_folder: Path, workspace: Path) -> None:
    other = ["--choose-on-source", "train.source", "--choose-on-target", "train.target"]
    answer = transduce("align", run_folder, *TO_ALIGN, *other)
    chosen = CHOSEN.match(answer.messages)
    itself = transduce("align", run_folder, "--source", "train.source", "--target", "train.target")
    assert itself.messages.startswith(chosen[0][: chosen[0].index("\n")])
    assert len(answer.lines) == 10


def test_a_head_can_be_chosen_by_gold_alignments(transduce: Any, run_folder: Path, gold: Path) -> None:
    answer = transduce("align", run_folder, *TO_ALIGN, "--gold", gold)
    chosen = CHOSEN.match(answer.messages)
    assert chosen[2] == "alignment error rate"
    expected = [line.split() for line in gold.read_text(encoding="utf-8").split("\n")[:-1]]
    right = sum(len(set(line.split()) & set(links)) for line, links in zip(answer.lines, expected, strict=True))
    total = sum(len(line.split()) + len(links) for line, links in zip(answer.lines, expected, strict=True))
    assert float(chosen[3]) == pytest.approx(1 - 2 * right / total, abs=6e-4)


def test_the_head_of_the_calibration_is_taken_unless_another_is_given(
    transduce: Any, run_folder: Path, workspace: Path, gold: Path
) -> None:
    shutil.copytree(run_folder / "best", workspace / "model")
    update_calibration(Bundle.open(workspace / "model"), alignment=RecordedHead(layer=0, head=1, offset=1))
    answer = transduce("align", "model", *TO_ALIGN)
    assert answer.messages.startswith("aligned by --head 1.2+1, named by the bundle's calibration\n10 pairs in ")
    assert answer.output == transduce("align", run_folder, *TO_ALIGN, "--head", "1.2+1").output
    other = ["--choose-on-source", "train.source", "--choose-on-target", "train.target"]
    for options in (["--head", "1"], ["--gold", gold], other):
        assert transduce("align", "model", *TO_ALIGN, *options).output != answer.output


def test_json_has_words_and_weights(transduce: Any, run_folder: Path, lines: list[Any]) -> None:
    plain = transduce("align", run_folder, *TO_ALIGN, "--head", "1")
    objects = [json.loads(line) for line in transduce("align", run_folder, *TO_ALIGN, "--head", "1", "--json").lines]
    for line, found, (source, target) in zip(plain.lines, objects, lines, strict=True):
        assert (found["source"], found["target"]) == (source, target)
        assert line == " ".join(f"{link['source']}-{link['target']}" for link in found["alignment"])
        assert all(0 < link["weight"] <= 1.00001 for link in found["alignment"])


def test_line_n_in_is_line_n_out(transduce: Any, run_folder: Path, workspace: Path) -> None:
    (workspace / "a").write_bytes("ba do\n\n \u3000 \nfi\n\n".encode())
    (workspace / "b").write_bytes("ab\u3000od\n\nab\n\n  ku   le\n".encode())
    answer = transduce("align", run_folder, "--source", "a", "--target", "b", "--head", "1.1")
    assert [len(line.split()) for line in answer.lines] == [2, 0, 0, 0, 0]
    assert answer.messages.startswith("5 pairs in ")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--head", "first"], "head = 'first': must be LAYER.HEAD"),
        (["--head", "7.1"], "head = '7.1': no such head: the decoder has layers 1 to 1"),
        (["--head", "1", "--gold", "two"], "--head 1: cannot be combined with options that choose a head"),
        (["--choose-on-source", "train.source"], "--choose-on-source and --choose-on-target"),
        (["--choose-on-target", "train.source"], "--choose-on-source and --choose-on-target"),
        (
            ["--choose-on-source", "train.source", "--choose-on-target", "two"],
            "train.source has 300 lines and two has 2",
        ),
        (["--gold", "two"], "two has 2 lines and its text has 10 pairs"),
        (["--gold", "ten"], "ten, line 1: 'ba' must be"),
        (["--gold", "far"], "line 1: 99-99 must be"),
        (["--gold", "nope"], "nope: there is no such file"),
        (["--choose-on-source", "blank", "--choose-on-target", "blank"], "none of 2 pairs has words on both sides"),
        (["--device", "tpu9"], "'tpu9': must be"),
        (["--source", "train.source"], "--source"),
    ],
)
def test_align_names_mistakes(
    transduce: Any, run_folder: Path, workspace: Path, options: list[str], named: str
) -> None:
    files = {"two": b"0-0\n0-0\n", "ten": b"ba\n" * 10, "far": b"99-99\n" * 10, "blank": b"\n\n"}
    for name, content in files.items():
        (workspace / name).write_bytes(content)
    answer = transduce("align", run_folder, *TO_ALIGN, *options)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert named in answer.messages
    assert "Traceback" not in answer.messages


@pytest.fixture
def both(workspace: Path) -> Path:
    """Both sides of the training and the validation text in one file each, with the target in front."""
    for name in ("train", "valid"):
        sides = [
            (workspace / f"{name}.{side}").read_text(encoding="utf-8").splitlines() for side in ("source", "target")
        ]
        rows = [json.dumps({"yy": target, "xx": source}) for source, target in zip(*sides, strict=True)]
        (workspace / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return workspace


COLUMNS = ["--columns", "xx", "yy"]


def test_a_file_with_both_sides_is_read_as_two_files_are(
    transduce: Any, run_folder: Path, both: Path, bundle_folder: Path
) -> None:
    for command in (["score", run_folder], ["align", run_folder, "--head", "1.1"]):
        expected = transduce(*command, *TO_ALIGN)
        answer = transduce(*command, "--pairs", "valid.jsonl", *COLUMNS)
        assert (answer.exit_code, answer.output) == (0, expected.output)
        assert len(answer.lines) == 10
    other = ["--choose-on-source", "train.source", "--choose-on-target", "train.target"]
    expected = transduce("align", run_folder, *TO_ALIGN, *other)
    answer = transduce("align", run_folder, "--pairs", "valid.jsonl", "--choose-on-pairs", "train.jsonl", *COLUMNS)
    assert answer.output == expected.output
    answer = transduce("calibrate", bundle_folder, "--pairs", "train.jsonl", *COLUMNS, "--beam", "1")
    assert answer.exit_code == 0, answer.messages
    calibration = read_calibration(Bundle.open(bundle_folder))
    assert calibration is not None
    assert calibration.confidence is not None
    assert calibration.confidence.num_pairs == 300
    assert list(calibration.confidence.data) == ["pairs"]


@pytest.mark.parametrize("command", ["score", "calibrate", "align"])
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "no text: give --source and --target, or a file with both sides as --pairs"),
        (["--target", "valid.target"], "--target is given without --source: give both"),
        (["--pairs", "valid.jsonl", "--source", "valid.source"], "leave out --source and --target"),
        ([*TO_ALIGN, "--columns", "xx", "yy"], "give it as --pairs"),
        (["--pairs", "valid.jsonl", "--columns", "xx", "zz"], "zz"),
        (["--pairs", "missing.tsv"], "missing.tsv: there is no such file"),
        (["--pairs", "valid.source"], "must end in .tsv"),
    ],
)
def test_text_is_given_in_one_way(
    transduce: Any, bundle_folder: Path, both: Path, command: str, options: list[str], named: str
) -> None:
    answer = transduce(command, bundle_folder, *options)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert named in answer.messages
    assert not (bundle_folder / "calibration.json").exists()


def test_a_head_is_chosen_on_one_text(transduce: Any, run_folder: Path, both: Path) -> None:
    options = ["--choose-on-pairs", "train.jsonl", "--choose-on-source", "train.source"]
    answer = transduce("align", run_folder, *TO_ALIGN, *options)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "--choose-on-pairs has both sides in one file" in answer.messages
