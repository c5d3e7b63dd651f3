"""Subtitles: what is not text is kept, character for character."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.documents import read_formatted_document
from transduce.documents.markup import Passage, split_markup
from transduce.errors import DocumentError

SUBRIP = """1
00:00:01,000 --> 00:00:02,500 X1:10
<i>Sun</i> & moon.

2
00:00:03,000 --> 00:00:05,000
{\\an8}- River?
- <font color="red">Stone</font> < tree.

3
00:01:03,000 --> 00:01:04,000

4
00:01:05,000 --> 01:00:06,000
A road that is
long, and a lamp.
"""
WEBVTT = """WEBVTT - a film

STYLE
::cue { color: red }

NOTE nothing to translate

first
00:01.000 --> 00:02.000 align:start
<v Mary>Sun <00:01.500>&amp; <c.loud>moon</c>.

01:00:03.000 --> 01:00:04.000
<b>Wind &lt; salt</b>
"""


@pytest.mark.parametrize(("text", "ending"), [(SUBRIP, ".srt"), (WEBVTT, ".vtt")])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_file_is_rebuilt_from_its_own_text(text: str, ending: str, line_end: str) -> None:
    content = text.replace("\n", line_end).encode()
    document = read_formatted_document(content, ending)
    assert document.write(document.text) == content


def test_a_number_without_a_blank_line_before_it_is_no_text() -> None:
    content = b"1\n00:00:01,000 --> 00:00:02,000\nSun 5\n2\n00:00:03,000 --> 00:00:04,000\nMoon\n"
    document = read_formatted_document(content, ".srt")
    assert document.text == "<cue>Sun 5</cue><cue>Moon</cue>"
    assert document.write(document.text) == content


def split_cues(text: str, ending: str = ".srt") -> list[str]:
    """The text of each passage of subtitles, which are checked to be written again as they are."""
    document = read_formatted_document(text.encode(), ending)
    assert document.write(document.text) == text.encode()
    assert document.rules
    passages = [one for one in split_markup(document.text, document.rules) if isinstance(one, Passage)]
    return ["".join(one.get_texts()) for one in passages]


TIMES = "00:00:01,000 --> 00:00:02,000"


@pytest.mark.parametrize(
    ("text", "cues"),
    [
        (f"1\n{TIMES}\nSun\n\nmoon.\n\n2\n{TIMES}\nWind.\n", ["Sun moon.", "Wind."]),
        (f"1\n{TIMES}\nSun,\n \t\n\nmoon.\n\n{TIMES}\nWind.", ["Sun, moon.", "Wind."]),
        (f"1\n{TIMES}\n\nSun.\n\n2\n{TIMES}\nWind.\n\n", ["Sun.", "Wind."]),
        (f"1\n{TIMES}\n- Sun?\n\n- Moon.\n", ["- Sun?", "- Moon."]),
        # Numbers are those of cues, unless they are all of a text.
        (f"1\n{TIMES}\nSun.\n\n2\n\n{TIMES}\nWind.\n\n3\n", ["Sun.", "Wind."]),
        # Text without letters stays as it is.
        (f"1\n{TIMES}\n2020\n\n2\n{TIMES}\n\n3\n{TIMES}\nWind.", ["Wind."]),
    ],
)
def test_text_behind_a_blank_line_belongs_to_its_cue(text: str, cues: list[str]) -> None:
    assert split_cues(text) == cues


def test_a_translation_keeps_blank_lines_within_it() -> None:
    document = read_formatted_document(f"1\n{TIMES}\nSun\n\nmoon.\n\n2\n{TIMES}\nWind.\n".encode(), ".srt")
    changed = document.text.replace("Sun moon.", "one two three four")
    assert document.write(changed).decode() == f"1\n{TIMES}\none two\n\nthree four\n\n2\n{TIMES}\nWind.\n"
    assert f"{TIMES}\none\n\n2" in document.write(document.text.replace("Sun moon.", "one")).decode()
    assert f"{TIMES}\n\n\n2" in document.write(document.text.replace("Sun moon.", "")).decode()


def test_a_comment_behind_a_cue_is_not_translated() -> None:
    text = "WEBVTT\n\n00:01.000 --> 00:02.000\nSun.\n\nNOTE a comment\n\nfirst\n00:03.000 --> 00:04.000\nMoon.\n"
    assert split_cues(text, ".vtt") == ["Sun.", "Moon."]


@pytest.mark.parametrize(
    "times",
    [
        "00:00:15,000-->00:00:16,000",
        "00:00:15.000  -->00:00:16.000",
        "0:00:15 --> 0:00:16",
        "00:00:15,000 -> 00:00:16,000",
        "00:00:15:000 --> 00:00:16:000",
    ],
)
def test_times_may_be_written_without_care(times: str) -> None:
    assert split_cues(f"1\n{TIMES}\nSun.\n\n2\n{times}\nMoon.\n") == ["Sun.", "Moon."]


def test_times_of_a_day_are_text() -> None:
    assert split_cues(f"1\n{TIMES}\n12:30 -> 13:30 lunch\n") == ["12:30 -> 13:30 lunch"]


def test_each_voice_is_a_passage() -> None:
    begin = "WEBVTT\n\n00:01.000 --> 00:02.000\n"
    assert split_cues(f"{begin}<v Bob>Sun and\nmoon\n<v.loud Ann>Two <b>rivers.</b>\n", ".vtt") == [
        "Sun and moon",
        "Two rivers.",
    ]
    assert split_cues(f"{begin}<v Bob>Sun</v>  <v Ann>Moon and</v>\n<video>wind\n", ".vtt") == ["Sun", "Moon and wind"]
    document = read_formatted_document(f"{begin}<v Bob>Sun <v Ann>moon\nand wind\n<v Bob>Salt".encode(), ".vtt")
    assert document.write(document.text.replace("moon and wind", "one two three four")).decode() == (
        f"{begin}<v Bob>Sun <v Ann>one two\nthree four\n<v Bob>Salt"
    )


def test_speakers_are_told_apart_in_text_from_right_to_left() -> None:
    cue = "\u202b- שמש\u202c\n\u202b- ירח\u202c"
    document = read_formatted_document(f"1\n00:00:01,000 --> 00:00:02,000\n{cue}\n".encode(), ".srt")
    assert document.text.count("<cue>") == 2
    assert cue.encode() in document.write(document.text)


def test_text_is_translated_and_all_else_is_kept() -> None:
    document = read_formatted_document(SUBRIP.encode(), ".srt")
    translation = re.sub(r"(?<![<{\\/?&])\b(Sun|moon|River|Stone|tree|road|lamp)\b", "Wort", document.text)
    changed = document.write(translation).decode()
    assert "<i>Wort</i> & Wort.\n" in changed
    assert '{\\an8}- Wort?\n- <font color="red">Wort</font> < Wort.\n' in changed
    assert [line for line in changed.split("\n") if "-->" in line or line.isdigit()] == [
        line for line in SUBRIP.split("\n") if "-->" in line or line.isdigit()
    ]


def test_each_speaker_is_a_passage_and_lines_of_one_are_joined() -> None:
    document = read_formatted_document(SUBRIP.encode(), ".srt")
    assert document.rules
    passages = [one for one in split_markup(document.text, document.rules) if isinstance(one, Passage)]
    assert ["".join(one.get_texts()) for one in passages] == [
        "Sun & moon.",
        "- River?",
        "- Stone < tree.",
        "A road that is long, and a lamp.",
    ]


def test_a_translation_has_as_many_lines() -> None:
    document = read_formatted_document(SUBRIP.encode(), ".srt")
    longer = document.text.replace("A road that is long, and a lamp.", "<i>one two three four five six</i>")
    assert "\n<i>one two three\nfour five six</i>\n" in document.write(longer).decode()
    bound = document.text.replace("A road that is long, and a lamp.", "un mot\xa0! et deux")
    assert "\nun mot\xa0!\net deux\n" in document.write(bound).decode()
    shorter = document.text.replace("A road that is long, and a lamp.", "one")
    assert document.write(shorter).decode().endswith("01:00:06,000\none\n")


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ('A <font color="red">red</font> sun', "A <m0>red</m0> sun"),
        ("A <c.yellow.bg_blue>red</c> sun", "A <m0>red</m0> sun"),
        ("<v.loud Mary>A <lang en-GB>red</lang> sun", "<m0/>A <m1>red</m1> sun"),
        ("A <00:00:01.500>red<ruby>sun<rt>moon</rt></ruby>", "A <m0/>red<m1>sun<m2>moon</m2></m1>"),
        ('A <font color="red>red</font> sun', "A <m0/>red<m1/> sun"),
        ("A <cue>red</cue> <c .x>sun", "A <m0/>red<m1/> <m2/>sun"),
    ],
)
def test_tags_of_one_element_are_a_pair(text: str, marked: str) -> None:
    document = read_formatted_document(f"WEBVTT\n\n00:01.000 --> 00:02.000\n{text}\n".encode(), ".vtt")
    assert document.rules
    (passage,) = [one for one in split_markup(document.text, document.rules) if isinstance(one, Passage)]
    assert passage.to_marked_text() == marked
    assert document.write(document.text).decode().splitlines()[-1] == text


@given(st.lists(st.sampled_from(["<", ">", "</", "c", "cue", ".", " ", "=", '"', "'", "/", "i", "<c.x>", "{\\an8}"])))
def test_any_tags_are_written_again(parts: list[str]) -> None:
    text = f"a{''.join(parts)}b"
    document = read_formatted_document(f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n\n".encode(), ".srt")
    assert document.write(document.text).decode().split("\n")[2] == text


def test_of_several_line_ends_the_most_frequent_is_written() -> None:
    content = SUBRIP.replace("\n", "\r\n").encode()
    mixed = content.replace(b"\r\n", b"\n", 2)
    document = read_formatted_document(mixed, ".srt")
    assert document.write(document.text) == content


def test_a_cue_of_many_lines_takes_linear_time(time_growth: Callable[..., float]) -> None:
    def work(num_lines: int) -> None:
        document = read_formatted_document(b"1\n00:00:01,000 --> 00:00:02,000\n" + b"a\n" * num_lines, ".srt")
        document.write(document.text)

    assert time_growth(work, 1_000, 8_000) < 24  # 8 times the text; squares would be 64


@pytest.mark.parametrize(
    ("content", "ending", "message"),
    [
        (b"", ".srt", "no line with times"),
        (b"Sun.\nMoon.", ".srt", "no line with times"),
        (b"\xff", ".srt", "save it as UTF-8"),
        (b"1\n00:00:01,000 --> 00:00:02,000\nSun.", ".vtt", "first line must be"),
        (b"WEBVTT\n\nSun.", ".vtt", "no line with times"),
    ],
)
def test_what_are_no_subtitles_is_refused(content: bytes, ending: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read_formatted_document(content, ending)


def test_a_speech_without_a_translation_leaves_no_blank_line() -> None:
    content = b"WEBVTT\n\n00:01.000 --> 00:02.000\n- Uh.\n- The sun.\n- Oh\n"
    document = read_formatted_document(content, ".vtt")
    written = document.write("<cue></cue><cue>- Die Sonne.</cue><cue>- Oh</cue>")
    assert written == b"WEBVTT\n\n00:01.000 --> 00:02.000\n- Die Sonne.\n- Oh\n"
