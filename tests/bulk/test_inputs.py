from pathlib import Path
from typing import Any

import pytest

from transduce.bulk.inputs import find_input_files
from transduce.errors import CorpusError, UserError


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, encoding="utf-8")


def names(folder: Path, *patterns: str, output: str = "out") -> list[str]:
    return [file.name for file in find_input_files([str(folder / one) for one in patterns], folder / output)]


def test_names_are_relative_to_where_the_patterns_begin(tmp_path: Path) -> None:
    fill(tmp_path, "in/a/x", "in/b/x", "in/b/c/y", "in/.hidden", "[odd]", "out/z", "out/in/x")
    assert names(tmp_path, "in/a/*") == ["x"]
    assert names(tmp_path, "in/*/x") == ["a/x", "b/x"]
    assert names(tmp_path, "in/**/*") == ["a/x", "b/c/y", "b/x"]
    assert names(tmp_path, "in/b/c/y", "in/a/x", "in/a/*") == ["a/x", "b/c/y"]
    assert names(tmp_path, "[odd]") == ["[odd]"]  # a name, not a pattern, if there is such a file
    assert names(tmp_path, "**/x") == ["in/a/x", "in/b/x"]  # and not what lies in the output folder
    assert names(tmp_path, "in/a/*", output="in/a") == ["x"]


@pytest.mark.parametrize("name", ["a[1]", "a*", "what?", "a[1]/b[2]"])
def test_the_name_of_the_current_folder_is_no_pattern(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, f"{name}/in/x", f"{name}/in/c/y", "in/z")
    monkeypatch.chdir(tmp_path / name)
    for pattern, expected in (("in/*", ["x"]), ("*/x", ["in/x"]), ("in/**/y", ["c/y"]), ("./in/c/../?", ["x"])):
        assert [file.name for file in find_input_files([pattern], "out")] == expected


def test_a_file_is_known_by_size_and_time(tmp_path: Path) -> None:
    fill(tmp_path, "in/a")
    (file,) = find_input_files([str(tmp_path / "in/a")], tmp_path / "out")
    status = (tmp_path / "in/a").stat()
    assert (file.path, file.size, file.version) == (str(tmp_path / "in/a"), 4, str(status.st_mtime_ns))
    file.check_unchanged()
    (tmp_path / "in/a").unlink()
    with pytest.raises(CorpusError, match="in/a: was changed while it was being translated"):
        file.check_unchanged()
    with pytest.raises(CorpusError, match="in/a: cannot be opened"), file.open_binary():
        pass


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_files_in_a_bucket(bucket: Any, tmp_path: Path) -> None:
    bucket.pipe({"bucket/in/a/x.txt": b"sun\n", "bucket/in/b/x.txt": b"moon\n"})
    files = find_input_files(["s3://bucket/in/*/x.txt"], tmp_path)
    assert [(file.name, file.path, file.size) for file in files] == [
        ("a/x.txt", "s3://bucket/in/a/x.txt", 4),
        ("b/x.txt", "s3://bucket/in/b/x.txt", 5),
    ]
    with files[1].open_binary() as file:
        assert file.read() == b"moon\n"
    files[1].check_unchanged()
    bucket.pipe("bucket/in/b/x.txt", b"road\n")
    with pytest.raises(CorpusError, match="was changed while"):
        files[1].check_unchanged()
    assert [file.name for file in find_input_files(["s3://bucket/**"], "s3://bucket/in/a")] == ["in/b/x.txt"]
    with pytest.raises(CorpusError, match="s3://bucket/no: no file matches"):
        find_input_files(["s3://bucket/no"], tmp_path)


def test_an_unknown_kind_of_url_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing://a/b: cannot be read"):
        find_input_files(["nothing://a/b"], tmp_path)
