import json
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import pytest
import torch

from transduce.bundle import Bundle, save_bundle
from transduce.translation import Translator

STRANGE = [
    "",
    "   ",
    "\t",
    "\u3000",
    "ba",
    "🐕🎉",
    "👨‍👩‍👧‍👦 ba",
    "ba\tdo\tfi",
    "שלום עולם",
    "مرحبا بالعالم",
    "ba\x00do",
    "\x00",
    "ba \x1b[31mdo\x07 \x7f",
    "ba\u2028do",
    "\u0085",
    "ba\u0085do\x0b\x0cfi",
    "ba\rdo",
    "\ufeffba",
    "a\u0301" * 20,
    "</s> <pad> <unk> ▁",
    " ".join(["ba", "do", "fi", "ku"] * 500),
]
BLANK = {"", "   ", "\t", "\u3000"}


def make_lines() -> list[str]:
    """500 lines, strange and plain ones in turns."""
    chance = random.Random(0)  # noqa: S311 - nothing here is secret
    plain = [" ".join(chance.choices(["ba", "do", "fi", "ku", "le"], k=chance.randint(1, 6))) for _ in range(500)]
    chosen = dict(zip(chance.sample(range(500), len(STRANGE)), STRANGE, strict=True))
    return [chosen.get(index, line) for index, line in enumerate(plain)]


def test_line_n_in_is_line_n_out(process: Any, run_folder: Path) -> None:
    lines = make_lines()
    # Line feeds, and carriage returns before every third.
    text = "".join(line + ("\r\n" if index % 3 == 0 else "\n") for index, line in enumerate(lines))
    answer = process("translate", run_folder, standard_input=text.encode())
    assert answer.exit_code == 0
    assert len(answer.lines) == 500
    assert [bool(line) for line, given in zip(answer.lines, lines, strict=True) if given in BLANK] == [False] * 4
    translator = Translator.load(run_folder)
    for index in random.Random(1).sample(range(500), 25):  # noqa: S311
        assert translator.translate([lines[index]]) == [answer.lines[index]]
    assert len(set(answer.lines)) > 100
    long = lines.index(STRANGE[-1]) + 1
    reported = [line for line in answer.messages.split("\n") if "longer than" in line]
    assert any(
        line.startswith(f"line {long} is longer than the model reads at once; translated in ") for line in reported
    )
    assert len(answer.lines[long - 1].split(" ")) > 500
    assert answer.messages.split("\n")[-2].startswith("500 lines in ")
    assert "\x1b" not in answer.messages
    assert "Traceback" not in answer.messages


def test_the_last_line_needs_no_end(transduce: Any, run_folder: Path) -> None:
    expected = transduce("translate", run_folder, standard_input=b"ba do\n\nfi\n")
    assert transduce("translate", run_folder, standard_input=b"ba do\n\nfi").output == expected.output
    assert transduce("translate", run_folder, standard_input=b"ba do\r\n\r\nfi\r\n").output == expected.output
    assert len(expected.lines) == 3


def test_of_nothing_comes_nothing(transduce: Any, run_folder: Path) -> None:
    for nothing in (b"", None):
        answer = transduce("translate", run_folder, standard_input=nothing)
        assert (answer.exit_code, answer.output) == (0, b"")
        assert answer.messages.startswith("0 lines in ")


def test_a_long_line_is_translated_as_a_whole_if_asked_for(transduce: Any, run_folder: Path) -> None:
    line = " ".join(["ba do fi ku"] * 12)
    in_parts = transduce("translate", run_folder, standard_input=line.encode())
    whole = transduce("translate", run_folder, "--max-pieces", "400", standard_input=line.encode())
    assert "translated in" in in_parts.messages
    assert "translated in" not in whole.messages
    translator = Translator.load(run_folder).with_search({"max_pieces": 400})
    (found,) = translator.find_translations([line])
    assert found.num_parts == 1
    assert whole.lines == [found.text] != in_parts.lines
    for wrong, named in (
        (["--max-pieces", "7"], "max_pieces"),
        (["--max-pieces", "40", "--engine", "onnx"], "--max-pieces 40"),
    ):
        answer = transduce("translate", run_folder, *wrong, standard_input=line.encode())
        assert (answer.exit_code, answer.output) == (2, b"")
        assert named in answer.messages


