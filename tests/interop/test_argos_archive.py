import stat
import zipfile
from pathlib import Path

import pytest

from transduce.errors import BundleError
from transduce.interop.argos_archive import pack, unpack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "large").write_bytes(bytes(range(256)) * 4000)
    (folder / "ü").write_text("text", encoding="utf-8")
    return folder


def test_what_was_packed_is_unpacked(folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "packed")
    again = unpack(tmp_path / "packed", tmp_path / "again")
    assert again == tmp_path / "again" / "package"
    found = {path.relative_to(again): path.read_bytes() for path in again.rglob("*") if path.is_file()}
    assert found == {Path("model/large"): bytes(range(256)) * 4000, Path("ü"): b"text"}


def test_entries_have_one_date_and_can_be_read(folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "packed")
    with zipfile.ZipFile(tmp_path / "packed") as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == ["package/model/large", "package/ü"]
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {stat.S_IMODE(entry.external_attr >> 16) for entry in entries} == {0o644}
    assert entries[0].compress_size < entries[0].file_size / 10


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["../out"], "leads out"),
        (["package/../../out"], "leads out"),
        (["/out"], "leads out"),
        (["C:out"], "leads out"),
        (["package/a", "..\\out"], "leads out"),
        (["package/a", "other/b"], "has 2 folders and files"),
        ([], "has 0 folders and files"),
    ],
)
def test_nothing_is_written_elsewhere(tmp_path: Path, names: list[str], words: str) -> None:
    with zipfile.ZipFile(tmp_path / "packed", "w") as archive:
        for name in names:
            archive.writestr(name, "text")
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    with pytest.raises(BundleError, match=words):
        unpack(tmp_path / "packed", tmp_path / "deep" / "deeper")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "deeper", "packed"]
