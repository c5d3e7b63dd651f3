import pytest

from transduce.bundle import BundleDescription
from transduce.config import SearchConfig, TransformerConfig
from transduce.interop.huggingface.layout import count_positions, make_generation_settings

TOKENS = {"eos_token_id": 1, "pad_token_id": 36_999, "decoder_start_token_id": 36_999, "bos_token_id": None}


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (SearchConfig(), {"num_beams": 4, "length_penalty": 0.6, "max_length": 256 + 1 + 50 + 1}),
        (SearchConfig(beam=1, max_pieces=30, max_extra_length=9), {"num_beams": 1, "max_length": 41}),
        (
            SearchConfig(beam=1, no_repeat_ngram=3, repetition_penalty=1.5, min_length=4),
            {
                "num_beams": 1,
                "max_length": 308,
                "no_repeat_ngram_size": 3,
                "repetition_penalty": 1.5,
                "min_new_tokens": 3,
            },
        ),
    ],
)
def test_the_search_is_that_of_the_bundle(search: SearchConfig, expected: dict[str, float]) -> None:
    transformers = pytest.importorskip("transformers")
    found = make_generation_settings(BundleDescription(model=TransformerConfig(), search=search), end_id=1)
    assert found == TOKENS | expected
    transformers.GenerationConfig(**found).validate(strict=True)


def test_there_are_positions_for_the_longest_sentence() -> None:
    def rows(model: TransformerConfig, **search: int) -> int:
        return count_positions(BundleDescription(model=model, search=SearchConfig(**search)))

    assert rows(TransformerConfig()) == 512
    assert rows(TransformerConfig(), max_pieces=700, max_extra_length=100) == 802
    learned = TransformerConfig(positions="learned", max_positions=40)
    assert rows(learned) == 40
    assert make_generation_settings(BundleDescription(model=learned), end_id=1)["max_length"] == 40
