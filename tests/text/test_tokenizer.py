import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transduce.errors import ConfigError, CorpusError, UserError
from transduce.text import Tokenizer, fit_vocabulary_size
from transduce.text.tokenizer import _sample

# Characters that NFKC leaves as they are, with single spaces between words.
WORDS = st.text("abcÄßдयம்ታ日本한😀👩🏽𒀀.,!?<>/_[]#1২", min_size=1, max_size=10)
NORMALISED = st.lists(WORDS, max_size=8).map(" ".join)
ANYTHING = st.text(st.characters(codec=None))


@settings(deadline=None)
@given(text=NORMALISED)
def test_decoding_undoes_encoding(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(deadline=None, max_examples=200)
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
    with pytest.raises(ConfigError, match=r'text.vocabulary = 9000 is more .* at most \d+, or to "fitted"') as caught:
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
    with pytest.raises(CorpusError, match="is blank, or every line has more than 65536 bytes"):
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
