import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.errors import ConfigError, CorpusError, UserError
from transduce.text import SOURCE_MODEL, TARGET_MODEL, VOCABULARY, Tokenizer, fit_vocabulary_size
from transduce.text.tokenizer import _sample

# Characters that NFKC leaves as they are, with single spaces between words.
WORDS = st.text("abcÄßдयம்ታ日本한😀👩🏽𒀀.,!?<>/_[]#1২", min_size=1, max_size=10)
NORMALISED = st.lists(WORDS, max_size=8).map(" ".join)
ANYTHING = st.text(st.characters(codec=None))


@given(text=NORMALISED)
def test_decoding_undoes_encoding(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=ANYTHING)
@example("a</s>b <unk> <pad> <s> </s>")
@example("\ud800 half a pair")
def test_no_text_becomes_a_special_symbol(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert not {tokenizer.unknown_id, tokenizer.end_id, tokenizer.pad_id} & set(ids)
    assert all(1 < index < tokenizer.pad_id for index in ids)


@pytest.mark.parametrize("symbol", ["</s>", "<unk>", "<pad>", "<s>", "<0x41>"])
def test_the_names_of_special_symbols_are_ordinary_text(tokenizer: Tokenizer, symbol: str) -> None:
    text = f"ba {symbol} do{symbol}"
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ba\tdo", "ba do"),
        ("  ba   do ", "ba do"),
        ("ﬁ", "fi"),
        ("A\u0308", "Ä"),
        ("▁ba", "ba"),
        ("\u200b", ""),
        ("", ""),
    ],
)
def test_text_is_normalised(tokenizer: Tokenizer, text: str, expected: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_many_at_once_are_as_one_by_one(tokenizer: Tokenizer, corpus: list[str]) -> None:
    texts = [*corpus, "", "</s>", "日本"]
    assert tokenizer.encode_all(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_all(tuple(texts)) == tokenizer.encode_all(texts)
    assert tokenizer.encode_all([]) == []


def test_ids_are_in_the_order_that_other_programs_expect(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocabulary == 400
    assert (tokenizer.unknown_id, tokenizer.end_id, tokenizer.pad_id) == (0, 1, 399)
    assert tokenizer.pieces([0, 1, 2, 257, 399]) == ["<unk>", "</s>", "<0x00>", "<0xFF>", "<pad>"]
    assert len(set(tokenizer.pieces(range(400)))) == 400


def test_decoding_ignores_the_end_and_padding(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("ba do")
    assert tokenizer.decode([1, *ids, 1, 399, 399]) == "ba do"
    assert tokenizer.decode([1, 399]) == tokenizer.decode([]) == ""


def test_pieces_are_what_is_read(tokenizer: Tokenizer) -> None:
    assert "".join(tokenizer.pieces(tokenizer.encode("badofi leku"))) == "▁badofi▁leku"


def test_a_tokenizer_comes_back_from_disk(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer.model_bytes)
    loaded = Tokenizer.load(path)
    assert loaded.model_bytes == tokenizer.model_bytes
    assert loaded.vocabulary == tokenizer.vocabulary
    assert loaded.encode("ba do") == tokenizer.encode("ba do")


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x01" * 100])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"tokenizer\.model: is .*not a SentencePiece model.*--eos_id=1"):
        Tokenizer.load(path)
    assert capfd.readouterr() == ("", "")


def test_a_model_cut_off_anywhere_is_refused_or_has_fewer_pieces(tokenizer: Tokenizer) -> None:
    whole = tokenizer.model_bytes
    for size in range(0, len(whole), 1999):
        try:
            assert Tokenizer.from_bytes(whole[:size], "cut").vocabulary < tokenizer.vocabulary
        except UserError as error:
            assert "cut: " in str(error)  # noqa: PT017 - either outcome is right


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.model: cannot be read \(No such file"):
        Tokenizer.load(tmp_path / "none.model")
    with pytest.raises(UserError, match=r"tokenizer\.model: cannot be read \(No such file"):
        Tokenizer.load(tmp_path)


def test_other_ids_are_refused_with_the_right_flags(foreign_model: Callable[..., bytes]) -> None:
    other = foreign_model(unk_id=3, eos_id=2, bos_id=1, pad_id=0)
    with pytest.raises(
        UserError, match=r"other: <unk> must have the id 0 and </s> the id 1, but have 3 and 2; .*--unk_id=0"
    ):
        Tokenizer.from_bytes(other, "other")


def test_the_fitted_vocabulary_grows_with_the_corpus() -> None:
    sizes = [fit_vocabulary_size(num_pairs) for num_pairs in range(0, 3_000_000, 1000)]
    assert sizes == sorted(sizes)
    assert all(size % 8 == 0 for size in sizes)
    assert (sizes[0], sizes[100], sizes[-1]) == (512, 9488, 37_000)


CHINESE = ["".join(chr(0x4E00 + (number * number + place * 37) % 1500) for place in range(20)) for number in range(200)]


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_training_gives_the_same_bytes_in_every_process(corpus: list[str], algorithm: str) -> None:
    here = Tokenizer.train(corpus, 330, algorithm).model_bytes
    program = (
        "import ast, sys; from transduce.text import Tokenizer; "
        "corpus, algorithm = ast.literal_eval(sys.stdin.read()); "
        "sys.stdout.buffer.write(Tokenizer.train(corpus, 330, algorithm).model_bytes)"
    )
    there = subprocess.run(
        [sys.executable, "-c", program], input=ascii((corpus, algorithm)).encode(), capture_output=True, check=True
    )
    assert there.stdout == here
    assert there.stderr == b""


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_training_gives_the_size_asked_for_and_says_nothing(
    corpus: list[str], algorithm: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert Tokenizer.train(iter(corpus), 350, algorithm).vocabulary == 350
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_too_little_text_is_an_error_that_names_the_largest_size(corpus: list[str], algorithm: str) -> None:
    with pytest.raises(
        ConfigError, match=r'text.vocabulary = 9000 is too large .* at most \d+, or to "fitted"'
    ) as caught:
        Tokenizer.train(corpus, 9000, algorithm)
    largest = int(str(caught.value).split("at most ")[1].split(",")[0])
    assert Tokenizer.train(corpus, largest, algorithm).vocabulary == largest
    assert Tokenizer.train(iter(corpus), 9000, algorithm, shrink=True).vocabulary == largest


def test_too_many_characters_are_an_error_that_names_the_smallest_size() -> None:
    with pytest.raises(
        ConfigError, match=r'text.vocabulary = 600 is too small .* at least \d+, or to "fitted"'
    ) as caught:
        Tokenizer.train(CHINESE, 600, "bpe")
    smallest = int(str(caught.value).split("at least ")[1].split(",")[0])
    assert Tokenizer.train(CHINESE, smallest, "bpe").vocabulary == smallest
    shrunk = Tokenizer.train(iter(CHINESE), 600, "bpe", shrink=True)
    assert shrunk.vocabulary == smallest
    assert shrunk.decode(shrunk.encode(CHINESE[0])) == CHINESE[0]


def test_shrinking_changes_nothing_where_the_size_is_possible(corpus: list[str]) -> None:
    assert Tokenizer.train(corpus, 400, "bpe", shrink=True).pieces(range(400)) == (
        Tokenizer.train(corpus, 400, "bpe").pieces(range(400))
    )


@pytest.mark.parametrize("sentences", [[], ["", "  "], ["a" * 70_000]])
def test_no_text_is_an_error(sentences: list[str]) -> None:
    with pytest.raises(CorpusError, match="is blank, longer than 65,536 bytes, or held out"):
        Tokenizer.train(sentences, 300, "bpe", shrink=True)


def test_a_single_word_is_enough_to_shrink_to() -> None:
    tokenizer = Tokenizer.train(["a"], 512, "bpe", shrink=True)
    assert tokenizer.decode(tokenizer.encode("a b 😀")) == "a b 😀"


def test_long_lines_are_learned_from() -> None:
    tokenizer = Tokenizer.train(["badofi " * 9000], 280, "bpe", shrink=True)
    assert tokenizer.pieces(tokenizer.encode("badofi")) != ["▁", *"badofi"]


def test_an_error_of_the_corpus_stays_itself() -> None:
    def damaged() -> Iterator[str]:
        yield "a line"
        raise CorpusError("line 2 is damaged")

    with pytest.raises(CorpusError, match=r"^line 2 is damaged$"):
        Tokenizer.train(damaged(), 300, "bpe")


def test_a_sample_is_fair_and_always_the_same() -> None:
    sentences = [str(number) for number in range(10_000)]
    sample = _sample(iter(sentences), 1000)
    assert sample == _sample(sentences, 1000)
    assert len(set(sample)) == 1000
    assert 4500 < sum(map(int, sample)) / 1000 < 5500
    assert _sample(["a", " ", "b"], 3) == ["a", "b"]


TEXTS = st.lists(st.one_of(st.text(st.characters(codec=None)), st.text("badofikulemo <>/日😀", max_size=60)))


@given(texts=TEXTS)
def test_without_dropout_it_is_what_sentencepiece_does(tokenizer: Tokenizer, texts: list[str]) -> None:
    assert tokenizer.encode_sampled(texts, 0.0, 1) == tokenizer.encode_all(texts)


@given(texts=TEXTS, dropout=st.floats(0.0, 0.99), seed=st.integers(0, 2**64))
def test_only_the_spelling_changes(tokenizer: Tokenizer, texts: list[str], dropout: float, seed: int) -> None:
    sampled = tokenizer.encode_sampled(texts, dropout, seed)
    assert list(map(tokenizer.decode, sampled)) == list(map(tokenizer.decode, tokenizer.encode_all(texts)))
    assert not {0, 1, tokenizer.pad_id} & {index for ids in sampled for index in ids}


def test_real_words_are_segmented_as_sentencepiece_does(corpus: list[str]) -> None:
    for vocabulary in (300, 500, 700):
        tokenizer = Tokenizer.train(corpus, vocabulary, "bpe")
        assert tokenizer.encode_sampled(corpus, 0.0, 1) == tokenizer.encode_all(corpus)


def test_seeds_decide_and_nothing_else(tokenizer: Tokenizer, corpus: list[str]) -> None:
    corpus = corpus[:100]
    first = tokenizer.encode_sampled(corpus, 0.1, 1)
    other = tokenizer.encode_sampled(corpus, 0.1, 2)
    assert first != other
    assert tokenizer.encode_sampled(iter(corpus), 0.1, 1) == first
    assert Tokenizer.from_bytes(tokenizer.model_bytes, "fresh").encode_sampled(corpus, 0.1, 1) == first
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda seed: tokenizer.encode_sampled(corpus, 0.1, seed), [1, 2, 1, 2]))
    assert found == [first, other, first, other]


def test_every_process_samples_the_same(tokenizer: Tokenizer, corpus: list[str]) -> None:
    program = (
        "import ast, sys; from transduce.text import Tokenizer; "
        "model, corpus = ast.literal_eval(sys.stdin.read()); "
        "print(Tokenizer.from_bytes(model, 'given').encode_sampled(corpus, 0.3, 7))"
    )
    there = subprocess.run(
        [sys.executable, "-c", program],
        input=ascii((tokenizer.model_bytes, corpus)).encode(),
        capture_output=True,
        check=True,
    )
    assert there.stdout.decode().strip() == str(tokenizer.encode_sampled(corpus, 0.3, 7))


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_the_share_of_skipped_merges_is_the_one_asked_for(dropout: float) -> None:
    # One merge makes this word: it is skipped in so many of ten thousand words.
    tokenizer = Tokenizer.train(["a a a a"], 262, "bpe", shrink=True)
    [plain] = tokenizer.encode_all(["a"])
    assert len(plain) == 1
    sampled = tokenizer.encode_sampled(["a"] * 10_000, dropout, 3)
    assert sum(ids != plain for ids in sampled) / 10_000 == pytest.approx(dropout, abs=0.02)


def test_it_samples_like_sentencepiece(tokenizer: Tokenizer, corpus: list[str]) -> None:
    sampled = tokenizer.encode_sampled(corpus, 0.2, 1)
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes)
    theirs = processor.encode(corpus, enable_sampling=True, alpha=0.2, nbest_size=-1)
    assert sum(map(len, sampled)) == pytest.approx(sum(map(len, theirs)), rel=0.03)


@pytest.mark.parametrize("options", [{"model_type": "unigram"}, {"split_by_whitespace": False, "vocab_size": 700}])
def test_models_without_merges_within_words_are_refused(
    foreign_model: Callable[..., bytes], corpus: list[str], options: dict[str, Any]
) -> None:
    model = foreign_model(**options)
    with pytest.raises(
        ConfigError,
        match=r"text\.bpe_dropout = 0\.1: .*does not (support|consist of "
        r"merges).*bpe_dropout to 0",
    ):
        Tokenizer.from_bytes(model, "given").encode_sampled(corpus, 0.1, 1)


SOURCES = [f"the small dog number {number} runs home" for number in range(60)]
TARGETS = [f"der kleine Hund Nummer {number} läuft heim" for number in range(60)]
LANGUAGES = (">>deu<<", ">>gsw_CH<<")
Open = Callable[[bytes], sentencepiece.SentencePieceProcessor]


def trained(lines: list[str], **options: Any) -> bytes:
    """A model as Marian's users train it: `<unk>`, `<s>`, `</s>`, and no bytes."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        minloglevel=2,
        **{"vocab_size": 50, "model_type": "unigram", "hard_vocab_limit": False, **options},
    )
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(index) for index in range(3, processor.get_piece_size())]


@pytest.fixture(scope="session")
def models() -> tuple[bytes, bytes]:
    return trained(SOURCES), trained(TARGETS)


@pytest.fixture(scope="session")
def lists(models: tuple[bytes, bytes]) -> dict[str, list[str]]:
    """The pieces of both sides, of the source alone and of the target alone."""
    source, target = map(pieces_of, models)
    return {
        "shared": ["<unk>", "</s>", *(piece for piece in source if piece in target)],
        "source": [*LANGUAGES, *(piece for piece in source if piece not in target)],
        "target": [piece for piece in target if piece not in source],
    }


@pytest.fixture(scope="session")
def two(models: tuple[bytes, bytes], lists: dict[str, list[str]]) -> Tokenizer:
    """With one list for each side."""
    return Tokenizer.with_vocabulary(
        *models, lists["shared"], "two", source_only=lists["source"], target_only=lists["target"]
    )


@pytest.fixture(scope="session")
def one(models: tuple[bytes, bytes], lists: dict[str, list[str]]) -> Tokenizer:
    """With one list for both."""
    return Tokenizer.with_vocabulary(*models, [*lists["shared"], *lists["source"], *lists["target"]], "one")


def test_ids_are_the_places_of_pieces_in_the_list(one: Tokenizer, two: Tokenizer, lists: dict[str, list[str]]) -> None:
    pieces = [*lists["shared"], *lists["source"], *lists["target"]]
    for tokenizer in (one, two):
        assert tokenizer.vocabulary == len(pieces) + 1
        assert tokenizer.pad_id == len(pieces)
        assert tokenizer.pieces(range(tokenizer.vocabulary)) == [*pieces, "<pad>"]
        assert not tokenizer.is_joint


def test_each_side_is_cut_by_its_own_model(one: Tokenizer, two: Tokenizer, models: tuple[bytes, bytes]) -> None:
    source, target = (sentencepiece.SentencePieceProcessor(model_proto=model) for model in models)
    for tokenizer in (one, two):
        assert [tokenizer.pieces(row) for row in tokenizer.encode_all(SOURCES)] == source.encode(SOURCES, out_type=str)
        assert [tokenizer.pieces(row) for row in tokenizer.encode_targets(TARGETS)] == target.encode(
            TARGETS, out_type=str
        )
        assert tokenizer.encode(SOURCES[7]) == tokenizer.encode_all(SOURCES)[7]
        assert tokenizer.encode_all([]) == tokenizer.encode_targets([]) == []


def test_what_the_other_side_alone_has_is_unknown(one: Tokenizer, two: Tokenizer) -> None:
    assert 0 not in one.encode("the dog")
    for text, encode in (("läuft", two.encode_all), ("why", two.encode_targets)):
        (ids,) = encode([text])
        assert 0 in ids


def test_a_piece_that_the_list_lacks_is_unknown(models: tuple[bytes, bytes], lists: dict[str, list[str]]) -> None:
    without = [piece for piece in lists["shared"] if piece != "▁"]
    tokenizer = Tokenizer.with_vocabulary(*models, [*without, *lists["source"]], "short")
    assert tokenizer.encode("z")[0] == 0


def test_a_character_that_one_model_lacks_may_be_in_the_list(models: tuple[bytes, bytes]) -> None:
    """Marian knows pieces as texts, whichever model made them."""
    tokenizer = Tokenizer.with_vocabulary(*models, ["<unk>", "</s>", "▁", "Ä", "ä"], "by text")
    assert tokenizer.pieces(tokenizer.encode("ä")) == ["▁", "ä"]


@given(text=st.text(st.characters(codec=None)))
def test_no_text_ends_itself(one: Tokenizer, two: Tokenizer, text: str) -> None:
    for tokenizer in (one, two):
        for encode in (tokenizer.encode_all, tokenizer.encode_targets):
            (ids,) = encode([text])
            assert not {tokenizer.end_id, tokenizer.pad_id} & set(ids)


def test_the_name_of_the_end_is_no_end_where_no_letter_of_it_is_known() -> None:
    model = trained(["ba do ku"] * 20, vocab_size=12)
    tokenizer = Tokenizer.with_vocabulary(model, model, ["<unk>", "</s>", *pieces_of(model)], "small")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert processor.encode("</s>", out_type=str) == ["▁", "</s>"]
    assert tokenizer.pieces(tokenizer.encode("</s>")) == ["▁", "<unk>"]


@pytest.mark.parametrize("text", [">>deu<< the dog", ">>deu<<the dog", " >>deu<<   the dog"])
def test_a_known_language_in_front_is_one_token(two: Tokenizer, text: str) -> None:
    assert two.pieces(two.encode(text)) == [">>deu<<", *two.pieces(two.encode("the dog"))]
    language, rest = two.split_tag(text)
    assert (language.strip(), rest) == (">>deu<<", "the dog")
    assert language + rest == text


@pytest.mark.parametrize("text", ["the dog >>deu<<", ">>fra<< the dog", ">>de u<< the dog", "> >deu<< the dog", ">><<"])
def test_anything_else_is_text(two: Tokenizer, text: str) -> None:
    assert not {two.pieces([index])[0] for index in two.encode(text)} & set(LANGUAGES)
    assert two.split_tag(text) == ("", text)


def test_a_language_is_nothing_in_a_target(two: Tokenizer) -> None:
    (ids,) = two.encode_targets([">>deu<< der Hund"])
    assert not {two.pieces([index])[0] for index in ids} & set(LANGUAGES)


def test_a_language_alone_is_a_text(two: Tokenizer) -> None:
    assert two.pieces(two.encode(">>gsw_CH<<")) == [">>gsw_CH<<"]
    assert two.encode("") == []


def test_targets_come_back(one: Tokenizer, two: Tokenizer) -> None:
    for tokenizer in (one, two):
        for text, ids in zip(TARGETS, tokenizer.encode_targets(TARGETS), strict=True):
            assert tokenizer.decode([*ids, tokenizer.end_id, tokenizer.pad_id]) == text
        assert tokenizer.decode([]) == tokenizer.decode([tokenizer.end_id]) == ""


def test_odd_pieces_are_spelled_as_sentencepiece_does(models: tuple[bytes, bytes]) -> None:
    spelled = ["<unk>", "</s>", "▁", "▁dog", "字", "<s>", "<pad>", "a"]
    tokenizer = Tokenizer.with_vocabulary(*models, spelled, "odd")
    assert tokenizer.decode([3, 4, 0, 3]) == "dog字 ⁇  dog"
    assert tokenizer.decode([5, 3, 6, 2, 7]) == "dog a"
    byted = trained(TARGETS, byte_fallback=True, vocab_size=310)
    bytes_ = [f"<0x{byte:02X}>" for byte in "你".encode()]
    tokenizer = Tokenizer.with_vocabulary(byted, byted, ["<unk>", "</s>", *bytes_, "▁"], "bytes")
    assert tokenizer.decode([5, 2, 3, 4]) == "你"
    assert tokenizer.pieces(tokenizer.encode("你")) == ["▁", *bytes_]


def test_one_joint_model_with_its_own_pieces_is_the_tokenizer_of_that_model(tokenizer: Tokenizer) -> None:
    model, pieces = tokenizer.model_bytes, tokenizer.pieces(range(tokenizer.pad_id))
    same = Tokenizer.with_vocabulary(model, model, pieces, "same")
    assert same.is_joint
    assert same.files == tokenizer.files
    assert not Tokenizer.with_vocabulary(model, model, [*pieces, ">>deu<<"], "longer").is_joint
    swapped = [*pieces[:5], pieces[6], pieces[5], *pieces[7:]]
    assert not Tokenizer.with_vocabulary(model, model, swapped, "swapped").is_joint


@pytest.mark.parametrize("kind", ["one", "two"])
def test_it_comes_back_from_its_files(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    assert set(tokenizer.files) == {SOURCE_MODEL, TARGET_MODEL, VOCABULARY}
    for name, content in tokenizer.files.items():
        (tmp_path / name).write_bytes(content)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.files == tokenizer.files
    assert loaded.pieces(range(loaded.vocabulary)) == tokenizer.pieces(range(tokenizer.vocabulary))
    assert loaded.encode_all([">>deu<< läuft", *SOURCES]) == tokenizer.encode_all([">>deu<< läuft", *SOURCES])
    assert loaded.encode_targets(["why", *TARGETS]) == tokenizer.encode_targets(["why", *TARGETS])
    assert (loaded.model_bytes, loaded.target_model_bytes) == (tokenizer.model_bytes, tokenizer.target_model_bytes)


def test_a_source_may_have_no_end(models: tuple[bytes, bytes], lists: dict[str, list[str]], tmp_path: Path) -> None:
    pieces = [*lists["shared"], *lists["source"], *lists["target"]]
    tokenizer = Tokenizer.with_vocabulary(*models, pieces, "endless", ends_sources=False)
    for name, content in tokenizer.files.items():
        (tmp_path / name).write_bytes(content)
    for one in (tokenizer, Tokenizer.load(tmp_path)):
        assert one.as_source([7, 8]) == [7, 8]
        assert one.as_source([]) == [1]  # no network reads nothing
        assert one.as_target([7, 8]) == [7, 8, 1]


def test_any_other_has_one(tokenizer: Tokenizer, one: Tokenizer) -> None:
    for each in (tokenizer, one):
        assert each.as_source([7, 8]) == each.as_target([7, 8]) == [7, 8, 1]
        assert each.as_source([]) == [1]


def vocabulary(**changes: Any) -> bytes:
    return json.dumps({"shared": ["<unk>", "</s>", "a"], "source": [], "target": ["b"], **changes}).encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "object"),
        (vocabulary(shared=["<unk>", "</s>", 3]), r"shared\.2: .*string"),
        (vocabulary(shared="<unk>"), "shared: "),
        (vocabulary(more=[]), "more: "),
        (vocabulary(target=["b", None]), r"target\.1"),
        (b'{"shared": ["<unk>", "</s>", "\\ud800"]}', "lone|surrogate|JSON"),
        (vocabulary(shared=["</s>", "<unk>"]), r"begins with \['</s>', '<unk>'\], must begin with <unk> and </s>"),
        (vocabulary(shared=[]), r"begins with \[\]"),
        (vocabulary(target=["b", "a"]), "the piece 'a' twice"),
        (vocabulary(source=["</s>"]), "the piece '</s>' twice"),
        (vocabulary(source=[""]), "piece 3 of its vocabulary is empty"),
    ],
)
def test_a_damaged_vocabulary_is_refused(two: Tokenizer, content: bytes, words: str) -> None:
    with pytest.raises(UserError, match=f"damaged.*(?:{words})"):
        Tokenizer.from_files({**two.files, VOCABULARY: content}, "damaged")


@pytest.mark.parametrize("name", [TARGET_MODEL, VOCABULARY])
def test_files_that_belong_together_are_all_there(two: Tokenizer, name: str) -> None:
    with pytest.raises(UserError, match=f"lacks {name}, which is required with"):
        Tokenizer.from_files({key: content for key, content in two.files.items() if key != name}, "half")


@pytest.mark.parametrize(("name", "side"), [(SOURCE_MODEL, "source"), (TARGET_MODEL, "target")])
@pytest.mark.parametrize("content", [b"", b"no model", "no text"])
def test_a_damaged_model_is_named(two: Tokenizer, name: str, side: str, content: bytes | str) -> None:
    if isinstance(content, str):  # a piece that is no UTF-8
        content = two.files[name].replace("▁".encode(), b"\xff\xff\xff")
    with pytest.raises(UserError, match=f"damaged, {side}: is .*not a SentencePiece model"):
        Tokenizer.from_files({**two.files, name: content}, "damaged")


def test_merges_are_not_skipped(two: Tokenizer) -> None:
    with pytest.raises(ConfigError, match=r"text\.bpe_dropout = 0\.1: .*set bpe_dropout to 0"):
        two.encode_sampled(SOURCES, 0.1, 1)


TAGS = (">>de<<", ">>bt<<")


@pytest.fixture(scope="module")
def tagged() -> Tokenizer:
    lines = [f"the {word} runs to the {word}" for word in ("dog", "cat", "bird", "horse")]
    return Tokenizer.train(lines, 300, "bpe", tags=TAGS)


def test_a_tag_is_one_token_at_the_beginning_of_a_source(tagged: Tokenizer) -> None:
    text = "the dog runs"
    plain = tagged.encode(text)
    for tag in TAGS:
        first, *rest = tagged.encode(f"{tag} {text}")
        assert tagged.pieces([first]) == [tag]
        assert rest == plain
        assert tagged.decode([first, *rest]) == text
    assert len({tagged.encode(tag)[0] for tag in TAGS}) == 2
    assert tagged.tags == [">>de<<"]  # with the other, no text to translate begins
    assert tagged.encode_sampled([f">>bt<< {text}"], 0.5, 1)[0][0] == tagged.encode(">>bt<<")[0]


@pytest.mark.parametrize("text", ["the dog >>de<< runs", ">>xx<< the dog", ">> de << the dog"])
def test_what_is_no_tag_is_spelled(tagged: Tokenizer, text: str) -> None:
    ids = tagged.encode(text)
    assert not set(tagged.pieces(ids)) & set(TAGS)
    assert tagged.decode(ids) == text


def test_a_target_has_no_tag(tagged: Tokenizer) -> None:
    (ids,) = tagged.encode_targets([">>de<< the dog"])
    assert not set(tagged.pieces(ids)) & set(TAGS)


def test_tags_survive_in_a_file(tagged: Tokenizer) -> None:
    again = Tokenizer.from_files(tagged.files, "again")
    assert again.encode(">>bt<< the dog") == tagged.encode(">>bt<< the dog")


def test_tags_do_not_change_other_pieces(tagged: Tokenizer) -> None:
    lines = [f"the {word} runs to the {word}" for word in ("dog", "cat", "bird", "horse")]
    plain = Tokenizer.train(lines, 298, "bpe")
    assert [piece for piece in tagged.pieces(range(300)) if piece not in TAGS] == plain.pieces(range(298))
