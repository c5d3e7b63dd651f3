import math
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from transduce.bundle import Bundle, BundleDescription, Languages, save_bundle
from transduce.config import SearchConfig
from transduce.errors import BundleError, ConfigError, UserError
from transduce.model import Transformer
from transduce.search import Constraints, Hypothesis, Sampling
from transduce.text import Tokenizer
from transduce.translation import LineTranslator, TextConstraints, TranslationOptions, Translator, translate

Sentences = Callable[..., list[str]]


class Echo:
    """An engine that gives every source back, and remembers all of them."""

    def __init__(self, prefix: Sequence[int] = ()) -> None:
        self.prefix = prefix
        self.seen: list[list[int]] = []

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        self.seen += map(list, sources)
        return [[Hypothesis([*self.prefix, *source], -1.0, [])] * num_best for source in sources]

    def sample(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, num_samples: int, sampling: Sampling, seed: int
    ) -> list[list[Hypothesis]]:
        return self.search(sources, config, num_samples)

    def check(self, config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        """It has everything."""


@pytest.fixture
def echo(tokenizer: Tokenizer) -> Translator:
    return Translator(Echo(), tokenizer, SearchConfig(max_pieces=20), "en")


ODD = [
    "sun moon",
    "",
    "   ",
    "\t",
    "river\r",
    "\u200b",
    "🙂 sun 👩‍👩‍👧 moon",
    "سلام عليكم",
    "\u202eשלום\u202c",
    "tab\tin the\tmiddle",
    "\x00\x01",
    "\ud800 half a character",
    "\u2028\u2029\x85\x0b\x0c",
    "</s> <pad> <unk> ▁",
    "ﷺ" * 30,
    "语" * 100,
    "a" * 300,
    "moon",
]


def test_line_n_in_is_line_n_out(translator: Translator, make_sentences: Sentences) -> None:
    lines = make_sentences(40, seed=5)
    with_blanks = [text for line in lines for text in (line, "", "  \t ")]
    found = translator.translate(with_blanks)
    assert len(found) == 120
    assert found[::3] == translator.translate(lines)
    assert set(found[1::3]) | set(found[2::3]) == {""}
    # It learned to copy: a line that slipped would be noticed.
    assert sum(map(str.__eq__, lines, found[::3])) > 20


@pytest.mark.exhaustive
@pytest.mark.parametrize("beam", [1, 4])
def test_a_batch_is_each_alone_in_any_order(translator: Translator, make_sentences: Sentences, beam: int) -> None:
    lines = [*make_sentences(12, seed=6), "", *make_sentences(2, seed=7, max_words=30)]
    together = translator.translate(lines, beam=beam)
    assert [translator.translate([line], beam=beam)[0] for line in lines] == together
    assert translator.translate(lines[::-1], beam=beam)[::-1] == together
    assert translator.translate(lines[3:] + lines[:3], beam=beam) == together[3:] + together[:3]


@pytest.mark.exhaustive
def test_odd_text_is_translated_like_any_other(translator: Translator) -> None:
    together = translator.translate(ODD)
    assert len(together) == len(ODD)
    assert together == [translator.translate([text])[0] for text in ODD]
    assert not any(re.search(r"[\r\n]", text) for text in together)
    assert together[0] == "sun moon"
    assert together[-1] == "moon"
    assert together[1:4] == ["", "", ""]
    assert together[4] == translator.translate(["river"])[0]


def test_what_shows_nothing_is_blank(echo: Translator) -> None:
    blank = ["", " ", "\t", "\r", "\n", "\u3000", "\u200b", "\u2028"]
    assert echo.translate(blank) == [""] * len(blank)
    assert echo.engine.seen == []
    assert echo.find_translations([""])[0].alternatives[0].score == 0.0


@pytest.mark.exhaustive
def test_two_thousand_words(translator: Translator, echo: Translator, make_sentences: Sentences) -> None:
    text = " ".join(make_sentences(2000, seed=8, max_words=1))
    translation = translator.with_search({"beam": 1}).find_translations([text])[0]
    assert translation.num_parts > 100
    assert len(translation.text.split()) > translation.num_parts
    assert echo.translate([text]) == [text]


LONG = [
    "The sun is up. The moon is down, and the river is cold; the stone is old! Is the bird in the tree? Yes.",
    "nodotsnospaces" * 20,
    "風が吹く。" * 20,
    "word " * 50,
    "  many   spaces   between   the   words   of   a   line   that   is   long  ",
    "🙂👍🏽" * 10,
]


@pytest.mark.parametrize("text", LONG)
def test_of_a_long_line_nothing_is_lost(echo: Translator, tokenizer: Tokenizer, text: str) -> None:
    translation = echo.find_translations(["sun", text, "moon"])[1]
    parts = echo.engine.seen[1:-1]
    assert translation.num_parts == len(parts) > 1
    assert all(len(part) <= 20 + 1 for part in parts)
    assert all(part[-1] == tokenizer.end_id for part in parts)
    read = "".join(tokenizer.decode(part) for part in parts)
    assert "".join(read.split()) == "".join(tokenizer.decode(tokenizer.encode(text)).split())
    assert "".join(translation.text.split()) == "".join(read.split())
    assert translation.alternatives[0].score == -len(parts)


def test_a_line_in_parts_has_the_spaces_of_the_line(echo: Translator) -> None:
    for text in ["nodotsnospaces" * 20, "風が吹く。" * 20, "word " * 49 + "word"]:
        assert echo.find_translations([text])[0].num_parts > 1
        assert echo.translate([text])[0].count(" ") == text.count(" ")


@pytest.fixture
def multilingual(tokenizer: Tokenizer) -> Tokenizer:
    """For targets without the last piece, for sources with the token of a language more."""
    pieces = tokenizer.pieces(range(tokenizer.pad_id))
    model = tokenizer.model_bytes
    return Tokenizer.with_vocabulary(model, model, pieces[:-1], "multilingual", source_only=[pieces[-1], ">>de<<"])


def test_every_part_of_a_long_line_has_its_language(echo: Translator, multilingual: Tokenizer) -> None:
    translator = Translator(echo.engine, multilingual, echo.search)
    sentence = "sun moon river stone bird tree wind."
    translation = translator.find_translations([f">>de<< {sentence} {sentence} {sentence}"])[0]
    assert translation.num_parts == 3
    for part in echo.engine.seen:
        assert multilingual.pieces(part[:1]) == [">>de<<"]
        assert part[1:-1] == multilingual.encode(sentence)


def test_a_tag_alone_is_a_blank_line(echo: Translator, multilingual: Tokenizer) -> None:
    translator = Translator(echo.engine, multilingual, echo.search)
    blank = [">>de<<", ">>de<< ", ">>de<< \u3000", " "]
    assert translator.translate(blank) == [""] * 4
    lines = LineTranslator(translator, TranslationOptions(guard=True))
    assert [line.translation.text for line in lines.translate(blank)] == [""] * 4
    assert lines.guard_report is not None
    assert lines.guard_report.retried == 0


def test_what_is_asked_of_a_translation_is_cut_as_targets_are(multilingual: Tokenizer) -> None:
    (last,) = multilingual.pieces([multilingual.pad_id - 2])
    text = last.replace("▁", "")
    constraints = TextConstraints(prefix=text, required=(text,), forbidden=(text,)).as_ids(multilingual)
    (expected,) = multilingual.encode_targets([text])
    assert expected != multilingual.encode(text)
    assert constraints.prefix == constraints.required[0] == constraints.forbidden[0] == tuple(expected)


@pytest.mark.parametrize("sentence", ["sun moon river stone bird tree wind.", "sun moon."])
def test_each_sentence_of_a_long_line_is_alone(echo: Translator, tokenizer: Tokenizer, sentence: str) -> None:
    assert len(tokenizer.encode(sentence)) <= 20 < 12 * len(tokenizer.encode(sentence))
    echo.translate([" ".join([sentence] * 12)])
    assert [tokenizer.decode(part) for part in echo.engine.seen] == [sentence] * 12


def test_a_line_that_just_fits_is_not_cut(echo: Translator, tokenizer: Tokenizer) -> None:
    text = next(text for text in ("sun" + "a" * count for count in range(60)) if len(tokenizer.encode(text)) == 20)
    assert echo.find_translations([text])[0].num_parts == 1
    assert len(tokenizer.encode(text + "🙂")) > 20
    assert echo.find_translations([text + "🙂"])[0].num_parts == 2


def test_a_translation_is_one_line(tokenizer: Tokenizer) -> None:
    ids = {piece: index for index, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}
    ends = [ids["<0x0A>"], ids["<0x0D>"], ids["<0x0A>"]]
    assert tokenizer.decode(ends) == "\n\r\n"
    translator = Translator(Echo(ends), tokenizer, SearchConfig())
    assert translator.translate(["sun"]) == ["    sun"]
    assert [one.text for one in translator.find_translations(["sun"], num_best=2)[0].alternatives] == ["    sun"]


def test_number_of_alternatives(translator: Translator) -> None:
    for beam, num_best in ((4, 4), (4, 1), (1, 1), (2, 2)):
        found = translator.with_search({"beam": beam}).find_translations(["sun moon", ""], num_best=num_best)
        assert [len(translation.alternatives) for translation in found] == [num_best, 1]
        scores = [alternative.score for alternative in found[0].alternatives]
        assert scores == sorted(scores, reverse=True)
        assert found[0].text == found[0].alternatives[0].text
    for beam, num_best in ((4, 5), (4, 0), (4, -1), (1, 2)):
        with pytest.raises(ConfigError, match=f"num_best = {num_best}: must be from 1 to the beam"):
            translator.with_search({"beam": beam}).find_translations(["sun"], num_best=num_best)


@pytest.mark.parametrize("beam", [0, -3])
def test_a_beam_of_nothing_is_refused(translator: Translator, beam: int) -> None:
    with pytest.raises(ConfigError, match=f"beam = {beam}: must be greater than or equal to 1"):
        translator.translate(["sun"], beam=beam)


def test_alternatives_of_parts_are_joined_by_rank(translator: Translator, make_sentences: Sentences) -> None:
    text = " ".join(make_sentences(12, seed=9))
    whole = translator.find_translations([text], num_best=3)[0]
    assert whole.num_parts > 1
    assert len(whole.alternatives) == 3
    assert len({alternative.text for alternative in whole.alternatives}) == 3


@pytest.fixture
def run_folder(tmp_path: Path, copier: Transformer, tokenizer: Tokenizer) -> Path:
    description = BundleDescription(
        model=copier.config, search=SearchConfig(beam=2), languages=Languages(source="en", target="en")
    )
    save_bundle(tmp_path / "run" / "best", copier, tokenizer, description)
    return tmp_path / "run"


def test_loads_a_bundle_or_the_best_of_a_run(run_folder: Path, translator: Translator) -> None:
    for path in (run_folder, run_folder / "best", str(run_folder)):
        loaded = Translator.load(path, device="cpu")
        assert (loaded.search, loaded.source_language) == (SearchConfig(beam=2), "en")
        assert loaded.translate(["sun moon", ""]) == ["sun moon", ""]
    assert translate(run_folder, ["river", "sun"], beam=1) == translator.translate(["river", "sun"], beam=1)


def test_weights_are_read_again_where_pytorch_needs_them(run_folder: Path) -> None:
    texts = ["sun moon", "river"]
    keeping, reading = (
        Translator.load(run_folder, device="cpu", precision="float32", should_keep_weights=keep)
        for keep in (True, False)
    )
    assert reading.draw_samples(texts, 2, seed=3) == keeping.draw_samples(texts, 2, seed=3)
    assert reading.translate(texts) == keeping.translate(texts)


def test_what_cannot_be_loaded(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no such folder"):
        Translator.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="warp"):
        Translator.load(run_folder, device="warp")


def test_one_text_is_no_list_of_texts(echo: Translator) -> None:
    with pytest.raises(UserError, match=r"'A dog' is a single text: give a list of texts"):
        echo.translate("A dog")


def test_settings_of_the_search_can_be_changed(translator: Translator) -> None:
    changed = translator.with_search({"beam": 2, "min_length": 9})
    assert (changed.search.beam, changed.search.min_length, translator.search.beam) == (2, 9, 4)
    assert changed.search.max_pieces == translator.search.max_pieces
    assert changed.translate(["sun"]) != translator.translate(["sun"])
    for settings, message in (
        ({"beam": "many"}, "beam = many: must be"),
        ({"length_penalty": -1.0}, "length_penalty = -1.0: must be greater than or equal to 0"),
        ({"beans": 3}, "beans is not a search setting"),
    ):
        with pytest.raises(ConfigError, match=message):
            translator.with_search(settings)


@pytest.mark.exhaustive
def test_constraints_are_kept(translator: Translator, make_sentences: Sentences) -> None:
    texts = make_sentences(20, seed=11)
    all_constraints = [
        TextConstraints(prefix="door"),
        TextConstraints(required=("stone", "river bird")),
        TextConstraints(),
    ]
    all_constraints.append(TextConstraints(forbidden=("sun", "moon", "river")))
    all_constraints.append(TextConstraints(required=("lamp", "fish")))
    asked = [all_constraints[number % len(all_constraints)] for number in range(20)]
    free = translator.translate(texts)
    found = translator.find_translations(texts, constraints=asked, num_best=2)
    for constraints, unasked, translation in zip(asked, free, found, strict=True):
        words = translation.text.split()
        assert translation.text.startswith(constraints.prefix)
        assert all(translation.text.count(phrase) == 1 for phrase in constraints.required)
        assert not set(constraints.forbidden) & set(words)
        if constraints == TextConstraints():
            assert translation.text == unasked
    alone = [
        translator.find_translations([text], constraints=[constraints], num_best=2)[0]
        for text, constraints in zip(texts, asked, strict=True)
    ]
    assert [[one.text for one in line.alternatives] for line in alone] == [
        [one.text for one in line.alternatives] for line in found
    ]
    with pytest.raises(UserError, match=r"text 1 is longer than the 40 pieces"):
        translator.find_translations([" ".join(make_sentences(30, seed=1))], constraints=[all_constraints[0]])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("phrase", "written"),
    [("CO₂", "CO2"), ("…", "..."), ("fu\u0308r", "für"), ("sun\u00a0moon", "sun moon"), ("sun  moon", "sun moon")],
)
def test_what_is_required_is_there_as_translations_are_written(
    translator: Translator, phrase: str, written: str
) -> None:
    (found,) = translator.find_translations(["tree"], constraints=[TextConstraints(required=(phrase,))])
    assert written in found.text
    assert found.alternatives[0].score > -math.inf
    (without,) = translator.find_translations([written], constraints=[TextConstraints(forbidden=(phrase,))])
    assert written not in without.text