def test_beam_1_is_greedy(transduce: Any, run_folder: Path) -> None:
    sources = ["ba do fi ku", "le mo na pe ri", "su"]
    answer = transduce("translate", run_folder, "--beam", "1", standard_input="\n".join(sources).encode())
    assert answer.lines == Translator.load(run_folder).translate(sources, beam=1)


def test_several_for_each_line(transduce: Any, run_folder: Path) -> None:
    text = b"ba do fi\n\nku le mo na\n"
    answer = transduce("translate", run_folder, "--num-best", "3", standard_input=text)
    rows = [line.split("\t") for line in answer.lines]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] + ["3"] * 3
    assert rows[3] == ["2", "0.0000", ""]
    scores = [float(row[1]) for row in rows]
    assert all(score <= 0 for score in scores)
    for first in (0, 4):
        assert scores[first : first + 3] == sorted(scores[first : first + 3], reverse=True)
        assert len({row[2] for row in rows[first : first + 3]}) == 3
    best = transduce("translate", run_folder, standard_input=text)
    assert [rows[0][2], rows[3][2], rows[4][2]] == best.lines


def test_a_translation_is_one_line_whatever_the_model_says(transduce: Any, run_folder: Path, tmp_path: Path) -> None:
    bundle = Bundle.open(run_folder / "best")
    model, tokenizer = bundle.load_model(), bundle.load_tokenizer()
    line_feed = next(index for index in range(300) if tokenizer.pieces([index]) == ["<0x0A>"])
    with torch.no_grad():
        # The decoder's output is all ones, which are most like the embedding of the line feed.
        final = dict(model.decoder.named_parameters())
        final["layers.0.feed_forward_residual.normalization.gain"].zero_()
        final["layers.0.feed_forward_residual.normalization.bias"].fill_(1.0)
        model.projection.weight.zero_()
        model.projection.weight[line_feed] = 1.0
    save_bundle(tmp_path / "mad", model, tokenizer, bundle.description)
    answer = transduce("translate", tmp_path / "mad", standard_input=b"ba\n\ndo\n")
    assert (answer.exit_code, len(answer.lines)) == (0, 3)
    assert {line.strip() for line in answer.lines} == {""}
    assert answer.lines[0]


def test_what_is_not_utf_8_is_named(transduce: Any, run_folder: Path) -> None:
    answer = transduce("translate", run_folder, standard_input=b"ba\ndo \xff fi\n")
    before = transduce("translate", run_folder, standard_input=b"ba\n").output
    assert (answer.exit_code, answer.output) == (2, before)
    assert "standard input, line 2, byte 4 of the line: the byte 0xff is not UTF-8" in answer.messages


@pytest.mark.exhaustive
def test_a_reader_may_leave(start: Callable[..., subprocess.Popen[bytes]], run_folder: Path, workspace: Path) -> None:
    (workspace / "text").write_bytes(b"ba do fi ku\n" * 10_000)  # more than a pipe holds
    with (
        (workspace / "text").open("rb") as text,
        start("translate", run_folder, "--beam", "1", stdin=text) as running,
        subprocess.Popen(["/usr/bin/env", "head", "-1"], stdin=running.stdout, stdout=subprocess.PIPE) as head,
    ):
        running.stdout.close()
        first, _ = head.communicate()
        _, messages = running.communicate()
    assert (first.count(b"\n"), running.returncode, messages) == (1, 128 + signal.SIGPIPE, b"")


