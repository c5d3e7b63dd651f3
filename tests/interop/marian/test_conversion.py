import gc
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from transduce.bundle import Bundle
from transduce.errors import BundleError, MissingExtraError
from transduce.interop.marian.archive import read_archive, write_archive
from transduce.interop.marian.conversion import ConvertedRuntime
from transduce.interop.marian.export_format import FORMAT
from transduce.interop.marian.pieces import MarianPieces
from transduce.interop.runtime import Runtime

ctranslate2 = pytest.importorskip("ctranslate2")


@pytest.fixture
def exported(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Bundle:
    """A bundle whose export is in `out`."""
    bundle = make_bundle()
    (tmp_path / "out").mkdir()
    FORMAT.write(bundle, tmp_path / "out", "float32")
    return bundle


def converted(bundle: Bundle, folder: Path) -> ConvertedRuntime:
    tokenizer, vocabulary = bundle.load_tokenizer(), folder / "vocab.yml"
    models = tokenizer.model_bytes, tokenizer.target_model_bytes
    pieces = MarianPieces(models, tokenizer.pieces(range(tokenizer.pad_id)), tokenizer)
    return ConvertedRuntime(folder / "model.npz", (vocabulary, vocabulary), tokenizer, pieces)


def test_it_is_a_runtime_and_says_which(exported: Bundle, tmp_path: Path) -> None:
    runtime = converted(exported, tmp_path / "out")
    assert isinstance(runtime, Runtime)
    assert runtime.name == f"CTranslate2 {ctranslate2.__version__}, through its converter of Marian models"
    assert runtime.decode(runtime.encode(["sun moon"])) == ["sun moon"]


def test_what_is_in_the_file_decides(exported: Bundle, tmp_path: Path) -> None:
    folder, sources, targets = tmp_path / "out", [[50, 60, 1]], [[70, 80, 1]]
    before = converted(exported, folder).forced_scores(sources, targets)
    _, arrays, text = read_archive(folder / "model.npz")
    arrays["decoder_l1_context_Wv"][3, 5] += 0.5
    write_archive(folder / "model.npz", text, arrays)
    after = converted(exported, folder).forced_scores(sources, targets)
    assert not torch.allclose(torch.tensor(before), torch.tensor(after), rtol=0, atol=1e-3)


# CTranslate2 leaves the file open that it fails to convert.
@pytest.mark.filterwarnings("ignore:.*model.npz:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"self-attention"', '"rnn"', "must be 'self-attention'"),
        ('transformer-guided-alignment-layer: "last"\n', "", "transformer-guided-alignment-layer"),
    ],
)
def test_what_cannot_be_converted_is_said(exported: Bundle, tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "out" / "model.npz"
    _, arrays, text = read_archive(path)
    assert old in text
    write_archive(path, text.replace(old, new), arrays)
    with pytest.raises(BundleError) as caught:
        converted(exported, tmp_path / "out")
    message = str(caught.value)
    del caught
    gc.collect()  # of the file, while its warning is expected
    assert message.startswith(f"{path}: CTranslate2 cannot convert it: ")
    assert words in message


def test_without_ctranslate2_the_extra_is_named(
    exported: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(
        MissingExtraError, match=r"model\.npz needs the package 'ctranslate2'.*transduce\[ctranslate2\]"
    ):
        converted(exported, tmp_path / "out")