def test_a_translation_is_a_line_without_control_characters(tokenizer: Tokenizer) -> None:
    ids = {piece: index for index, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}
    spoken = "\x00\x03\x0b\x1b\x1c\x7f\x85\u2028\u2029\r\n\t"
    prefix = [ids[f"<0x{byte:02X}>"] for byte in spoken.encode()]
    (found,) = Translator(Echo(prefix), tokenizer, SearchConfig(max_pieces=20)).translate(["sun"])
    assert found == " " * len(spoken) + " sun"


def test_samples_are_the_same_for_the_same_seed(translator: Translator, make_sentences: Sentences) -> None:
    texts = make_sentences(6, seed=12, max_words=8)
    sampling = Sampling(temperature=1.5)
    found = translator.draw_samples(texts, 4, sampling=sampling, seed=3)
    assert [len(translation.alternatives) for translation in found] == [4] * 6
    assert translator.draw_samples(texts[::-1], 4, sampling=sampling, seed=3)[::-1] == found
    assert translator.draw_samples(texts, 4, sampling=sampling, seed=4) != found
    assert len({one.text for one in found[0].alternatives} | {one.text for one in found[1].alternatives}) > 2
    with pytest.raises(ConfigError, match="num_samples = 0"):
        translator.draw_samples(texts, 0)


