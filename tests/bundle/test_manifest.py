import hashlib
import json
import os
import re
import runpy
import shlex
from pathlib import Path
from typing import Literal

import pytest

from transduce.bundle import Bundle, BundleDescription, RecordedScore
from transduce.bundle.manifest import (
    check_files,
    make_model_card,
    read_description,
    record_files,
    serialize_description,
)
from transduce.cli.app import app
from transduce.config import TransformerConfig
from transduce.errors import BundleError


def test_files_are_recorded_with_size_and_digest(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    record = record_files(tmp_path, ["a.bin"])["a.bin"]
    assert (record.bytes, record.sha256) == (3, hashlib.sha256(b"abc").hexdigest())


def test_a_description_comes_back(tmp_path: Path) -> None:
    description = BundleDescription(model=TransformerConfig(), training={"note": "Größe ✓"})
    (tmp_path / "bundle.json").write_bytes(serialize_description(description))
    assert read_description(tmp_path / "bundle.json", BundleDescription) == description
    assert json.loads((tmp_path / "bundle.json").read_text(encoding="utf-8"))["training"]["note"] == "Größe ✓"


def test_a_message_names_some_of_many_wrong_settings(tmp_path: Path) -> None:
    description = json.loads(BundleDescription(model=TransformerConfig()).model_dump_json())
    description["scores"] = list(range(1000))
    (tmp_path / "bundle.json").write_text(json.dumps(description), encoding="utf-8")
    with pytest.raises(BundleError, match=r"(?s)scores\.0 = 0: .*\nand 990 more\nuse an undamaged copy") as raised:
        read_description(tmp_path / "bundle.json", BundleDescription)
    assert len(str(raised.value)) < 2000


def test_a_folder_in_the_place_of_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    files = record_files(tmp_path, ["a.bin"])
    (tmp_path / "a.bin").unlink()
    (tmp_path / "a.bin").mkdir()
    with pytest.raises(BundleError, match=r"a\.bin: "):
        check_files(tmp_path, BundleDescription(model=TransformerConfig(), files=files), "bundle.json")
    with pytest.raises(BundleError, match=r"a\.bin: cannot be read"):
        read_description(tmp_path / "a.bin", BundleDescription)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    files = record_files(tmp_path, ["a.bin"])
    (tmp_path / "a.bin").unlink()
    os.mkfifo(tmp_path / "a.bin")
    for read in (
        lambda: check_files(tmp_path, BundleDescription(model=TransformerConfig(), files=files), "bundle.json"),
        lambda: read_description(tmp_path / "a.bin", BundleDescription),
    ):
        with pytest.raises(BundleError, match=r"^\S+a\.bin: cannot be read: it is not a regular file; [^;]+$"):
            read()


@pytest.mark.parametrize("name", ["../a", "/a", "a/b", "..", ".", "", "a\\b", "a\n"])
def test_names_lead_nowhere_else(name: str) -> None:
    record = {"bytes": 0, "sha256": "0" * 64}
    with pytest.raises(ValueError, match="pattern"):
        BundleDescription.model_validate({"model": {}, "files": {name: record}})


def test_the_card_of_a_bundle_has_its_numbers(bundle_folder: Path) -> None:
    card = (bundle_folder / "README.md").read_text(encoding="utf-8")
    model = Bundle.open(bundle_folder).load_model()
    for words in (
        'language:\n- "en"\n- "no"\npipeline_tag: translation\nlibrary_name: transduce\ntags:\n',
        "# Translation from en to no\n",
        f"Parameters: {model.num_parameters:,}\n",
        "- BLEU 34.57 (95 % confidence: 33.10 to 36.00) on validation (`nrefs:1|tok:13a`)",
        f"- train.en: `{'ab' * 32}`",
        "- update: 1,200\n- epoch: 3\n",
        "transduce translate",
        "Translator.load",
        "at most 50 tokens more",
    ):
        assert words in card


def test_what_is_not_known_is_not_said() -> None:
    card = make_model_card(BundleDescription(model=TransformerConfig()), 1)
    assert "No scores were recorded" in card
    assert "# Translation model\n" in card
    for word in ("language:", "## Data", "## Training", "BLEU", "license", "None"):
        assert word not in card


@pytest.mark.parametrize(("scored", "words"), [(100, "Scored were the first 100 of its 1,014 pairs."), (1014, "")])
def test_scores_of_a_part_are_called_so(scored: int, words: str) -> None:
    score = RecordedScore(metric="chrF", value=60.0, data="validation")
    training = {"scored_pairs": scored, "validation_pairs": 1014}
    card = make_model_card(BundleDescription(model=TransformerConfig(), scores=[score], training=training), 1)
    assert ("Scored were" in card) == bool(words)
    assert words in card


def test_a_score_without_signature_or_data_stands_alone() -> None:
    score = RecordedScore(metric="chrF", value=60.0)
    card = make_model_card(BundleDescription(model=TransformerConfig(), scores=[score]), 1)
    assert "- chrF 60.00\n" in card


@pytest.mark.parametrize(("positions", "said"), [("learned", True), ("sinusoidal", False)])
def test_learned_positions_have_a_limit(positions: Literal["learned", "sinusoidal"], said: bool) -> None:
    card = make_model_card(BundleDescription(model=TransformerConfig(positions=positions, max_positions=77)), 1)
    assert ("at most 77 tokens" in card) == said


def test_front_matter_stands_first_and_alone() -> None:
    card = make_model_card(BundleDescription(model=TransformerConfig()), 1)
    assert card.startswith("---\n")
    assert card.count("\n---\n") == 1
    assert card.endswith("\n")
    assert "\n\n\n" not in card


def test_the_hub_is_told_the_real_scores(bundle_folder: Path) -> None:
    front_matter = (bundle_folder / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    assert 'metrics:\n- bleu\nmodel-index:\n- name: "Translation from en to no"\n  results:\n  - {' in front_matter
    result = json.loads(front_matter.split("\n  - ")[1])
    [metric] = result["metrics"]
    assert (metric["type"], metric["value"]) == ("bleu", 34.57)
    assert metric["args"] == {"signature": "nrefs:1|tok:13a", "confidence_95": [33.1, 36.0]}


def test_how_it_was_trained_is_said_in_words() -> None:
    training = {"seconds": 90.0, "pairs": 59794, "cleaning": {"a.tsv": {"too_long": 1200}}, "tied": True, "rest": None}
    card = make_model_card(BundleDescription(model=TransformerConfig(), training=training), 1)
    lines = ["pairs: 59,794", "cleaning: a.tsv (too long 1,200)", "tied: True", "rest: null"]
    assert "".join(f"- {line}\n" for line in [*lines, "time: 1.5 minutes, without validation"]) in card


@pytest.mark.exhaustive
def test_what_the_card_says_to_do_can_be_done(
    bundle_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = (bundle_folder / "README.md").read_text(encoding="utf-8").replace("path/to/this/folder", str(bundle_folder))
    [program] = re.findall(r"^```python\n(.*?)^```", card, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    runpy.run_path(str(tmp_path / "program.py"))
    assert capsys.readouterr().out.startswith("['")
    for name in ("translate", "evaluate"):
        [line] = re.findall(rf"^transduce ({name} [^<\n]*)", card, flags=re.MULTILINE)
        command, bound, _ = app.parse_args(shlex.split(line), exit_on_error=False, print_error=False)
        assert command.__name__ == name
        assert bundle_folder in bound.args or [bundle_folder] in bound.args