def test_a_bundle_works_wherever_it_is(transduce: Any, run_folder: Path, workspace: Path) -> None:
    expected = transduce("translate", run_folder, standard_input=b"ba do\n").output
    shutil.copytree(run_folder / "best", workspace / "moved here")
    for path in (workspace / "moved here").iterdir():
        path.chmod(0o444)
    assert transduce("translate", "moved here", standard_input=b"ba do\n").output == expected


@pytest.mark.exhaustive
def test_a_line_does_not_wait_for_the_next(
    start: Callable[..., subprocess.Popen[bytes]], transduce: Any, run_folder: Path
) -> None:
    lines = [b"ba do\n", b"\n", b"fi ku le\n"]
    with start("translate", run_folder, stderr=subprocess.DEVNULL) as running:
        found = []
        for line in lines:
            running.stdin.write(line)
            running.stdin.flush()
            found.append(running.stdout.readline())
        running.stdin.close()
        assert running.stdout.read() == b""
    assert b"".join(found) == transduce("translate", run_folder, standard_input=b"".join(lines)).output


@pytest.mark.exhaustive
def test_what_was_translated_before_an_interruption_is_delivered(
    start: Callable[..., subprocess.Popen[bytes]], run_folder: Path
) -> None:
    with start("translate", run_folder) as running:
        running.stdin.write(b"ba do\nfi\n")
        running.stdin.flush()
        found = [running.stdout.readline() for _ in range(2)]
        running.send_signal(signal.SIGINT)
        output, messages = running.communicate()
    assert all(line.strip() for line in found)
    assert (running.returncode, output) == (130, b"")
    assert b"Traceback" not in messages


@pytest.mark.exhaustive
def test_json_lines_tell_everything(transduce: Any, run_folder: Path, workspace: Path) -> None:
    text = b"ba do fi\n\nku le\n"
    shutil.copytree(run_folder / "best", workspace / "bundle")
    for is_calibrated in (False, True):
        answer = transduce("translate", "bundle", "--json", "--num-best", "2", standard_input=text)
        lines = [json.loads(line) for line in answer.lines]
        assert [line["line"] for line in lines] == [1, 2, 3]
        assert [line["source"] for line in lines] == text.decode().split("\n")[:3]
        assert [line["translation"] for line in lines] == transduce("translate", "bundle", standard_input=text).lines
        first = lines[0]
        assert first["tokens"][-1]["piece"] == "</s>"
        sum_of_tokens = sum(token["log_probability"] for token in first["tokens"])
        assert first["score"] == pytest.approx(sum_of_tokens / ((5 + len(first["tokens"])) / 6) ** 0.6)
        assert [set(other) for other in first["alternatives"]] == [{"translation", "score"}]
        assert ("confidence" in first) == ("alignment" in first) == is_calibrated
        if is_calibrated:
            assert [word["word"] for word in first["words"]] == first["translation"].split()
            assert all(0 <= word["confidence"] <= 1 for word in first["words"])
            assert all(re.fullmatch(r"\d+-\d+", link) for link in first["alignment"].split())
        given = ("--source", "train.source", "--target", "train.target")
        assert transduce("calibrate", "bundle", *given).exit_code == 0


def test_what_is_required_is_there_and_what_is_forbidden_is_not(transduce: Any, run_folder: Path) -> None:
    text = b"ba do fi\nku le mo\n"
    free = transduce("translate", run_folder, standard_input=text).lines
    word = free[0].split()[0]
    asked = ("--prefix", "ab", "--require", "uk if", "--forbid", word if word != "ab" else "od")
    for line in transduce("translate", run_folder, *asked, standard_input=text).lines:
        assert line.startswith("ab")
        assert line.count("uk if") == 1
        assert asked[-1] not in line.split()