def test_pieces_and_their_scores_come_with_each_translation(translator: Translator) -> None:
    best = translator.find_translations(["sun moon"])[0].alternatives[0]
    assert "".join(best.pieces).replace("▁", " ").strip() == "sun moon</s>"
    length = len(best.pieces)
    assert len(best.token_scores) == length
    assert best.score == pytest.approx(sum(best.token_scores) / ((5 + length) / 6) ** translator.search.length_penalty)


def test_an_ensemble_averages_probabilities(
    run_folder: Path, tmp_path: Path, tokenizer: Tokenizer, make_sentences: Sentences
) -> None:
    alone = Translator.load(run_folder, device="cpu")
    twice = Translator.load(run_folder, device="cpu", ensemble=[run_folder])
    expected, found = (one.find_translations(["sun moon", "river"])[0].alternatives[0] for one in (alone, twice))
    assert found.text == expected.text
    assert found.token_scores == pytest.approx(expected.token_scores, abs=1e-5)
    other = Tokenizer.train(make_sentences(300, seed=2), tokenizer.vocabulary, "bpe")
    bundle = Bundle.open(run_folder / "best")
    save_bundle(tmp_path / "other", bundle.load_model(), other, bundle.description)
    with pytest.raises(ConfigError, match="a different tokenizer"):
        Translator.load(run_folder, ensemble=[tmp_path / "other"])
    for target, is_refused in (("fr", True), ("", False)):  # nobody said
        languages = Languages(source="en", target=target)
        described = bundle.description.model_copy(update={"languages": languages})
        save_bundle(tmp_path / f"to {target}", bundle.load_model(), bundle.load_tokenizer(), described)
        with pytest.raises(ConfigError, match=r"en to fr, and .* en to en") if is_refused else nullcontext():
            Translator.load(run_folder, ensemble=[tmp_path / f"to {target}"])


