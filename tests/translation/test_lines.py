import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from transduce.bundle import (
    Bundle,
    BundleDescription,
    Languages,
    LogisticFit,
    RecordedConfidence,
    RecordedHead,
    save_bundle,
    update_calibration,
)
from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.model import Transformer
from transduce.search import Constraints, Hypothesis, Sampling
from transduce.text import Tokenizer, find_protected_spans, pair_kept_spans
from transduce.translation import (
    AlignmentHead,
    Confidence,
    ForcedDecoder,
    LineTranslator,
    PyTorchEngine,
    TextConstraints,
    TranslatedLine,
    TranslatedSentence,
    Translation,
    TranslationAlternative,
    TranslationOptions,
    Translator,
    align_lines,
    align_pairs,
    describe_lines,
)
from transduce.translation.confidence.guard import find_problems

Sentences = Callable[..., list[str]]


def translate(translator: Translator, sources: list[str], **options: object) -> list[str]:
    return [
        line.translation.text for line in LineTranslator(translator, TranslationOptions(**options)).translate(sources)
    ]


def test_without_options_lines_are_translated(translator: Translator, make_sentences: Sentences) -> None:
    lines = [*make_sentences(9, seed=10), ""]
    found = LineTranslator(translator, TranslationOptions(num_best=2)).translate(lines)
    assert [line.source for line in found] == lines
    assert [line.translation for line in found] == translator.find_translations(lines, num_best=2)
    assert translate(translator, []) == []


def test_constraints_hold_for_every_line(translator: Translator, make_sentences: Sentences) -> None:
    for text in translate(translator, make_sentences(6, seed=3), prefix="lamp", require=["river"]):
        assert text.startswith("lamp")
        assert text.split().count("river") == 1


def test_spans_and_terms_are_kept(translator: Translator, make_sentences: Sentences) -> None:
    lines = make_sentences(20, seed=4, max_words=4)
    spans = ["{name}", "http://a.de/b?c=1", "<b>", "me@here.org", "moon"]
    sources = [f"{line} {spans[number % 5]} sun" for number, line in enumerate(lines)]
    options = TranslationOptions(protect=("url", "email", "tag", "placeholder"), glossary={"moon": "wind"})
    found = LineTranslator(translator, options).translate(sources)
    for number, (source, line) in enumerate(zip(sources, found, strict=True)):
        kept = "wind" if spans[number % 5] == "moon" else spans[number % 5]
        if kept == "wind":
            assert line.translation.text.split().count("wind") >= source.split().count("moon")
        else:
            assert line.translation.text.count(kept) == 1
        assert line.how in {"constrained", "in parts", "copied", "free"}
    assert any(line.how == "constrained" for line in found)


def test_samples_and_their_choice(translator: Translator, make_sentences: Sentences) -> None:
    lines = make_sentences(5, seed=5)
    drawn = TranslationOptions(num_samples=6, num_best=6, temperature=1.3, seed=2)
    found = [line.translation for line in LineTranslator(translator, drawn).translate(lines)]
    assert found == translator.draw_samples(lines, 6, sampling=Sampling(temperature=1.3), seed=2)
    scores = [[one.score for one in samples.alternatives] for samples in found]
    assert any(of_line != sorted(of_line, reverse=True) for of_line in scores)  # in the order of drawing
    first = LineTranslator(translator, drawn.model_copy(update={"num_best": 2})).translate(lines)
    assert [line.translation.alternatives for line in first] == [samples.alternatives[:2] for samples in found]
    chosen = TranslationOptions(num_samples=6, num_best=6, temperature=1.3, seed=2, minimum_bayes_risk=True)
    for line, samples in zip(LineTranslator(translator, chosen).translate(lines), found, strict=True):
        assert {one.text for one in line.translation.alternatives} == {one.text for one in samples.alternatives}
        scores = {one.text: one.score for one in samples.alternatives}
        assert all(one.score == scores[one.text] for one in line.translation.alternatives)
        utilities = [one.utility for one in line.translation.alternatives]
        assert utilities == sorted(utilities, reverse=True)
        assert all(0 <= utility <= 100 for utility in utilities)