def test_spans_terms_and_documents(transduce: Any, run_folder: Path, workspace: Path) -> None:
    (workspace / "terms.tsv").write_text("ku\tXYZ\n", encoding="utf-8")
    text = "<p>ba do {name} fi</p>\n\n  - ku le. mo http://a.de/b\n"
    kept = ("--protect", "--glossary", "terms.tsv")
    lines = transduce("translate", run_folder, *kept, standard_input=text.encode()).lines
    assert len(lines) == 3
    assert all(lines[0].count(span) == 1 for span in ("<p>", "</p>", "{name}"))
    assert lines[2].count("http://a.de/b") == lines[2].count("XYZ") == 1
    text = text.replace("\n", "\r\n").rstrip()
    document = transduce("translate", run_folder, "--document", *kept, standard_input=text.encode())
    assert document.output.decode().startswith("<p>")
    assert "\r\n\r\n  - " in document.output.decode()
    assert document.output.endswith(b"\n") == text.endswith("\n")
    assert document.messages.split("\n")[-2].split(" in ")[0].endswith(" sentences")


def test_samples_are_drawn_again_with_the_same_seed(transduce: Any, run_folder: Path) -> None:
    text = b"ba do fi ku\nle mo\n"
    drawn = ("translate", run_folder, "--samples", "5", "--temperature", "2", "--num-best", "5")
    first = transduce(*drawn, standard_input=text)
    assert len(first.lines) == 10
    assert transduce(*drawn, standard_input=text).output == first.output
    assert transduce(*drawn, "--seed", "2", standard_input=text).output != first.output
    best = transduce("translate", run_folder, "--samples", "5", "--temperature", "2", "--mbr", standard_input=text)
    texts = [line.split("\t")[2] for line in first.lines]
    assert best.lines[0] in texts[:5]
    assert best.lines[1] in texts[5:]


def test_the_guard_reports(transduce: Any, run_folder: Path) -> None:
    answer = transduce("translate", run_folder, "--guard", standard_input=b"ba do 17\nfi\n")
    assert len(answer.lines) == 2
    assert re.search(r"guard: 1 line retried, \d replaced; repetition \d -> \d", answer.messages)


def test_an_ensemble_of_the_same_twice_is_the_same(transduce: Any, run_folder: Path) -> None:
    text = b"ba do fi\nku le\n"
    alone = transduce("translate", run_folder, standard_input=text)
    assert transduce("translate", run_folder, "--ensemble", run_folder, standard_input=text).output == alone.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-best", "9"], "--num-best 9: must be from 1 to the beam, 4; for more, raise --beam"),
        (["--document", "--json"], "--document: reads and writes one text"),
        (["--require", ""], "transduce: require '': must not be blank; give a word or phrase, or leave it out\n"),
        (["--require", "x\udce9"], "transduce: require 'x\\udce9': must be UTF-8; correct it, or leave it out\n"),
        (["--forbid", "x\udce9"], "transduce: forbid 'x\\udce9': must be UTF-8"),
        (["--prefix", "x\udce9"], "transduce: prefix 'x\\udce9': must be UTF-8"),
        (["--samples", "3", "--prefix", "ba"], "samples cannot be combined with required words"),
        (["--temperature", "0"], "transduce: --temperature 0.0: must be greater than 0"),
        (["--temperature", "2"], "--temperature, --top-k and --top-p apply to sampling: set --samples, or leave"),
        (["--samples", "2", "--top-p", "0"], "transduce: --top-p 0.0: must be greater than 0"),
        (["--samples", "-1"], "transduce: --samples -1: must be greater than or equal to 0"),
        (["--samples", "2", "--num-best", "3"], "transduce: --num-best 3: must be from 1 to the number of samples, 2"),
        (["--seed", "7"], "transduce: --seed 7: applies to sampling: set --samples, or leave it out"),
        (["--length-penalty", "11"], "--length-penalty 11.0: must be less than or equal to 10"),
        (["--glossary", "missing.tsv"], "missing.tsv"),
        (["--mbr"], "minimum Bayes risk ranks samples: set --samples"),
        (["--precision", "float8"], "float8"),
        (["--ensemble", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_explained(transduce: Any, run_folder: Path, options: list[str], message: str) -> None:
    answer = transduce("translate", run_folder, *options, standard_input=b"ba\n")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert message in answer.messages


def test_each_line_may_have_its_own_options(transduce: Any, run_folder: Path) -> None:
    requests = [
        {"text": "ba do fi"},
        {"text": "ba do fi", "require": ["ukuk"]},
        {"text": "ba do fi", "prefix": "el"},
        {"text": ""},
    ]
    given = "".join(json.dumps(request) + "\n" for request in requests).encode()
    plain, required, begun, blank = transduce("translate", run_folder, "--json-input", standard_input=given).lines
    assert [plain] == transduce("translate", run_folder, standard_input=b"ba do fi\n").lines
    assert required.split().count("ukuk") == 1
    assert begun.startswith("el")
    assert blank == ""
    both = transduce(
        "translate", run_folder, "--json-input", "--require=ukuk", "--prefix=el", standard_input=given[:20]
    )
    assert both.lines[0].startswith("el")
    assert "ukuk" in both.lines[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "ba", "requires": []}', "line 2: requires"),
        ('{"require": ["ba"]}', "line 2: text"),
        ("ba do", "line 2"),
        ('{"text": "ba", "forbid": [""]}', "line 2"),
    ],
)
def test_what_stands_before_a_line_that_is_no_request_is_translated(
    transduce: Any, run_folder: Path, line: str, message: str
) -> None:
    given = f'{{"text": "ba do"}}\n{line}\n{{"text": "fi"}}\n'.encode()
    answer = transduce("translate", run_folder, "--json-input", standard_input=given)
    assert answer.exit_code == 2
    assert answer.lines == transduce("translate", run_folder, standard_input=b"ba do\n").lines
    assert f"standard input, {message}" in answer.messages


