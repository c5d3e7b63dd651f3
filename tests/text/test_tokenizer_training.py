import subprocess
import sys
from collections.abc import Iterator

import pytest

from transduce.errors import ConfigError, CorpusError
from transduce.text import Tokenizer
from transduce.text.tokenizer_training import _sample

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