class Repeater(Echo):
    """Says everything twice, but for its third best."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        return [
            [
                Hypothesis([*source[:-1], *source] if rank != 2 else [*source], -1.0 - rank, [])
                for rank in range(num_best)
            ]
            for source in sources
        ]


def test_what_is_required_is_verified_in_the_text(tokenizer: Tokenizer) -> None:
    translator = Translator(Repeater(), tokenizer, SearchConfig(max_pieces=20))
    asked = [
        TextConstraints(required=("sun",)),
        TextConstraints(required=("sun", "sun")),
        TextConstraints(required=("moon",)),
    ]
    found = translator.find_translations(["sun tree"] * 3, constraints=asked, num_best=2)
    assert [[one.text for one in line.alternatives] for line in found[:2]] == [["sun tree"], ["sun tree sun tree"]]
    assert [one.score for one in found[2].alternatives] == [-math.inf]
    assert translator.find_translations([""], constraints=[TextConstraints(required=("sun",))])[0].text == ""


class Hyphenator(Echo):
    """Says "sun-sun" in the pieces of that text, unless those behind the hyphen are forbidden."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        (self.once,), (self.twice,) = (tokenizer.encode_targets([text]) for text in ("sun", "sun-sun"))

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        def ids(asked: Constraints) -> list[int]:
            ends = [phrase for phrase in asked.forbidden if tuple(self.twice[-len(phrase) :]) == phrase]
            return self.once if ends else self.twice

        return [[Hypothesis([*ids(asked), 1], -1.0, [])] for asked in constraints or []]