@pytest.mark.parametrize("options", [("--samples=2",), ("--protect",)])
def test_what_stands_before_a_request_that_cannot_be_combined_is_translated(
    transduce: Any, run_folder: Path, options: tuple[str, ...]
) -> None:
    given = b'{"text": "ba do"}\n{"text": "fi"}\n{"text": "ku", "forbid": ["uk"]}\n{"text": "le"}\n'
    answer = transduce("translate", run_folder, "--json-input", *options, standard_input=given)
    assert answer.exit_code == 2
    assert answer.lines == transduce("translate", run_folder, *options, standard_input=b"ba do\nfi\n").lines
    assert "standard input, line 3: " in answer.messages
    assert "cannot be combined" in answer.messages


LONG = " ".join(["ba do fi ku"] * 20)


def test_a_document_keeps_what_cannot_be_translated(transduce: Any, run_folder: Path) -> None:
    text = f"- ba do.\n- {LONG}\n\n- fi\n"
    free = transduce("translate", run_folder, "--document", standard_input=text.encode())
    word = free.lines[1].split()[1]
    given = ("translate", run_folder, "--document", "--forbid", word)
    answer = transduce(*given, standard_input=text.encode())
    first, second, blank, third = answer.lines
    assert (answer.exit_code, second, blank) == (0, f"- {LONG}", "")
    assert word not in first.split() + third.split()
    problem = "no translation meets the constraints, or the text is too long for constraints"
    assert answer.messages.startswith(f"sentence 2: {problem}; it is left untranslated\n")
    assert free.messages.startswith("sentence 2 is longer than the model reads at once; translated in ")


