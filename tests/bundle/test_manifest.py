import hashlib
import json
from pathlib import Path

import pytest

from transduce.bundle.manifest import BundleDescription, check_files, description_bytes, read_description, record_files
from transduce.config import TransformerConfig
from transduce.errors import BundleError


def test_files_are_recorded_with_size_and_digest(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    record = record_files(tmp_path, ["a.bin"])["a.bin"]
    assert (record.bytes, record.sha256) == (3, hashlib.sha256(b"abc").hexdigest())


def test_a_description_comes_back(tmp_path: Path) -> None:
    description = BundleDescription(model=TransformerConfig(), training={"note": "Größe ✓"})
    (tmp_path / "bundle.json").write_bytes(description_bytes(description))
    assert read_description(tmp_path / "bundle.json", BundleDescription) == description
    assert json.loads((tmp_path / "bundle.json").read_text(encoding="utf-8"))["training"]["note"] == "Größe ✓"


def test_a_folder_in_the_place_of_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    files = record_files(tmp_path, ["a.bin"])
    (tmp_path / "a.bin").unlink()
    (tmp_path / "a.bin").mkdir()
    with pytest.raises(BundleError, match=r"a\.bin: "):
        check_files(tmp_path, BundleDescription(model=TransformerConfig(), files=files), "bundle.json")
    with pytest.raises(BundleError, match=r"a\.bin: cannot be read"):
        read_description(tmp_path / "a.bin", BundleDescription)


@pytest.mark.parametrize("name", ["../a", "/a", "a/b", "..", ".", "", "a\\b", "a\n"])
def test_names_lead_nowhere_else(name: str) -> None:
    record = {"bytes": 0, "sha256": "0" * 64}
    with pytest.raises(ValueError, match="pattern"):
        BundleDescription.model_validate({"model": {}, "files": {name: record}})
