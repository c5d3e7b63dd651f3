from collections.abc import Callable
from dataclasses import replace

from transduce.text import find_protected_spans, pair_spans
from transduce.translation import (
    AlignmentHead,
    Alternative,
    ForcedDecoder,
    Line,
    LineOptions,
    LineTranslator,
    Translation,
    Translator,
    align_lines,
    align_pairs,
)

Sentences = Callable[..., list[str]]
KINDS = ("tag", "placeholder", "url", "number")
HEAD = AlignmentHead(0)


def decoder_of(translator: Translator) -> ForcedDecoder:
    return ForcedDecoder(translator.engine.model, translator.tokenizer, translator.search)


def test_spans_are_aligned_with_themselves_and_words_as_without_them(translator: Translator) -> None:
    source = 'sun ({x}) <a href="b c">moon</a> river'
    text = '<a href="b c">moon</a> river ({x}) sun'
    line = Line(source, Translation((Alternative(text, -1.0),)), "constrained", tuple(pair_spans(source, text, KINDS)))
    assert line.bare == ("sun moon river", "moon river sun")
    decoder = decoder_of(translator)
    (found,) = align_lines(decoder, [line], HEAD)
    (bare,) = align_pairs(decoder, [line.bare], HEAD)
    assert (found.source, found.target) == (tuple(source.split()), tuple(text.split()))
    # words of the source: sun ({x}) <a href="b c">moon</a> river
    of_source, of_target = (0, 4, 5), (2, 3, 5)
    expected = {0: 2, 1: 3, 4: 1, 2: 4}  # target to source: words within the tag, the placeholder, "moon" below
    expected |= {of_target[link.target]: of_source[link.source] for link in bare.links}
    assert {link.target: link.source for link in found.links} == expected


def test_lines_without_spans_are_aligned_as_pairs(translator: Translator, make_sentences: Sentences) -> None:
    lines = LineTranslator(translator, LineOptions()).translate([*make_sentences(5, seed=2), ""])
    decoder = decoder_of(translator)
    pairs = [(line.source, line.translation.text) for line in lines]
    assert align_lines(decoder, lines, HEAD) == align_pairs(decoder, pairs, HEAD)


def test_what_is_too_long_or_failed_has_no_alignment(translator: Translator, make_sentences: Sentences) -> None:
    long = " ".join(make_sentences(30, seed=1))
    found = LineTranslator(translator, LineOptions(protected=KINDS)).translate([f"{long} {{x}}", "sun"])
    failed = replace(found[1], translation=Translation((Alternative("", float("-inf")),)))
    assert [one is None for one in align_lines(decoder_of(translator), [*found, failed], HEAD)] == [True, False, True]


def test_every_span_of_a_kept_line_is_linked(translator: Translator, make_sentences: Sentences) -> None:
    sources = [f"{line} {{x}} <b>sun</b> 5km http://a.b/c" for line in make_sentences(10, seed=3, most_words=3)]
    lines = LineTranslator(translator, LineOptions(protected=KINDS)).translate(sources)
    for line, aligned in zip(lines, align_lines(decoder_of(translator), lines, HEAD), strict=True):
        linked = {(aligned.source[link.source], aligned.target[link.target]) for link in aligned.links}
        assert len(line.spans) == len(find_protected_spans(line.source, KINDS))
        assert {("{x}", "{x}"), ("5km", "5km"), ("http://a.b/c", "http://a.b/c")} <= linked
