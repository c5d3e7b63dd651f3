import pytest

from transduce.errors import BundleError
from transduce.interop.marian.yaml import quoted, read_numbered, read_settings

# As yaml-cpp writes it, in which Marian has its settings written.
SETTINGS = """\
bert-train-type-embeddings: true
dim-vocabs:
  - 500
  - 600
input-types:
  []
transformer-preprocess: ""
transformer-postprocess: dan
separator-symbol: "[eos]"
version: v1.12.42 b7be0e964 2025-05-24 22:34:42 -0700
"""


def test_settings_of_marian_are_read() -> None:
    assert read_settings(SETTINGS, "model") == {
        "bert-train-type-embeddings": "true",
        "dim-vocabs": ["500", "600"],
        "input-types": [],
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "separator-symbol": "[eos]",
        "version": "v1.12.42 b7be0e964 2025-05-24 22:34:42 -0700",
    }


def test_settings_that_people_write_are_read() -> None:
    text = "---\n# how to translate\nvocabs: [a.yml, 'b c.yml']\n\n"
    text += 'models:\n- one.npz\n- "two.npz"\nlanguage: no\nnone: []\n'
    assert read_settings(text, "decoder.yml") == {
        "vocabs": ["a.yml", "b c.yml"],
        "models": ["one.npz", "two.npz"],
        "language": "no",
        "none": [],
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb\n", "line 2: 'b' is neither"),
        ("a: 1\n  b: 2\n", "line 2: '  b: 2' is neither"),
        ("a: 1\n- 2\n", "line 2: '- 2' is neither"),
        ("a: 1\na: 2\n", "line 2: 'a' stands there twice"),
        ("a: [1, 2\n", "line 1: '[1, 2' is a list without end"),
        ("a: 'b\n", 'line 1: "\'b" has a quotation mark at one end only'),
        ("a: !!python/object:os.system\nb: &x\n? c\n", "line 3: '? c' is neither"),
        ('a: "\\q"\n', r"line 1: '\\q' stands for no character"),
        ('a: "\\Uffffffff"\n', "stands for no character"),
        ("{a: 1}\n", "line 1: '{a: 1}' is neither"),
    ],
)
def test_anything_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(BundleError) as caught:
        read_settings(text, "model")
    assert str(caught.value).startswith("model, line ")
    assert words in str(caught.value)


def test_a_tag_is_but_text() -> None:
    assert read_settings("a: !!python/object:os.system\n", "model") == {"a": "!!python/object:os.system"}


def test_pieces_with_numbers_are_read() -> None:
    text = (
        '</s>: 0\n<unk>: 1\n"\\"": 2\n"\\\\x": 3\n\'\'\'\': 4\n":": 5\n▁a:b: 6\r\n"\\x85\\u2028\\U0001F642": 7\n'
        "? a very long piece\n: 8\n#: 9\n~: 10\n'no': 11\n"
    )
    pieces = ["</s>", "<unk>", '"', "\\x", "'", ":", "▁a:b", "\x85\u2028🙂", "a very long piece", "#", "~", "no"]
    assert list(read_numbered(text, "vocab.yml")) == [(piece, number) for number, piece in enumerate(pieces)]


@pytest.mark.parametrize("line", ["a", "a: b", "a: -1", ": 1", "a: ", "a: 1.5", "a: ²", "- a: b"])
def test_a_line_without_a_number_is_refused(line: str) -> None:
    with pytest.raises(BundleError, match=r"vocab\.yml, line 2"):
        list(read_numbered(f"</s>: 0\n{line}\n", "vocab.yml"))


@pytest.mark.parametrize("piece", ["a", "'", "''", '"', "\\x", "\\", ":", "- a", "#", "? a", " ", "▁it's", "ĳ"])
def test_what_is_quoted_is_read_again(piece: str) -> None:
    assert list(read_numbered(f"{quoted(piece)}: 3\n", "vocab.yml")) == [(piece, 3)]