@pytest.mark.exhaustive
def test_a_long_line_says_how_its_spans_were_kept(transduce: Any, run_folder: Path, workspace: Path) -> None:
    (workspace / "terms.tsv").write_text("ku\tXYZ\n", encoding="utf-8")
    text = " ".join(["Ba do fi ku."] * 8) + " {x}\n- {y}\n"
    given = ("translate", run_folder, "--protect", "--glossary", "terms.tsv")
    answer = transduce(*given, standard_input=text.encode())
    assert answer.exit_code == 0
    assert answer.lines[0].count("XYZ") == 8
    assert answer.lines[1] == "- {y}"
    assert "do fi XYZ." not in answer.lines[0]  # it was translated
    said = answer.messages.split("\n")
    assert said[0].startswith("line 1 is longer than the model reads at once; translated in ")
    assert not any(line.startswith("line 2") for line in said)  # there is nothing to translate
    # So long that there is no room for the terms.
    short = transduce(*given, "--max-length", "2", standard_input=b"ba ku do fi\n")
    assert "XYZ" in short.lines[0]
    kept = "line 1: no translation (|of a whole sentence )keeps all protected spans; "
    assert re.match(f"{kept}(left untranslated|translated in parts)", short.messages)


def test_no_translation_is_longer_than_asked(transduce: Any, run_folder: Path) -> None:
    text = b"ba do fi ku le\n" * 3
    plain = transduce("translate", run_folder, "--json", standard_input=text).lines
    short = transduce("translate", run_folder, "--json", "--max-length", "3", standard_input=text).lines
    assert all(len(json.loads(line)["tokens"]) > 3 for line in plain)
    assert all(len(json.loads(line)["tokens"]) == 3 for line in short)


