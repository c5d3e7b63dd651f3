from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.bundle import Bundle, save_bundle
from transduce.errors import BundleError
from transduce.interop import find_format
from transduce.interop.refusal import refuse_import
from transduce.text import Tokenizer


def test_all_problems_are_said_at_once_and_none_is_no_refusal() -> None:
    refuse_import(Path("model"), iter([]))
    with pytest.raises(BundleError) as error:
        refuse_import(Path("model"), (f"{name}: is odd" for name in ("first", "second")))
    assert str(error.value) == "model: this model cannot be imported:\n  first: is odd\n  second: is odd"


@pytest.mark.parametrize("name", ["huggingface", "marian", "onnx"])
def test_programs_that_end_every_source_refuse_models_that_do_not(
    make_bundle: Callable[..., Bundle], tmp_path: Path, name: str
) -> None:
    bundle = make_bundle()
    joint = bundle.load_tokenizer()
    model, pieces = joint.model_bytes, joint.pieces(range(joint.pad_id))
    own = Tokenizer.with_vocabulary(model, model, pieces, "test", ends_sources=False)
    save_bundle(tmp_path / "endless", bundle.load_model(), own, bundle.description)
    assert find_format(name).obstacles(bundle) == []
    (obstacle,) = find_format(name).obstacles(Bundle.open(tmp_path / "endless"))
    assert obstacle.startswith("sources do not end with </s>")
