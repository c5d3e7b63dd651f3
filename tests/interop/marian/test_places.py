from pathlib import Path

import pytest

from transduce.errors import BundleError
from transduce.interop.marian.places import find_places


def make(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def names(path: Path) -> list[str]:
    places = find_places(path)
    return [one.name for one in (places.model, *places.vocabularies)]


def test_decoder_yml_says_what_belongs_together(tmp_path: Path) -> None:
    # As OPUS-MT publishes models; of paths, only the names count.
    text = "relative-paths: true\nmodels:\n  - ../b.npz\nvocabs:\n  - /x/s.yml\n  - t.spm\nbeam-size: 6\n"
    folder = make(tmp_path, a__npz="", b__npz="", s__yml="", t__spm="", decoder__yml=text)
    assert names(folder) == ["b.npz", "s.yml", "t.spm"]
    assert names(folder / "a.npz") == ["a.npz", "s.yml", "t.spm"]
    assert find_places(folder).decoder.text("beam-size") == "6"


def test_the_file_that_training_leaves_serves_too(tmp_path: Path) -> None:
    folder = make(
        tmp_path, m__npz="", vocab__spm="", m__npz__yml="", m__npz__decoder__yml="vocabs: [vocab.spm, u.yml]\n"
    )
    assert names(folder) == ["m.npz", "vocab.spm", "u.yml"]


def test_what_has_the_usual_name_is_found_without(tmp_path: Path) -> None:
    folder = make(tmp_path, model__npz="", other__npz="", vocab__spm="", vocab__yml="", README__md="")
    assert names(folder) == ["model.npz", "vocab.spm", "vocab.spm"]
    (folder / "vocab.spm").unlink()
    assert names(folder) == ["model.npz", "vocab.yml", "vocab.yml"]
    (folder / "model.npz").unlink()
    assert names(folder) == ["other.npz", "vocab.yml", "vocab.yml"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a__npz": "", "b__npz": ""}, r"has 2 models \(a\.npz, b\.npz\): give the file"),
        ({"a__npz": ""}, r"has no vocabulary of the model: put it there .* --tokenizer"),
        (
            {"a__npz": "", "vocab__en__yml": "", "vocab__de__yml": ""},
            r"2 vocabularies \(vocab\.de\.yml, vocab\.en\.yml\)",
        ),
        ({"a__npz": "", "decoder__yml": "vocabs: [a, b, c]"}, r"decoder\.yml: names 3 vocabularies"),
        ({"a__npz": "", "decoder__yml": "nonsense"}, r"decoder\.yml, line 1"),
    ],
)
def test_what_nobody_says_is_asked(tmp_path: Path, files: dict[str, str], words: str) -> None:
    with pytest.raises(BundleError, match=words):
        find_places(make(tmp_path, **files))


def test_a_decoder_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (make(tmp_path, a__npz="") / "decoder.yml").write_bytes(b"\xff")
    with pytest.raises(BundleError, match=r"decoder\.yml: cannot be read"):
        find_places(tmp_path)
