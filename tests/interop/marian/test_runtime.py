import gc
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from transduce.bundle import Bundle
from transduce.errors import BundleError, MissingExtraError, TransduceError
from transduce.interop.conversion import SentencePieceCodec
from transduce.interop.ctranslate2.runtime import CTranslate2Runtime
from transduce.interop.formats import Runtime
from transduce.interop.marian.files import read_archive, write_archive
from transduce.interop.marian.format import FORMAT
from transduce.interop.marian.runtime import MarianRuntime, find_marian, load_converted
from transduce.text import Tokenizer


def test_one_model_for_both_sides(tokenizer: Tokenizer, texts: list[str]) -> None:
    models = tokenizer.model_bytes, tokenizer.target_model_bytes
    pieces = SentencePieceCodec(models, tokenizer, tokenizer.pieces(range(tokenizer.pad_id)))
    odd = [*texts[:20], "", "☃ </s> é", "  sun   moon "]
    ids = [[*row, 1] for row in tokenizer.encode_all(odd)]
    assert pieces.encode(odd) == ids
    assert pieces.encode([]) == []
    assert pieces.decode(ids) == [tokenizer.decode(row) for row in ids]


def test_what_the_source_lacks_is_unknown(tokenizer: Tokenizer) -> None:
    known, model = tokenizer.pieces(range(tokenizer.pad_id)), tokenizer.model_bytes
    sun = tokenizer.pieces(tokenizer.encode("sun"))
    own = Tokenizer.with_vocabulary(
        model, model, [piece for piece in known if piece not in sun], "test", source_only=[">>fra<<"], target_only=sun
    )
    source = [piece for piece in own.pieces(range(own.pad_id)) if piece not in sun]
    pieces = SentencePieceCodec((model, model), own, source)
    texts = [">>fra<< sun moon", "sun"]
    assert pieces.encode(texts) == [[*row, 1] for row in own.encode_all(texts)]
    assert pieces.encode(["sun"]) == [[0] * len(sun) + [1]]
    assert pieces.decode([[*own.encode_targets(["moon sun"])[0], own.pieces(range(own.pad_id)).index("▁"), 1]]) == [
        "moon sun"
    ]


SOURCES = [[50, 60, 1], [70, 71, 72, 73, 74, 1], [80, 1], [70, 71, 72, 73, 75, 1]]


@pytest.fixture
def runtime(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Runtime:
    if find_marian() is None:
        pytest.skip("the package pymarian, with Marian, is not installed")
    bundle = make_bundle(positions="learned", max_positions=12)
    (tmp_path / "out").mkdir()
    FORMAT.write(bundle, tmp_path / "out", "float32")
    return FORMAT.load(tmp_path / "out", bundle.load_tokenizer())


def test_it_says_which_marian_it_is(runtime: Runtime) -> None:
    assert isinstance(runtime, MarianRuntime)
    name, version = runtime.name.split()
    assert name == "Marian"
    assert version.split(".")[0].isdigit()


def test_a_sentence_has_the_same_scores_in_any_company(runtime: Runtime) -> None:
    targets = [[5, 1], [1], [90, 91, 92, 1], [93, 94, 1]]
    together = runtime.forced_scores(SOURCES, targets)
    assert list(map(len, together)) == list(map(len, targets))
    alone = [runtime.forced_scores([source], [target])[0] for source, target in zip(SOURCES, targets, strict=True)]
    assert together == alone


def test_each_translation_has_its_own_limit(runtime: Runtime) -> None:
    # In one go, with a factor for the shortest source, the longest translation would need 36 positions of 12.
    limits = [12, 11, 7, 1]
    found = runtime.greedy(SOURCES, limits)
    for row, limit in zip(found, limits, strict=True):
        assert len(row) == limit or (len(row) < limit and row[-1] == 1)
        assert 1 not in row[:-1]
    assert found == [runtime.greedy([source], [limit])[0] for source, limit in zip(SOURCES, limits, strict=True)]


def test_what_marian_complains_about_is_passed_on(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "out" / "vocab.yml").write_text("a: 0\n", encoding="utf-8")
    with pytest.raises(TransduceError, match=r"pymarian failed: .*vocab\.yml is expected to contain"):
        runtime.greedy(SOURCES, [5] * 4)


ctranslate2 = pytest.importorskip("ctranslate2")


@pytest.fixture
def exported(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Bundle:
    """A bundle whose export is in `out`."""
    bundle = make_bundle()
    (tmp_path / "out").mkdir()
    FORMAT.write(bundle, tmp_path / "out", "float32")
    return bundle


def converted(bundle: Bundle, folder: Path) -> CTranslate2Runtime:
    tokenizer, vocabulary = bundle.load_tokenizer(), folder / "vocab.yml"
    models = tokenizer.model_bytes, tokenizer.target_model_bytes
    pieces = SentencePieceCodec(models, tokenizer, tokenizer.pieces(range(tokenizer.pad_id)))
    return load_converted(folder / "model.npz", (vocabulary, vocabulary), tokenizer, pieces)


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
