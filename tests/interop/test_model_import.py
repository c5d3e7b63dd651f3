from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from transduce import interop
from transduce.bundle import Bundle
from transduce.config import TransformerConfig
from transduce.errors import BundleError, CorpusError, OutputError, ParityError
from transduce.interop.ctranslate2.export_format import FORMAT as EXPORT
from transduce.interop.ctranslate2.import_format import CTranslate2Import
from transduce.interop.parity import PARITY_FILE, read_parity

pytest.importorskip("ctranslate2")

import_model = partial(interop.import_model, num_sentences=12)


@pytest.fixture
def exported(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Path:
    folder = tmp_path / "exported"
    folder.mkdir()
    EXPORT.write(make_bundle(), folder, "float32")
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_bundle_has_its_proof(exported: Path, tmp_path: Path) -> None:
    said: list[str] = []
    parity = import_model(exported, tmp_path / "imported", target_language="nn", report=said.append)
    bundle = Bundle.open(tmp_path / "imported")
    assert read_parity(bundle.folder / PARITY_FILE) == parity
    assert (parity.model, parity.target) == (bundle.digest, "ctranslate2")
    assert (bundle.description.languages.source, bundle.description.languages.target) == ("en", "nn")
    assert PARITY_FILE not in bundle.description.files
    assert len(said) == 2
    assert names(tmp_path) == {"bundle", "exported", "imported"}
    card = (bundle.folder / "README.md").read_text("utf-8")
    assert "- imported from: exported\n- format: ctranslate2\n- made for: CTranslate2" in card


def test_a_probe_is_used(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "probe").write_text("sun moon\nriver\n", "utf-8")
    assert import_model(exported, tmp_path / "x", probe=tmp_path / "probe").sentences == 2
    (tmp_path / "probe").write_text("\n", "utf-8")
    with pytest.raises(CorpusError):
        import_model(exported, tmp_path / "y", probe=tmp_path / "probe")
    assert not (tmp_path / "y").exists()


def test_an_older_bundle_is_replaced_only_by_what_is_proven(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_model(exported, tmp_path / "imported")
    before = {path.name: path.read_bytes() for path in (tmp_path / "imported").iterdir()}
    read = CTranslate2Import.read

    def wrong(self: CTranslate2Import, path: Path, tokenizer: Path | None) -> Any:
        found = read(self, path, tokenizer)
        tensors = dict(found.tensors)
        tensors["decoder.layers.0.feed_forward.inner.bias"] = 1 + tensors["decoder.layers.0.feed_forward.inner.bias"]
        return replace(found, tensors=tensors)

    monkeypatch.setattr(CTranslate2Import, "read", wrong)
    with pytest.raises(OutputError, match="holds a model, which is not replaced unasked"):
        import_model(exported, tmp_path / "imported")
    with pytest.raises(ParityError, match="does not compute the same"):
        import_model(exported, tmp_path / "imported", force=True)
    with pytest.raises(ParityError):
        import_model(exported, tmp_path / "new")
    assert {path.name: path.read_bytes() for path in (tmp_path / "imported").iterdir()} == before
    assert names(tmp_path) == {"bundle", "exported", "imported"}


def test_no_network_is_made_that_the_weights_do_not_fill(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = CTranslate2Import.read

    def huge(self: CTranslate2Import, path: Path, tokenizer: Path | None) -> Any:
        found = read(self, path, tokenizer)
        config = found.config.model_dump() | {"d_ff": 2**31 - 1, "num_encoder_layers": 2}
        return replace(found, config=TransformerConfig(**config))

    monkeypatch.setattr(CTranslate2Import, "read", huge)
    with pytest.raises(BundleError, match=r"is float32 \[24\], its model needs float32 \[2147483647\]"):
        import_model(exported, tmp_path / "new")


@pytest.mark.parametrize(("name", "words"), [("nothing", "no such file"), ("bundle", "is a bundle already")])
def test_what_is_no_foreign_model_is_refused(exported: Path, tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(BundleError, match=words):
        import_model(tmp_path / name, tmp_path / "new")


def test_nothing_else_is_replaced(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious", "utf-8")
    with pytest.raises(OutputError, match="holds other files"):
        import_model(exported, tmp_path / "mine")
    assert names(tmp_path / "mine") == {"file"}