@pytest.mark.parametrize(
    "options",
    [
        ("--require=ba", "--forbid=ba"),
        ("--prefix=ba do", "--forbid=do"),
        ("--require=",),
        ("--temperature=2",),
        ("--seed=7",),
        ("--samples=4", "--beam=4"),
        ("--min-length=9", "--max-length=8"),
        ("--samples=2", "--temperature=inf"),
        ("--document", "--json-input"),
        ("--document", "--require=ba"),
        ("--document", "--prefix=ba"),
        ("--document", "--samples=4"),
        ("--num-best=9",),
        ("--num-best=0", "--protect"),
        ("--require=ba do", "--require=fi ku le", "--max-length=3"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(
    transduce: Any, run_folder: Path, options: tuple[str, ...]
) -> None:
    answer = transduce("translate", run_folder, *options, standard_input=b"\xff\n")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "UTF-8" not in answer.messages
    assert "Traceback" not in answer.messages


def test_files_are_translated_by_several_processes(process: Any, run_folder: Path, workspace: Path) -> None:
    text = "".join(f"{line}\n" for line in make_lines()[:60]).encode()
    (workspace / "in").mkdir()
    (workspace / "in" / "text").write_bytes(text)
    command = ["translate", run_folder, "--input", "in/*", "--output", "out", "--workers", "2", "--block-lines", "20"]
    answer = process(*command)
    assert (answer.exit_code, answer.output) == (0, b"")
    assert "out is complete" in answer.messages
    assert (workspace / "out" / "text").read_bytes() == process("translate", run_folder, standard_input=text).output


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--output", "out"], "--output: is for files: give them by --input"),
        (["--ray"], "--ray: is for files: give them by --input"),
        (["--translation-column", "t"], "--translation-column: is for files: give them by --input"),
        (["--block-lines", "5"], "--block-lines: is for files: give them by --input"),
        (["--input", "in"], "--input: needs --output"),
        (["--input", "in", "--output", "out", "--workers", "0"], "--workers 0: must be 1 or more"),
        (["--input", "in", "--output", "out", "--document"], "--document: reads standard input"),
        (["--input", "in", "--output", "out"], "in: no file matches"),
    ],
)
def test_flags_of_files_that_do_not_fit(
    transduce: Any, run_folder: Path, workspace: Path, flags: Any, message: str
) -> None:
    answer = transduce("translate", run_folder, *flags)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert message in answer.messages
    assert not (workspace / "out").exists()


def test_a_document_keeps_its_formatting(transduce: Any, run_folder: Path, workspace: Path) -> None:
    given = docx.Document()
    given.add_paragraph("ba do.").runs[0].bold = True
    paragraph = given.add_paragraph("fi ")
    paragraph.add_run("ku").italic = True
    given.save("given.docx")
    answer = transduce("translate-file", run_folder, "given.docx", "found.docx", "--device=cpu")
    assert answer.exit_code == 0
    first, second = docx.Document("found.docx").paragraphs
    translator = Translator.load(run_folder)
    assert (first.text, first.runs[0].bold) == (translator.find_translations(["ba do."])[0].text, True)
    assert [run.italic for run in second.runs] == [None, True]
    before = Path("found.docx").read_bytes()
    again = transduce("translate-file", run_folder, "given.docx", "found.docx")
    assert (again.exit_code, Path("found.docx").read_bytes()) == (2, before)
    assert "found.docx: exists already" in again.messages
    assert "--force" in again.messages


def test_a_text_as_a_file(transduce: Any, run_folder: Path, workspace: Path) -> None:
    Path("given.txt").write_bytes(b"ba do.\r\n\r\nfi ku.\r\n")
    assert transduce("translate-file", run_folder, "given.txt", "found.txt").exit_code == 0
    piped = transduce("translate", run_folder, "--document", standard_input=b"ba do.\n\nfi ku.\n")
    assert Path("found.txt").read_bytes() == piped.output.replace(b"\n", b"\r\n")


def test_what_is_left_untranslated_in_a_file_is_said(transduce: Any, run_folder: Path, workspace: Path) -> None:
    text = " ".join(["ba do fi ku"] * 60)  # more than the model reads at once
    Path("given.html").write_text(f"<p>ba 17</p><p>{text}</p>", encoding="utf-8")
    forbidden = [f"--forbid={word[::-1]}" for word in text.split()[:4]]  # the model spells words backwards
    answer = transduce("translate-file", run_folder, "given.html", "found.html", *forbidden, "--guard")
    assert (answer.exit_code, answer.messages.count("sentence 'ba do fi ku")) == (0, 1)
    assert "no translation meets the constraints" in answer.messages
    assert "it is left untranslated" in answer.messages
    assert "guard: " in answer.messages


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["given.pdf", "found.pdf"], "must end in one of"),
        (["given.txt", "found.docx"], "must end in .txt"),
        (["given.docx", "found.docx"], "damaged"),
        (["missing.txt", "found.txt"], "missing.txt"),
        (["given.txt", "found/given.txt"], "found/given.txt: must be a file in a folder that exists"),
        (["given.txt", "given.txt", "--force"], "given.txt: is the document to translate, which would be lost"),
        (["given.txt", "link.txt", "--force"], "link.txt: is the document to translate"),
        (
            ["given.txt", "found.txt", "--samples", "4"],
            "--samples 4: a document has one translation: choose it from the samples by --mbr, or draw 1",
        ),
    ],
)
def test_what_is_no_document(
    transduce: Any, run_folder: Path, workspace: Path, arguments: list[str], message: str
) -> None:
    for name in ("given.txt", "given.docx", "given.pdf"):
        Path(name).write_bytes(b"ba do.")
    Path("link.txt").symlink_to("given.txt")
    answer = transduce("translate-file", run_folder, *arguments)
    assert (answer.exit_code, message in answer.messages) == (2, True)
    assert Path("given.txt").read_bytes() == b"ba do."
    assert not list(Path().glob("found*"))


@pytest.mark.parametrize("option", ["--num-best", "--prefix", "--require"])
def test_help_for_documents_has_no_option_that_is_refused(
    transduce: Any, run_folder: Path, workspace: Path, option: str
) -> None:
    assert option not in transduce("translate-file", "--help").output.decode()
    assert option in transduce("translate", "--help").output.decode()
    Path("given.txt").write_bytes(b"ba do.")
    answer = transduce("translate-file", run_folder, "given.txt", "found.txt", f"{option}=2")
    assert answer.exit_code == 2
    assert f"Unknown option: {option}." in answer.messages
    assert not Path("found.txt").exists()