def test_the_guard_tries_once_more_and_counts(translator: Translator, make_sentences: Sentences) -> None:
    lines = make_sentences(30, seed=6, max_words=9)
    plain, guarding = (LineTranslator(translator, TranslationOptions(guard=guard)) for guard in (False, True))
    before, after = (
        [line.translation.text for block in (lines[:15], lines[15:]) for line in one.translate(block)]
        for one in (plain, guarding)
    )
    assert plain.guard_report is None
    report = guarding.guard_report
    suspects = [number for number, text in enumerate(before) if find_problems(lines[number], text)]
    assert report.retried == len(suspects) > 0  # it copies, which is a problem
    assert sum(one != other for one, other in zip(before, after, strict=True)) <= report.kept
    for number, (one, other) in enumerate(zip(before, after, strict=True)):
        if one != other:
            assert len(find_problems(lines[number], other)) < len(find_problems(lines[number], one))


def test_the_guard_never_gives_up_what_was_asked_for(translator: Translator, make_sentences: Sentences) -> None:
    lines = [*make_sentences(15, seed=6, max_words=9), " ".join(make_sentences(30, seed=1))]
    options = TranslationOptions(require=["sun sun sun sun"], guard=True)
    found = LineTranslator(translator, options).translate(lines)
    assert all(line.translation.text.count("sun sun sun sun") == 1 for line in found[:-1])
    assert [line.has_failed for line in found] == [False] * 15 + [True]  # the last is read in parts, and left blank
    assert found[-1].translation.text == ""
    strict = translator.with_search({"min_length": 8, "no_repeat_ngram": 2})
    for line in LineTranslator(strict, TranslationOptions(guard=True)).translate(lines[:15]):
        assert len(line.translation.alternatives[0].pieces) >= 8


def test_forbidden_words_are_nowhere(translator: Translator, make_sentences: Sentences) -> None:
    lines = make_sentences(12, seed=7)
    for text in translate(translator, lines, forbid=["sun", "river"]):
        assert not {"sun", "river"} & set(re.findall(r"\w+", text))


