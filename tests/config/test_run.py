import subprocess
import sys

from transduce.config import RunConfig, SearchConfig, TransformerConfig


def test_the_tokenizer_has_the_last_word_on_the_vocabulary() -> None:
    config = RunConfig(model=TransformerConfig(d_model=64, num_heads=4))
    sized = config.with_vocabulary(777)
    assert sized.model.vocabulary == 777
    assert sized.model.model_copy(update={"vocabulary": config.model.vocabulary}) == config.model
    assert sized.model_copy(update={"model": config.model}) == config


def test_the_search_is_that_of_the_paper() -> None:
    search = SearchConfig()
    assert (search.beam, search.length_penalty, search.max_extra_length) == (4, 0.6, 50)


def test_every_setting_is_documented() -> None:
    for section in RunConfig.model_json_schema()["$defs"].values():
        for name, setting in section["properties"].items():
            assert setting.get("description"), name


def test_settings_load_no_torch() -> None:
    code = "import sys, transduce.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
