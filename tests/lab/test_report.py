"""Reports show what was measured, on paper that opens from disk."""

import re
from pathlib import Path

import pytest

from transduce.errors import UserError
from transduce.lab import Laboratory, Report, compare_verdicts, render_html, run_experiment, write_reports


def test_both_forms_have_claim_figures_and_verdict(experiment: str, tmp_path: Path) -> None:
    run_experiment(experiment, Laboratory(tmp_path, (1, 2)))
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for text in (markdown, page):
        assert "Widths are measured." in text
        assert "wide minus narrow: 1 (1 to 1)" in text
        assert "supported" in text
        assert "Nothing was trained." in text
        assert "torch" in text
        assert "with seeds 1, 2" in text
        assert "transduce lab run widths --budget 10m --seeds 2 --first-seed 1" in text
    assert "Wide is larger than <narrow>." in markdown
    assert "Wide is larger than &lt;narrow&gt;." in page


def test_the_page_needs_nothing_from_outside(experiment: str, tmp_path: Path) -> None:
    run_experiment(experiment, Laboratory(tmp_path, (1,)))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert not re.search(r'(src|href)="', page)


def test_reports_of_several_runs_stand_side_by_side(experiment: str, tmp_path: Path) -> None:
    run_experiment(experiment, Laboratory(tmp_path / "one", (1, 2)))
    run_experiment(experiment, Laboratory(tmp_path / "two", (3,)))
    reports = [write_reports(tmp_path / name) for name in ("one", "two")]
    assert compare_verdicts(reports).rows == [
        ["widths", "3.2", "Wide is larger than <narrow>.", "supported; not decided"]
    ]
    assert render_html(reports).count("<h1>Widths</h1>") == 2


def test_a_folder_without_measurements_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(f"{tmp_path}: has no measurements.jsonl")):
        Report.read(tmp_path)
