from pathlib import Path

import pytest

from transduce.errors import BundleError
from transduce.interop.import_formats import IMPORT_FORMATS, find_import_format
from transduce.interop.runtime import ImportFormat


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("model.bin", b"", "ctranslate2"),
        ("config.json", b'{"model_type": "marian"}', "huggingface"),
    ],
)
def test_a_folder_is_known_by_its_files(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    found, chosen = find_import_format(tmp_path)
    assert (found, isinstance(chosen, ImportFormat)) == (expected, True)


def test_all_formats_are_there() -> None:
    from importlib import import_module

    for module in IMPORT_FORMATS.values():
        assert isinstance(import_module(module).FORMAT, ImportFormat)


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.json", b'{"model_type": "bert"}'), ("config.json", b"{"), ("anything", b""), ("model.argosmodel", b"")],
)
def test_what_nobody_knows_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BundleError, match="is no model that can be imported; these can: "):
        find_import_format(tmp_path)


def test_bundles_and_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no such file or folder"):
        find_import_format(tmp_path / "nothing")
    (tmp_path / "bundle.json").write_text("{}", "utf-8")
    with pytest.raises(BundleError, match="is a bundle already"):
        find_import_format(tmp_path)