def test_a_required_word_is_not_said_again_behind_a_hyphen(tokenizer: Tokenizer) -> None:
    translator = Translator(Hyphenator(tokenizer), tokenizer, SearchConfig(max_pieces=20))
    all_constraints = [TextConstraints(required=("sun",)), TextConstraints(required=("sun", "sun"))]
    assert [found.text for found in translator.find_translations(["tree"] * 2, constraints=all_constraints)] == [
        "sun",
        "sun-sun",
    ]


class Speller(Echo):
    """Spells each text in every other way, too, a piece for each byte: the better of two is a whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.ids = {piece: index for index, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}
        self.encode = tokenizer.encode

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        found = []
        for text in ("sun", "moon", "tree", "bird", "fish"):
            in_bytes = [self.ids["▁"], *(self.ids[f"<0x{byte:02X}>"] for byte in text.encode())]
            found += [[*self.encode(text), 1], [*in_bytes, 1]]
        return [[Hypothesis(ids, -1.0 - rank, []) for rank, ids in enumerate(found[:num_best])] for _ in sources]


def test_alternatives_are_different_texts(tokenizer: Tokenizer) -> None:
    translator = Translator(Speller(tokenizer), tokenizer, SearchConfig(beam=4, max_pieces=20))
    (found,) = translator.find_translations(["sun"], num_best=4)
    assert [(one.text, one.score) for one in found.alternatives] == [
        ("sun", -1.0),
        ("moon", -3.0),
        ("tree", -5.0),
        ("bird", -7.0),
    ]
    (held,) = translator.find_translations(["sun"], num_best=4, constraints=[TextConstraints(forbidden=("moon",))])
    assert [one.text for one in held.alternatives] == ["sun", "tree", "bird"]


def test_what_cannot_be_kept_is_refused_by_name(echo: Translator) -> None:
    for constraints, message in (
        (TextConstraints(required=("sun moon",), forbidden=("moon",)), "require 'sun moon': contains 'moon', which is"),
        (TextConstraints(prefix="sun moon", forbidden=("moon",)), "prefix 'sun moon': contains 'moon', which is forb"),
        (TextConstraints(prefix="sun " * 40), r"prefix 'sun sun .*…': has \d+ tokens, but may have at most 20"),
    ):
        with pytest.raises(ConfigError, match=message):
            echo.check(constraints=constraints)
        (found, blank) = echo.find_translations(["sun", ""], constraints=[constraints] * 2)
        assert found.alternatives[0].score == -math.inf
        assert blank.alternatives[0].score == 0
    assert echo.engine.seen == [], "nothing was computed"
    echo.with_search({"no_repeat_ngram": 2}).check(constraints=TextConstraints(prefix="sun moon sun moon"))
    with pytest.raises(ConfigError, match="num_best = 5: must be from 1 to the beam, 4"):
        echo.check(num_best=5)
    echo.check(num_best=5, num_samples=5)
    with pytest.raises(ConfigError, match="min_length = 9 is above max_length = 8"):
        echo.with_search({"max_length": 8, "min_length": 9})