class Speller:
    """Says "sun" in ever other pieces until all that it knows are forbidden, then "moon"."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        index = {piece: number for number, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}
        rows = [["▁sun"], ["▁s", "u", "n"], ["▁", "s", "u", "n"], ["▁moon", "-", "s", "u", "n"], ["▁moon"]]
        self.rows = [[index[piece] for piece in row] for row in rows if all(piece in index for piece in row)]

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        forbidden = constraints[0].forbidden if constraints else ()

        def may_be_said(row: list[int]) -> bool:
            rows = {tuple(row[start:end]) for start in range(len(row)) for end in range(start + 1, len(row) + 1)}
            return rows.isdisjoint(forbidden)

        said = next(row for row in self.rows if may_be_said(row))
        return [[Hypothesis([*said, 1], -1.0, [-0.5] * (len(said) + 1))] for _ in sources]

    def sample(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        raise NotImplementedError

    def check(self, config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        """It has everything."""


def test_a_forbidden_word_is_looked_for_in_every_spelling(tokenizer: Tokenizer) -> None:
    speller = Speller(tokenizer)
    translator = Translator(speller, tokenizer, SearchConfig(max_pieces=20))
    assert translate(translator, ["tree"]) == ["sun"]
    assert translate(translator, ["tree"], forbid=["sun"]) == ["moon"]
    assert len(speller.rows) >= 3


@pytest.mark.exhaustive
def test_what_has_no_forbidden_word_is_translated_as_ever(translator: Translator, make_sentences: Sentences) -> None:
    lines = [*make_sentences(12, seed=8), " ".join(make_sentences(30, seed=1)), ""]
    plain = translate(translator, lines)
    for forbidden in ("su", "un", "iver", "st", "zebra"):  # within words, or nowhere
        assert translate(translator, lines, forbid=[forbidden]) == plain
    found = LineTranslator(translator, TranslationOptions(forbid=("sun",))).translate(lines)
    for line, text in zip(found, plain, strict=True):
        if "sun" not in text.split():
            assert line.translation.text == text
    assert [line.has_failed for line in found] == [False] * 12 + [True, False]  # a long one cannot be searched again


def test_each_line_has_its_own_constraints(translator: Translator, make_sentences: Sentences) -> None:
    sources = ["sun moon"] * 4
    all_constraints = [
        None,
        TextConstraints(required=("lamp",)),
        TextConstraints(prefix="door"),
        TextConstraints(forbidden=("sun",)),
    ]
    texts = [
        line.translation.text
        for line in LineTranslator(translator, TranslationOptions()).translate(sources, all_constraints)
    ]
    assert texts[0] == translator.translate(["sun moon"])[0]
    assert texts[1].split().count("lamp") == 1
    assert texts[2].startswith("door")
    assert "sun" not in texts[3].split()
    every = TranslationOptions(prefix="road", require=("fish",), guard=True)
    both = LineTranslator(translator, every).translate(sources, all_constraints)
    assert all(line.translation.text.split().count("fish") == 1 for line in both)
    assert [line.translation.text.split()[0] for line in both] == ["road", "road", "door", "road"]
    for options in (TranslationOptions(num_samples=2), TranslationOptions(protect=("url",))):
        assert len(LineTranslator(translator, options).translate(sources, [None] * 4)) == 4
        with pytest.raises(ConfigError, match="cannot be combined"):
            LineTranslator(translator, options).translate(sources, all_constraints)


def test_a_space_ends_the_last_word_of_the_prefix(translator: Translator) -> None:
    for word in ("sun", "moon", "river"):
        begin = word[:2]
        (free,) = translate(translator, [word], prefix=begin)
        (whole,) = translate(translator, [word], prefix=f"{begin} ")
        assert free.startswith(begin)
        assert re.match(rf"{begin}( |$)", whole)


def test_what_is_required_may_be_repeated(translator: Translator) -> None:
    strict = translator.with_search({"no_repeat_ngram": 1})
    (prefixed,) = translate(strict, ["moon"], prefix="road road")
    assert prefixed.startswith("road road")
    (required,) = translate(translator.with_search({"no_repeat_ngram": 2}), ["moon"], require=("fish fish",))
    assert "fish fish" in required


def test_terms_are_written_as_the_glossary_has_them(translator: Translator) -> None:
    terms = {"sun": "Hund™", "moon": "zwei\u00a0Hunde", "river": "CO₂ ½", "stone": "…"}
    for kinds in ((), ("tag",)):
        options = TranslationOptions(glossary=terms, protect=kinds)
        lines = LineTranslator(translator, options).translate([f"{term} <b>tree {term}</b>" for term in terms])
        for target, line in zip(terms.values(), lines, strict=True):
            assert line.translation.text.count(target) == 2, line
        assert {line.how for line in lines} == {"constrained"}


def test_terms_are_found_in_capitals_of_the_source_language(translator: Translator) -> None:
    for language, times in (("tr", 1), ("en", 0)):
        turkish = replace(translator, source_language=language)
        (text,) = translate(turkish, ["SIĞIR"], glossary={"sığır": "moon"})
        assert text.split().count("moon") == times


def test_a_phrase_that_cannot_be_written_is_refused() -> None:
    texts = ["sun moon river stone"] * 9
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=16, bos_id=-1, eos_id=1, unk_id=0, minloglevel=9
    )
    tokenizer = Tokenizer.from_bytes(model.getvalue(), "pieces")
    translator = Translator(Speller(tokenizer), tokenizer, SearchConfig(max_pieces=20))
    for options, name in (
        (TranslationOptions(require=["xyz"]), "require"),
        (TranslationOptions(prefix="xyz"), "prefix"),
    ):
        with pytest.raises(ConfigError, match=f"{name} 'xyz': has characters that this model's vocabulary cannot"):
            LineTranslator(translator, options)
    LineTranslator(translator, TranslationOptions(prefix=" ", forbid=("xyz",)))


def test_the_engine_says_what_it_has_before_there_is_a_line(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def check(config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        asked.append((config.diversity, constraints is not None, num_samples))
        if constraints is not None:
            raise ConfigError("no constraints")

    monkeypatch.setattr(translator.engine, "check", check)
    for options in ({"diversity": 0.5}, {"num_samples": 3}):
        LineTranslator(translator, TranslationOptions(**options))
    assert asked == [(0.5, False, 0), (0.0, False, 3)]
    with pytest.raises(ConfigError, match="no constraints"):
        LineTranslator(translator, TranslationOptions(prefix="a"))
    with pytest.raises(ConfigError, match="no constraints"):
        LineTranslator(translator, TranslationOptions()).check(TextConstraints(forbidden=("a",)))
    with pytest.raises(ConfigError, match="num_best = 5: must be from 1 to the beam, 4"):
        LineTranslator(translator, TranslationOptions(num_best=5))


def test_settings_of_the_search_are_options(translator: Translator) -> None:
    assert LineTranslator(translator, TranslationOptions(beam=2)).translator.search.beam == 2
    with pytest.raises(ConfigError, match="beans is not a search setting"):
        translator.with_search({"beans": 2})


def test_what_is_known_of_a_line_with_spans(translator: Translator, make_sentences: Sentences) -> None:
    long = " ".join(make_sentences(30, seed=1))
    sources = ["sun {x} moon", "<p>sun moon</p> <p>river</p>", f"{long} {{y}}", "{z}"]
    options = TranslationOptions(protect=("tag", "placeholder"))
    one, two, parts, none = LineTranslator(translator, options).translate(sources)
    (bare,) = translator.find_translations(["sun moon"])
    best = one.translation.alternatives[0]
    assert best.pieces == bare.alternatives[0].pieces
    assert best.score == pytest.approx(bare.alternatives[0].score, abs=1e-5)
    assert one.has_score
    assert one.bare_texts == ("sun moon", bare.text)
    both = [translation.alternatives[0] for translation in translator.find_translations(["sun moon", "river"])]
    assert two.translation.text == f"<p>{both[0].text}</p> <p>{both[1].text}</p>"
    assert two.translation.alternatives[0].pieces == both[0].pieces + both[1].pieces
    assert two.translation.alternatives[0].score == pytest.approx(both[0].score + both[1].score, abs=1e-5)
    assert two.translation.num_parts == 1
    assert parts.translation.num_parts == translator.find_translations([long])[0].num_parts > 1
    assert not none.has_score


@pytest.mark.exhaustive
def test_a_line_too_long_to_be_read_keeps_its_spans_and_terms(
    make_model: Callable[..., Transformer], translator: Translator, tokenizer: Tokenizer, make_sentences: Sentences
) -> None:
    sentences = [f"{line.capitalize()}." for line in make_sentences(20, seed=12)]
    line = " ".join([*sentences[:10], "See {x} sun.", *sentences[10:]])
    options = TranslationOptions(protect=("placeholder",), glossary={"see": "lamp"})
    (found,) = LineTranslator(translator, options).translate([line])
    assert found.translation.num_parts == 21
    assert found.how in {"constrained", "in parts"}
    before, behind = found.translation.text.split("{x}")
    assert min(len(before), len(behind)) > len(line) / 5  # where it was, about
    # Positions that are learned end somewhere, and a sentence without its end is longer yet than what is read at once.
    learned = make_model(positions="learned", max_positions=16)
    short = Translator(PyTorchEngine(learned, tokenizer.end_id), tokenizer, SearchConfig(max_pieces=15, beam=2))
    for one in (line, " ".join([*make_sentences(20, seed=13), "{x} see"])):
        kept = LineTranslator(short, options).translate(["sun", one, "moon {x}"])
        assert [other.translation.text.count("{x}") for other in kept] == [0, 1, 1]
        assert kept[1].translation.num_parts > 1


def test_the_guard_sees_lines_without_their_spans(translator: Translator) -> None:
    tag = '<a title="one two three four five six">'
    lines = [f"moon {tag}</a> wind", f"{tag} {tag} sun"]
    guarding = LineTranslator(translator, TranslationOptions(protect=("tag",), guard=True))
    guarding.translate(lines)
    assert guarding.guard_report.retried == sum(
        bool(find_problems(bare, text))
        for bare, text in zip(["moon wind", "sun"], translator.translate(["moon wind", "sun"]), strict=True)
    )


def test_terms_that_are_there_anyway_are_not_searched_for(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    search = translator.engine.search

    def watched(sources: list[list[int]], config: object, num_best: int = 1, constraints: object = None) -> object:
        if constraints is not None:
            asked.append(len(sources))
        return search(sources, config, num_best, constraints)

    monkeypatch.setattr(translator.engine, "search", watched)
    there, elsewhere = (translate(translator, ["sun moon"], glossary={"sun": target}) for target in ("sun", "lamp"))
    assert there == translator.translate(["sun moon"])
    assert elsewhere[0].split().count("lamp") == 1
    assert sum(asked) == 1


KINDS = ("tag", "placeholder", "url", "number")
HEAD = AlignmentHead(0)


def decoder_of(translator: Translator) -> ForcedDecoder:
    return translator.make_forced_decoder("a test")


def test_spans_are_aligned_with_themselves_and_words_as_without_them(translator: Translator) -> None:
    source = 'sun ({x}) <a href="b c">moon</a> river'
    text = '<a href="b c">moon</a> river ({x}) sun'
    line = TranslatedLine(
        source,
        Translation((TranslationAlternative(text, -1.0),)),
        "constrained",
        tuple(pair_kept_spans(source, text, KINDS, "")),
    )
    assert line.bare_texts == ("sun moon river", "moon river sun")
    decoder = decoder_of(translator)
    (found,) = align_lines(decoder, [line], HEAD)
    (bare,) = align_pairs(decoder, [line.bare_texts], HEAD)
    assert (found.source, found.target) == (tuple(source.split()), tuple(text.split()))
    # words of the source: sun ({x}) <a href="b c">moon</a> river
    of_source, of_target = (0, 4, 5), (2, 3, 5)
    expected = {0: 2, 1: 3, 4: 1, 2: 4}  # target to source: words within the tag, the placeholder, "moon" below
    expected |= {of_target[link.target]: of_source[link.source] for link in bare.links}
    assert {link.target: link.source for link in found.links} == expected


def test_lines_without_spans_are_aligned_as_pairs(translator: Translator, make_sentences: Sentences) -> None:
    lines = LineTranslator(translator, TranslationOptions()).translate([*make_sentences(5, seed=2), ""])
    decoder = decoder_of(translator)
    pairs = [(line.source, line.translation.text) for line in lines]
    assert align_lines(decoder, lines, HEAD) == align_pairs(decoder, pairs, HEAD)


def test_what_is_too_long_or_failed_has_no_alignment(translator: Translator, make_sentences: Sentences) -> None:
    long = " ".join(make_sentences(30, seed=1))
    found = LineTranslator(translator, TranslationOptions(protect=KINDS)).translate([f"{long} {{x}}", "sun"])
    failed = replace(found[1], translation=Translation((TranslationAlternative("", float("-inf")),)))
    assert [one is None for one in align_lines(decoder_of(translator), [*found, failed], HEAD)] == [True, False, True]


def test_every_span_of_a_kept_line_is_linked(translator: Translator, make_sentences: Sentences) -> None:
    sources = [f"{line} {{x}} <b>sun</b> 5km http://a.b/c" for line in make_sentences(10, seed=3, max_words=3)]
    lines = LineTranslator(translator, TranslationOptions(protect=KINDS)).translate(sources)
    for line, aligned in zip(lines, align_lines(decoder_of(translator), lines, HEAD), strict=True):
        linked = {(aligned.source[link.source], aligned.target[link.target]) for link in aligned.links}
        assert len(line.spans) == len(find_protected_spans(line.source, KINDS))
        assert {("{x}", "{x}"), ("5km", "5km"), ("http://a.b/c", "http://a.b/c")} <= linked


@pytest.fixture
def bundle(tmp_path: Path, copier: Transformer, tokenizer: Tokenizer) -> Bundle:
    description = BundleDescription(
        model=copier.config, search=SearchConfig(), languages=Languages(source="en", target="en")
    )
    save_bundle(tmp_path / "bundle", copier, tokenizer, description)
    return Bundle.open(tmp_path / "bundle")


def details(lines: list[TranslatedLine], bundle: Bundle, translator: Translator) -> list[dict[str, Any]]:
    """The lines as the command line prints them."""
    head, confidence = AlignmentHead.load(bundle), Confidence.load(bundle)
    found = describe_lines(lines, translator, confidence=confidence, head=head, has_alignment=head is not None)
    return list(map(TranslatedSentence.as_json, found))


def test_a_line_with_spans_has_what_is_known_of_its_search(bundle: Bundle, translator: Translator) -> None:
    lines = LineTranslator(translator, TranslationOptions(protect=("placeholder",))).translate(["sun {x} moon", "{x}"])
    one, none = details(lines, bundle, translator)
    assert one["kept"] == "constrained"
    assert one["score"] < 0
    assert "".join(token["piece"] for token in one["tokens"]).replace("▁", " ").strip() == "sun moon</s>"
    assert (none["kept"], none["score"], none["tokens"]) == ("copied", None, [])
    json.dumps([one, none], allow_nan=False)


def test_confidence_and_alignment_are_known_of_what_was_read_as_a_whole(bundle: Bundle, translator: Translator) -> None:
    fit = LogisticFit(intercept=0.5, minimum=1.0, mean=1.0)
    figures = dict.fromkeys(
        ("share_right", "calibration_error_before", "calibration_error", "auc", "chrf_error", "chrf_error_of_mean"), 0.5
    )
    recorded = RecordedConfidence(words=fit, sentences=fit, data={}, beam=1, num_pairs=2, num_words=1, **figures)
    update_calibration(bundle, confidence=recorded, alignment=RecordedHead(layer=0, head=0, offset=0))
    sources = ["sun moon", " ".join(["sun moon river"] * 30), "", "river"]
    lines = LineTranslator(translator, TranslationOptions()).translate(sources)
    found = details(lines, bundle, translator)
    assert [one["parts"] > 1 for one in found] == [False, True, False, False]
    assert ["confidence" in one for one in found] == [True, False, False, True]
    assert ["words" in one for one in found] == [True, False, False, True]
    assert [bool(one.get("alignment")) for one in found] == [True, False, False, True]
    assert found == [one for line in lines for one in details([line], bundle, translator)]


def test_samples_have_score_and_utility(bundle: Bundle, translator: Translator) -> None:
    options = TranslationOptions(num_samples=6, num_best=6, temperature=3.0, minimum_bayes_risk=True)
    (line,) = LineTranslator(translator, options).translate(["sun moon river"])
    (found,) = details([line], bundle, translator)
    every = [found, *found["alternatives"]]
    assert len(every) > 1
    assert all(one["score"] <= 0 <= one["utility"] <= 100 for one in every)
    (plain,) = LineTranslator(translator, TranslationOptions(num_best=2)).translate(["sun"])
    (known,) = details([plain], bundle, translator)
    assert "utility" not in {*known, *known["alternatives"][0]}


@pytest.mark.parametrize(
    "line", ["<b>sun</b> moon <i>river</i> stone", "see https://a.example/b now", "<p>sun.</p> <p>moon.</p>", "salt"]
)
def test_the_model_reads_the_language_tag_before_every_part(
    tagged_translator: Translator, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    sources: list[Sequence[int]] = []
    engine = tagged_translator.engine
    search = engine.search

    def record(ids: Sequence[Sequence[int]], *rest: Any, **named: Any) -> Any:
        sources.extend(ids)
        return search(ids, *rest, **named)

    monkeypatch.setattr(engine, "search", record)
    translating = LineTranslator(tagged_translator, TranslationOptions(protect=["tag", "url"]))
    [german, french] = translating.translate([f">>de<< {line}", f">>fr<< {line}"])
    tags = tagged_translator.tokenizer.encode(">>de<<") + tagged_translator.tokenizer.encode(">>fr<<")
    assert {source[0] for source in sources} == set(tags)
    assert not any(tag in source[1:] for source in sources for tag in tags)
    assert "<<" not in german.translation.text + french.translation.text
    for source, _ in german.spans:
        assert german.source[source.start : source.end] in line


def test_words_of_a_line_with_a_language_tag_are_aligned(tagged_translator: Translator) -> None:
    translating = LineTranslator(tagged_translator, TranslationOptions(protect=["url"]))
    lines = translating.translate([">>de<< sun https://a.example/b moon"])
    decoder = tagged_translator.make_forced_decoder("alignments")
    [alignment] = align_lines(decoder, lines, None)
    assert alignment is not None
    assert alignment.source == (">>de<<", "sun", "https://a.example/b", "moon")
    place = alignment.target.index("https://a.example/b")
    assert (2, place) in {(link.source, link.target) for link in alignment.links}
