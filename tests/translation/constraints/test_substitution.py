from collections.abc import Callable

import pytest
from hypothesis import given, strategies

from transduce.baselines import make_encoder_decoder
from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import UserError
from transduce.text import Tokenizer, count_phrase
from transduce.translation import PyTorchEngine, Translator
from transduce.translation.confidence.alignment import Alignment, Link, choose_head, measure_heads
from transduce.translation.constraints.protection import ConstrainedText, RequiredTerm
from transduce.translation.constraints.span_search import SpanSearch
from transduce.translation.constraints.substitution import Substitution, substitute_terms


def aligned(source: str, target: str, links: str) -> Alignment:
    """Links as in "0-1:0.5": source word, target word, and weight, 1 by default."""
    parsed = [(link.partition(":")[0].split("-"), float(link.partition(":")[2] or 1)) for link in links.split()]
    found = tuple(Link(int(pair[0]), int(pair[1]), weight) for pair, weight in parsed)
    return Alignment(tuple(source.split()), tuple(target.split()), found)


@pytest.mark.parametrize(
    ("source", "translation", "links", "terms", "expected"),
    [
        ("a dog runs", "ein Hund läuft", "0-0 1-1 2-2", [("dog", "Köter")], "ein Köter läuft"),
        # signs at both ends of the word stay
        ("he sees “dogs”.", "er sieht „Hunde“.", "0-0 1-1 2-2", [("dogs", "Köter")], "er sieht „Köter“."),
        # the words of a term are replaced together, in whatever order they are
        ("a red bike", "un vélo rouge", "0-0 1-2 2-1", [("red bike", "Rotrad")], "un Rotrad"),
        # terms in the order of the source, also if one of them is there twice
        ("sun and sun", "x y z", "0-2 2-0", [("sun", "S"), ("sun", "T")], "T y S"),
        ("a dog runs", "ein Hund läuft", "0-0 1-1 2-2", [("dog", "Hund")], "ein Hund läuft"),
        # an article that is aligned with the noun stays
        ("the moon", "moon moonmoon", "1-0:0.6 1-1:0.5", [("moon", "M")], "moon M"),
        ("the moon", "moonmoon moon", "1-0:0.3 1-1:0.5", [("moon", "M")], "moonmoon M"),
        # none of the words can be replaced
        ("a dog runs", "ein Hund läuft", "0-0 2-2", [("dog", "Köter")], None),
        ("a dog runs", "ein . läuft", "0-0 1-1", [("dog", "Köter")], None),
        ("a dog runs", "ein Hund läuft", "1-1", [("cat", "Katze")], None),
        ("a dog runs", "ein Hund", "1-1 2-1", [("dog", "Köter"), ("runs", "rennt")], None),
    ],
)
def test_terms_stand_in_the_place_of_what_translates_them(
    tokenizer: Tokenizer, source: str, translation: str, links: str, terms: list[tuple[str, str]], expected: str | None
) -> None:
    found = substitute_terms(
        source, translation, aligned(source, translation, links), [RequiredTerm(*term) for term in terms], tokenizer
    )
    assert (None if found is None else found.text) == expected


def test_words_without_spaces_between_them_are_replaced_within_their_run(tokenizer: Tokenizer) -> None:
    alignment = Alignment(("狗", "跑"), ("一只", "狗", "跑。"), (Link(0, 1, 1.0), Link(1, 2, 1.0)))
    found = substitute_terms("狗跑", "一只狗跑。", alignment, [RequiredTerm("狗", "犬")], tokenizer)
    assert found == Substitution("一只犬跑。", ("狗",))


WORDS = strategies.lists(strategies.sampled_from(["dog", "“dog”,", "a", "runs.", "—", "狗狗"]), min_size=1, max_size=6)


@given(WORDS, WORDS, strategies.lists(strategies.tuples(strategies.integers(0, 5), strategies.integers(0, 5))))
def test_every_term_is_there_and_all_else_is_unchanged(
    tokenizer: Tokenizer, source: list[str], target: list[str], pairs: list[tuple[int, int]]
) -> None:
    links = tuple(
        Link(a, b, 1.0) for a, b in {b: (a, b) for a, b in pairs if a < len(source) and b < len(target)}.values()
    )
    terms = [RequiredTerm("dog", f"TERM{number}") for number in range(sum("dog" in word for word in source))]
    text = " ".join(target)
    found = substitute_terms(" ".join(source), text, Alignment(tuple(source), tuple(target), links), terms, tokenizer)
    if found is not None:
        assert [count_phrase(found.text, term.target) for term in terms] == [1] * len(terms)
        rest = found.text
        for term in terms:
            rest = rest.replace(term.target, "")
        kept = iter(text)
        assert all(character in kept for character in rest)


@pytest.mark.parametrize(
    ("constrained", "is_better"),
    [
        ("der Köter läuft", False),
        ("ein Köter läuft schnell", False),
        ("der Hund läuft. Köter", True),
        ("der Köter läuft. und noch sehr viel mehr", True),
        ("Draht. Draht. Draht. Köter", True),
    ],
)
def test_terms_beside_what_they_should_replace_are_worse(constrained: str, is_better: bool) -> None:
    substitution = Substitution("der schnelle Köter läuft", ("Hund",))
    assert substitution.is_better_than(constrained, "the quick dog runs") == is_better


@pytest.mark.parametrize("term", ["lamps", "Drahtesel", "river stone"])
def test_a_search_proposes_the_term_in_its_place(
    translator: Translator, make_sentences: Callable[..., list[str]], term: str
) -> None:
    """The model has learned to copy."""
    text = "sun lamp fish door"
    lines = make_sentences(100, seed=5)
    head = choose_head(measure_heads(translator.make_forced_decoder("a test"), list(zip(lines, lines, strict=True))))
    (found,) = SpanSearch(translator, head).search([ConstrainedText(text, (), (RequiredTerm("fish", term),))])
    assert f"sun lamp {term} door" in [one.text for one in found]
    assert all(one.alternatives[0].pieces[-1] == "</s>" for one in found)


def test_a_network_that_aligns_no_words_is_refused_before_it_searches(tokenizer: Tokenizer) -> None:
    config = TransformerConfig(architecture="recurrent", vocabulary=tokenizer.vocabulary, d_model=16)
    engine = PyTorchEngine(make_encoder_decoder(config).eval(), tokenizer.end_id)
    with pytest.raises(UserError, match="keeping protected spans or a glossary needs a Transformer"):
        SpanSearch(Translator(engine, tokenizer, SearchConfig()))


@pytest.mark.parametrize(("term", "settings"), [("x" * 5000, {}), ("Drahtesel", {"max_length": 4})])
def test_a_term_that_is_too_long_to_be_written_is_not_proposed(
    translator: Translator, term: str, settings: dict[str, int]
) -> None:
    """The model reads up to 40 pieces."""
    limited = translator.with_search(settings)
    (found,) = SpanSearch(limited).search([ConstrainedText("sun lamp", (), (RequiredTerm("sun", term),))])
    assert [one.text for one in found if term in one.text] == []
