import pytest

from transduce.bundle import BundleDescription
from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import BundleError
from transduce.interop.marian.settings import MarianSettings, decoder_settings, model_settings, new_model_settings


@pytest.mark.parametrize("order", ["post", "pre"])
def test_what_is_written_is_read(order: str) -> None:
    config = TransformerConfig(norm_order=order, num_encoder_layers=3, d_ff=77, tied_embeddings="two_way")
    settings = MarianSettings.parsed(model_settings(config, 99), "model")
    assert settings.norm_order() == order
    assert [settings.number(name) for name in ("enc-depth", "dec-depth", "transformer-dim-ffn", "max-length")] == [
        3,
        6,
        77,
        99,
    ]
    assert settings.texts("dim-vocabs") == ["36999", "36999"]
    assert settings.flag("tied-embeddings")
    assert not settings.flag("tied-embeddings-all")
    assert settings.flag("output-omit-bias")


def test_the_newer_type_has_its_positions_and_never_ties_the_output() -> None:
    config = TransformerConfig()
    old, new = (MarianSettings.parsed(make(config, 99), "model") for make in (model_settings, new_model_settings))
    assert new.text("type") == "transformer-new"
    changed = {name for name in old.values if old.values[name] != new.values[name]}
    assert changed == {
        "type",
        "transformer-train-position-embeddings",
        "tied-embeddings-src",
        "tied-embeddings-all",
    }
    assert old.values.keys() == new.values.keys()
    assert not new.flag("tied-embeddings")


def test_sentences_are_translated_one_by_one() -> None:
    description = BundleDescription(model=TransformerConfig(), search=SearchConfig(beam=5, length_penalty=0.9))
    settings = MarianSettings.parsed(decoder_settings(description, ["a.spm", "b.spm"]), "decoder.yml")
    assert settings.texts("vocabs") == ["a.spm", "b.spm"]
    assert settings.texts("models") == ["transformer-new.npz"]
    assert {name: settings.text(name) for name in ("mini-batch", "beam-size", "normalize", "relative-paths")} == {
        "mini-batch": "1",
        "beam-size": "5",
        "normalize": "0.9",
        "relative-paths": "true",
    }


def test_values_of_another_kind_are_refused() -> None:
    settings = MarianSettings.parsed("a: [1]\nb: x\n", "model")
    for call, words in (
        (lambda: settings.text("a"), "model: a is a list"),
        (lambda: settings.number("b"), "model: b = 'x', must be a whole number"),
        (lambda: settings.number("c"), "model: c = '', must be a whole number"),
        (lambda: settings.flag("b"), "model: b = 'x', must be true or false"),
    ):
        with pytest.raises(BundleError, match=words):
            call()
    assert settings.texts("b") == ["x"]
    assert settings.texts("c") == []
    assert settings.flag("c") is False
