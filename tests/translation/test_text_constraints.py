import pytest

from transduce.errors import ConfigError
from transduce.text import Tokenizer
from transduce.translation import TextConstraints


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"required": ("",)}, "require '': must show something"),
        ({"required": ("sun", " ")}, "require ' ': must show something"),
        ({"forbidden": ("",)}, "forbid '': must show something"),
        ({"forbidden": ("\u200b",)}, r"forbid '\\u200b': must show something"),
        ({"required": ("sun\nmoon",)}, r"require 'sun\\nmoon': must be without line ends"),
        ({"forbidden": ("sun\u2028",)}, r"forbid 'sun\\u2028': must be without line ends"),
        ({"prefix": "sun\r"}, r"prefix 'sun\\r': must be without line ends"),
    ],
)
def test_what_no_translation_can_have_is_refused(asked: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TextConstraints(**asked)


@pytest.mark.parametrize(
    ("forbidden", "text", "met"),
    [
        (".", "Hut.", False),
        (".", "Hut", True),
        ("T-Shirt", "T-T-Shirt", False),
        ("T-Shirt", "(T-Shirt)", False),
        ("T-Shirt", "T-Shirts", True),
        ("an", "Mann kann anders", True),
        ("an", "Mann, an", False),
        (" ein Hut ", "Da ist ein Hut.", False),
    ],
)
def test_a_forbidden_phrase_stands_as_whole_words(forbidden: str, text: str, met: bool) -> None:
    assert TextConstraints(forbidden=(forbidden,)).are_met_by(text) is met


def test_forbidden_phrases_are_spelled_behind_signs_and_words(tokenizer: Tokenizer) -> None:
    def is_ruled_out(text: str, forbidden: str) -> bool:
        (ids,) = tokenizer.encode_targets([text])
        phrases = TextConstraints(forbidden=(forbidden,)).as_ids(tokenizer).forbidden
        rows = [tuple(ids[start:end]) for start in range(len(ids)) for end in range(start + 1, len(ids) + 1)]
        return not {*phrases}.isdisjoint(rows)

    for text in ("moon sun", "moon-sun", "(sun)"):
        assert is_ruled_out(text, "sun")
    for text in ("moon.", "moon .", "."):
        assert is_ruled_out(text, ".")
    assert not is_ruled_out("moon river", "sun")


def test_spellings_are_learned_from_translations(tokenizer: Tokenizer) -> None:
    ids = {piece: index for index, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}
    asked = TextConstraints(forbidden=("un",))
    assert asked.learned(tokenizer, ["▁s", "u", "n", "</s>"]) == asked  # within a word
    learned = asked.learned(tokenizer, ["▁", "u", "n", "</s>"])
    assert learned.spellings == {(ids["▁"], ids["u"], ids["n"])} or learned.spellings == {(ids["u"], ids["n"])}
    assert learned.spellings <= set(learned.as_ids(tokenizer).forbidden)
    assert learned.learned(tokenizer, ["▁", "u", "n"]) == learned
    assert TextConstraints(forbidden=("s",)).learned(tokenizer, ["▁u", "</s>"]).spellings == frozenset()


def test_two_wishes_together() -> None:
    one = TextConstraints("a", ("b",), forbidden=("c",))
    assert one.and_also(TextConstraints(required=("d",))) == TextConstraints("a", ("b", "d"), forbidden=("c",))
    assert one.and_also(TextConstraints("x", forbidden=("y",))) == TextConstraints("x", ("b",), forbidden=("c", "y"))
