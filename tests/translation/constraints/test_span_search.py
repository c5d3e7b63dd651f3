import random
import re
from itertools import pairwise

import pytest
from hypothesis import given, strategies

from transduce.text import USUAL_KINDS, find_kept_spans, find_protected_spans
from transduce.translation.confidence.alignment import Alignment, Link
from transduce.translation.constraints.span_search import insert_spans, remove_spans

ALL_KINDS = (*USUAL_KINDS, "number")


def aligned(source: str, target: str, links: str) -> Alignment:
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    return Alignment(tuple(source.split()), tuple(target.split()), tuple(Link(*pair, 1.0) for pair in pairs))


@pytest.mark.parametrize(
    ("text", "bare", "translation", "links", "expected"),
    [
        (
            "a dog at {x} runs",
            "a dog at runs",
            "ein Hund bei läuft",
            "0-0 1-1 2-2 3-3",
            "ein Hund bei {x} läuft",
        ),
        ("see http://x.y.", "see.", "siehe.", "0-0", "siehe http://x.y."),
        ("a <b>dog</b> runs", "a dog runs", "es läuft ein Hund", "0-2 1-3 2-1", "es läuft ein <b>Hund</b>"),
        ("<i>a</i> dog", "a dog", "ein Hund", "0-0 1-1", "<i>ein</i> Hund"),
        ("{n} dogs", "dogs", "Hunde", "0-0", "{n} Hunde"),
        ("dogs {n}", "dogs", "Hunde", "", "Hunde {n}"),
        ("a {x} b {y} c", "a b c", "C B A", "0-2 1-1 2-0", "C B A {x} {y}"),
        ("no span", "no span", "kein Span", "0-0", "kein Span"),
        # brackets and quotation marks around a span go with it
        ("a dog ({x}) runs", "a dog runs", "es läuft ein Hund", "0-2 1-3 2-1", "es läuft ein Hund ({x})"),
        ('a "{x}", b', "a, b", "B, A", "0-1 1-0", 'B, A "{x}"'),
        # what is glued to a word is glued to that word alone
        ("a %dpx dog", "a px dog", "ein px Hund", "0-0 1-1 2-2", "ein %dpx Hund"),
        ("a {n}s dog", "a s dog", "ein Hund", "0-0 2-1 1-1", "ein {n} Hund"),
        ("dog#{n}x runs", "dogx runs", "es läuft", "0-1 1-1", "es läuft #{n}"),
        ("a red</b>dish <i>dog</i>", "a reddish dog", "ein Hund rot", "0-0 1-2 2-1", "ein Hund rot</b><i></i>"),
        ("one<br/>two", "onetwo", "zwei eins", "0-0", "zwei eins<br/>"),
        ("<br/><b> Yes</b> he does", "Yes he does", "Ja er tut", "0-0 1-1 2-2", "<br/><b> Ja</b> er tut"),
        ("<b>un</b>real <b>dog</b>", "unreal dog", "der Hund", "1-1", "<b>der</b> <b>Hund</b>"),
        # one space, on the side of the tag where the source has it
        ("<b>two dogs </b>run", "two dogs run", "zwei Hunde rennen", "0-0 1-1 2-2", "<b>zwei Hunde </b>rennen"),
        ("two dogs<b> run</b>", "two dogs run", "zwei Hunde rennen", "0-0 1-1 2-2", "zwei Hunde<b> rennen</b>"),
        ("two<b> dogs </b>run.", "two dogs run.", "rennen zwei Hunde.", "0-1 1-2 2-0", "rennen zwei<b> Hunde</b>."),
        (
            "<i>two <b>dogs </b></i>run",
            "two dogs run",
            "zwei Hunde rennt",
            "0-0 1-1 2-2",
            "<i>zwei <b>Hunde </b></i>rennt",
        ),
        ("a <i><b>dog</b></i> runs", "a dog runs", "ein Hund rennt", "0-0 1-1 2-2", "ein <i><b>Hund</b></i> rennt"),
        ("a <i><b>dog</b></i>.", "a dog.", "ein Hund.", "0-0 1-1", "ein <i><b>Hund</b></i>."),
        ("a <b>{x}</b> dog", "a dog", "ein Hund", "0-0 1-1", "ein <b>{x}</b> Hund"),
        ("see <b>http://x.y</b>.", "see.", "siehe.", "0-0", "siehe <b>http://x.y</b>."),
        (
            "a <b>dog</b><i> runs</i>",
            "a dog runs",
            "es läuft ein Hund",
            "0-2 1-3 2-1",
            "es läuft ein <b>Hund</b><i></i>",
        ),
        ("a dog <b>runs </b>", "a dog runs", "ein Hund rennt", "0-0 1-1 2-2", "ein Hund <b>rennt </b>"),
        # an element without words stays so, and touches any word
        ("a <a id='x'></a>dog", "a dog", "ein Hund", "0-0 1-1", "ein <a id='x'></a>Hund"),
        ("a dog<sup>1</sup>, too", "a dog, too", "ein Hund auch", "0-0 1-1 2-2", "ein Hund<sup>1</sup> auch"),
        ("a dog<sup>1</sup>.", "a dog.", "ein Hund.", "0-0 1-1", "ein Hund<sup>1</sup>."),
        ("a dog <i></i> runs.", "a dog runs.", "es rennt ein Hund.", "0-2 1-3 2-1", "es rennt ein Hund <i></i>."),
        ("a<b> </b>dog", "a dog", "ein Hund", "0-0 1-1", "ein<b> </b>Hund"),
        ("two <b>5</b> dogs", "two dogs", "zwei Hunde", "0-0 1-1", "zwei <b>5</b> Hunde"),
        ("dogs<b>.</b>", "dogs.", "Hunde.", "0-0", "Hunde<b>.</b>"),
        ("<i>- a dog</i>", "a dog", "ein Hund", "0-0 1-1", "<i>- ein Hund</i>"),
    ],
)
def test_spans_go_where_their_neighbours_went(
    text: str, bare: str, translation: str, links: str, expected: str
) -> None:
    found, removed = remove_spans(text, find_kept_spans(text, find_protected_spans(text, ALL_KINDS), "en"))
    assert found == bare
    assert insert_spans(translation, removed, aligned(bare, translation, links)) == expected


