from transduce.bundle import BundleDescription, Languages
from transduce.config import SearchConfig, TransformerConfig
from transduce.interop.marian.card import marian_card


def card(*, is_joint: bool, **languages: str) -> str:
    search = SearchConfig(max_pieces=77, length_penalty=0.9)
    description = BundleDescription(model=TransformerConfig(), search=search, languages=Languages(**languages))
    return marian_card(description, "float16", is_joint=is_joint)


def test_it_says_what_the_model_is() -> None:
    text = card(is_joint=True, source="en", target="no")
    assert text.startswith("# Translation model for Marian, from en to no\n")
    assert "weights in float16" in text
    assert "at most 77 pieces" in text
    assert "n^0.9" in text
    assert card(is_joint=True).startswith("# Translation model for Marian\n")


def test_files_are_named_that_are_there() -> None:
    joint, separate = card(is_joint=True), card(is_joint=False)
    assert "vocab.spm" in joint
    assert "target_tokenizer.model" not in joint
    assert "vocab.spm" not in separate
    assert "target_tokenizer.model" in separate
    assert all("{" not in text.replace('f"{', "") for text in (joint, separate))
