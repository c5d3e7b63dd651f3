import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from transduce.errors import BundleError
from transduce.interop.marian.archive import read_archive, write_archive

SETTINGS = "special:model.yml"


def test_an_archive_comes_back(tmp_path: Path) -> None:
    arrays = {"Wemb": torch.randn(3, 4), "decoder->at(0)->as<x>()": torch.randn(4, 3).T, "b": torch.randn(1, 4)}
    write_archive(tmp_path / "model.npz", "type: transformer\nname: é\n", arrays)
    settings, found, text = read_archive(tmp_path / "model.npz")
    assert text == "type: transformer\nname: é\n"
    assert settings.values == {"type": "transformer", "name": "é"}
    assert found.keys() == arrays.keys()
    assert all(torch.equal(found[name], array) for name, array in arrays.items())


def test_the_settings_are_as_marian_has_them(tmp_path: Path) -> None:
    # Bytes with one zero behind the text: CTranslate2 takes away exactly one, Marian looks for it.
    write_archive(tmp_path / "model.npz", "a: é\n", {"W": torch.ones(2, 3).T})
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        assert file[SETTINGS].dtype == np.int8
        assert file[SETTINGS].tobytes() == "a: é\n\0".encode()
        assert file["W"].flags.c_contiguous


def test_numbers_of_16_bits_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", W=np.array([[1.5]], np.float16), **{SETTINGS: np.frombuffer(b"a: 1\0  ", np.int8)})
    settings, arrays, _ = read_archive(tmp_path / "m.npz")
    assert arrays["W"].dtype == torch.float32
    assert settings.values == {"a": "1"}


def test_what_marian_adds_is_left_out(tmp_path: Path) -> None:
    text = np.frombuffer(b"a: 1\0", np.int8)
    np.savez(tmp_path / "m.npz", **{SETTINGS: text, "special:other": text, "W": np.ones((1, 1), np.float32)})
    assert list(read_archive(tmp_path / "m.npz").arrays) == ["W"]


def pickled() -> bytes:
    file = io.BytesIO()
    np.savez(file, **{SETTINGS: np.array([{}], object)})
    return file.getvalue()


def saved(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("W.npy", content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no archive of arrays"),
        (b"nonsense", "is no archive of arrays"),
        (pickled(), "is no archive of arrays: Object arrays cannot be loaded"),
        (saved(W=np.ones(3, np.float32))[:-40], "is no archive of arrays"),
        (zipped(b"nonsense"), "model.npz"),
        (saved(W=np.ones(3, np.float32)), "has no special:model.yml"),
        (saved(**{SETTINGS: np.frombuffer(b"\xff\0", np.int8)}), "is no text"),
        (saved(**{SETTINGS: np.frombuffer(b"a\0", np.int8)}), "special:model.yml, line 1"),
        (saved(**{SETTINGS: np.frombuffer(b"a: 1\0", np.int8), "W": np.ones(3, np.int8)}), "W is of type int8"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "model.npz").write_bytes(content)
    with pytest.raises(BundleError) as caught:
        read_archive(tmp_path / "model.npz")
    assert str(caught.value).startswith(str(tmp_path / "model.npz"))
    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"model\.npz: cannot be read: No such file"):
        read_archive(tmp_path / "model.npz")