@pytest.mark.parametrize(
    ("text", "translation", "links", "expected"),
    [
        ("Press {key} to save.", "按下 即可 保存 。", "0-0 1-1 2-2 2-3", "按下 {key} 即可保存。"),
        ("Ask <b>Anna</b> now.", "现在 请 问 安娜 。", "0-1 0-2 1-3 2-0 2-4", "现在请问<b>安娜</b>。"),
        ("Write to http://a.b/c.", "请 写 给 。", "0-0 0-1 1-2 1-3", "请写给 http://a.b/c。"),
        ("One<br/>two", "一 二", "0-0 1-1", "一二<br/>"),
        ("a <br/> b", "一 二", "0-0 1-1", "一<br/>二"),
        ("按 下 <b>保 存</b> 。", "Press save .", "0-0 1-0 2-1 3-1 4-2", "Press <b>save</b>."),
        ("看 {x} 书 。", "Read the book .", "0-0 1-2 2-3", "Read {x} the book."),
    ],
)
def test_spans_go_between_words_without_spaces(text: str, translation: str, links: str, expected: str) -> None:
    def close_up(spaced: str) -> str:  # the words of the parameters are parts of runs of characters
        return re.sub(r"(?<=[\u2e80-\uffff]) (?=[\u2e80-\uffff])|(?<=\w) (?=\.)", "", spaced)

    bare, _ = remove_spans(text, find_protected_spans(text, ALL_KINDS))
    _, removed = remove_spans(close_up(text), find_protected_spans(close_up(text), ALL_KINDS))
    assert insert_spans(close_up(translation), removed, aligned(bare, translation, links)) == expected


@given(
    strategies.lists(
        strategies.sampled_from(["dog", "a", "2nd", "{0}", "5", "%s", "x", ".", "#", "(", ")"]), max_size=8
    ),
    strategies.permutations(["Hund", "ein", "läuft"]),
    strategies.data(),
)
def test_no_span_glues_itself_to_another_word(parts: list[str], words: list[str], data: strategies.DataObject) -> None:
    text = data.draw(strategies.sampled_from([" ", ""])).join(parts)
    spans = find_protected_spans(text, ALL_KINDS)
    bare, removed = remove_spans(text, spans)
    translation = " ".join(words)
    links = tuple(Link(number, number % 3, 1.0) for number in range(len(bare.split())))
    found = insert_spans(translation, removed, Alignment(tuple(bare.split()), tuple(words), links))
    assert [word for word in re.findall(r"\w+", found) if word in words] == words


WORDS = strategies.lists(strategies.sampled_from(["dog", "a", "runs.", "blue,", "{0}", "<b>", "</b>", "http://x.y/z"]))


@given(WORDS, WORDS, strategies.data())
def test_every_span_is_there_once_and_in_order(
    words: list[str], others: list[str], data: strategies.DataObject
) -> None:
    text = " ".join(words)
    spans = [word for word in words if word[0] in "{<h"]
    bare, removed = remove_spans(text, find_protected_spans(text))
    assert [span.text for span in removed] == spans
    assert not any(span in bare for span in ("{0}", "<b>", "</b>", "http"))
    translation = " ".join(word for word in others if word[0] not in "{<h")
    places = strategies.integers(0, 9)
    links = data.draw(strategies.lists(strategies.tuples(places, places)))
    possible = [(a, b) for a, b in links if a < len(bare.split()) and b < len(translation.split())]
    alignment = Alignment(
        tuple(bare.split()), tuple(translation.split()), tuple(Link(source, target, 1.0) for source, target in possible)
    )
    found = insert_spans(translation, removed, alignment)
    place = 0
    for span in spans:
        place = found.index(span, place) + len(span)
    for span in set(spans):
        assert found.count(span) == spans.count(span)
        found = found.replace(span, " ")
    assert "".join(found.split()) == "".join(translation.split())


ELEMENTS = [("<b>", "</b>"), ("<i>", "</i>"), ("<a id='x'>", "</a>")]


@given(
    strategies.lists(strategies.integers(0, 6), min_size=2, max_size=6),
    strategies.lists(strategies.booleans(), min_size=12, max_size=12),
    strategies.permutations(range(6)),
    strategies.randoms(use_true_random=False),
)
def test_between_two_words_is_one_space_whatever_the_tags(
    places: list[int], inside: list[bool], order: list[int], chance: random.Random
) -> None:
    """Each element marks some of six words, and the space before and after it is inside or outside of it."""
    source = [f"w{number}" for number in range(6)]
    begins, ends = dict[int, str](), dict[int, str]()
    done = 0
    for (start, end), (first, last) in zip(ELEMENTS, pairwise(sorted(set(places))), strict=False):
        if first >= done:
            begins[first], ends[last - 1], done = start, end, last
    gaps = [ends.get(place - 1, "") + begins.get(place, "") for place in range(7)]
    for place, is_inside in zip(range(1, 6), inside, strict=False):
        tags = re.findall("<[^>]*>", gaps[place])
        tags.insert(chance.randint(0, len(tags)) if is_inside else len(tags) // 2, " ")
        gaps[place] = "".join(tags)
    text = "".join(gap + word for gap, word in zip(gaps, [*source, ""], strict=True))
    words = tuple(f"W{number}" for number in order)
    links = tuple(Link(number, order.index(number), 1.0) for number in range(6))
    bare, removed = remove_spans(text, find_kept_spans(text, find_protected_spans(text), "en"))
    assert bare == " ".join(source)
    found = insert_spans(" ".join(words), removed, Alignment(tuple(source), words, links))
    assert re.sub("<[^>]*>", "", found) == " ".join(words)
    if order == sorted(order):
        assert found == text.replace("w", "W")


@given(strategies.lists(strategies.sampled_from(["dog", "a", "<b></b>", "<sup>1</sup>", "<i><br/></i>", " ", ","])))
def test_an_element_without_words_stays_so(parts: list[str]) -> None:
    text = "".join(parts)
    bare, removed = remove_spans(text, find_kept_spans(text, find_protected_spans(text), "en"))
    words = tuple(bare.split())
    links = tuple(Link(number, len(words) - 1 - number, 1.0) for number in range(len(words)))
    found = insert_spans(bare.upper(), removed, Alignment(words, tuple(map(str.upper, words)), links))
    assert re.findall("<.*?>[1]?", found) == re.findall("<.*?>[1]?", text)
    for element in ("<b></b>", "<sup>1</sup>", "<i><br/></i>"):
        assert found.count(element) == text.count(element)
