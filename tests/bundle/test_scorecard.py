import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import (
    Bundle,
    RecordedBehaviour,
    RecordedScorecard,
    check_scorecard,
    list_foreign_files,
    read_scorecard,
    save_scorecard,
)
from transduce.bundle.bundle import MODEL_CARD, SCORECARD
from transduce.bundle.scorecard import show_in_card
from transduce.errors import BundleError, BusyError, OutputError, TransduceError
from transduce.storage import lock_folder

CAPS = RecordedBehaviour(
    name="all caps", description="What | it is.", score=41.23, num_cases=100, num_problems=60, lost_chrf=20.0
)
NUMBERS = RecordedBehaviour(
    name="numbers",
    description="They are kept.",
    score=63.0,
    num_cases=20,
    num_problems=9,
    option="--protect-numbers",
    score_with_option=98.0,
)
CARD = RecordedScorecard(
    text="test.en",
    data={"source": "ab" * 32},
    num_sentences=1000,
    seed=1,
    behaviours=[CAPS, NUMBERS],
    skipped={"emoji": "there are none"},
)


@pytest.fixture
def bundle(bundle_folder: Path) -> Bundle:
    return Bundle.open(bundle_folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_written_is_read_and_the_model_stays(bundle: Bundle) -> None:
    assert read_scorecard(bundle) is None
    before = contents(bundle.folder)
    save_scorecard(bundle, CARD)
    found = read_scorecard(Bundle.open(bundle.folder))
    assert found == CARD.model_copy(update={"files": bundle.description.files})
    after = contents(bundle.folder)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {SCORECARD, MODEL_CARD}
    assert list_foreign_files(bundle.folder) == []
    assert [path.name for path in bundle.folder.parent.iterdir()] == [bundle.folder.name]


def test_the_model_card_shows_it_between_quality_and_use(bundle: Bundle) -> None:
    before = (bundle.folder / MODEL_CARD).read_text(encoding="utf-8")
    save_scorecard(bundle, CARD)
    after = (bundle.folder / MODEL_CARD).read_text(encoding="utf-8")
    head, _, rest = after.partition("## Behaviour\n")
    section, _, tail = rest.partition("## Intended use\n")
    assert head + "## Intended use\n" + tail == before
    for words in (
        "inputs made of 1,000 sentences of test.en.",
        "| all caps | What \\| it is. | 41.2 | 100 |  |\n",
        "| numbers | They are kept. | 63.0 | 20 | 98.0 with `--protect-numbers` |\n",
        "Not measured: emoji (there are none).\n",
    ):
        assert words in section
    assert "\n\n\n" not in after


def test_a_later_scorecard_takes_the_place_of_the_earlier(bundle: Bundle) -> None:
    save_scorecard(bundle, CARD)
    first = contents(bundle.folder)
    save_scorecard(bundle, CARD.model_copy(update={"behaviours": [NUMBERS], "skipped": {}}))
    card = (bundle.folder / MODEL_CARD).read_text(encoding="utf-8")
    assert "all caps" not in card
    assert "Not measured" not in card
    assert card.count("## Behaviour\n") == 1
    save_scorecard(bundle, CARD)
    assert contents(bundle.folder) == first


@pytest.mark.parametrize(
    "own",
    [
        "# My model\n\nText.\n",
        "# My model\n\n## Behaviour\n\nOld.\n\n## Thanks\n\nTo all.\n",
        "",
        "## Behaviour\n",
        "# Mine\r\n\r\n## Behaviour\r\n\r\nOld.\r\n",
    ],
)
def test_what_somebody_wrote_into_the_card_stays(own: str) -> None:
    shown = show_in_card(own, CARD)
    assert shown.count("## Behaviour\n") == 1
    assert "Old." not in shown
    assert all(line in shown for line in own.splitlines() if line != "Old.")
    assert show_in_card(shown, CARD) == shown


def test_any_bytes_of_a_card_stay(bundle: Bundle) -> None:
    path = bundle.folder / MODEL_CARD
    path.write_bytes(b"# Gr\xf6\xdfe\r\nText\n")
    save_scorecard(bundle, CARD)
    assert path.read_bytes().startswith(b"# Gr\xf6\xdfe\r\nText\n\n## Behaviour\n")


def test_without_a_card_there_is_none(bundle: Bundle) -> None:
    (bundle.folder / MODEL_CARD).unlink()
    save_scorecard(bundle, CARD)
    assert read_scorecard(bundle) is not None
    assert not (bundle.folder / MODEL_CARD).exists()


def test_a_new_model_comes_without(bundle: Bundle, save: Callable[..., Any]) -> None:
    save_scorecard(bundle, CARD)
    save(bundle.folder)
    assert read_scorecard(Bundle.open(bundle.folder)) is None
    assert "## Behaviour" not in (bundle.folder / MODEL_CARD).read_text(encoding="utf-8")
    with pytest.raises(BundleError, match="another model by now"):
        save_scorecard(bundle, CARD)


def test_another_models_is_refused(bundle: Bundle, save: Callable[..., Any], tmp_path: Path) -> None:
    save_scorecard(bundle, CARD)
    save(tmp_path / "other")
    (tmp_path / "other" / SCORECARD).write_bytes((bundle.folder / SCORECARD).read_bytes())
    other = Bundle.open(tmp_path / "other")
    with pytest.raises(BundleError, match=r"measure anew \(transduce scorecard\)"):
        read_scorecard(other)
    save_scorecard(other, CARD)
    assert read_scorecard(other) is not None


@pytest.mark.parametrize(
    "change", [{"num_cases": 0}, {"score": 101.0}, {"score": "9"}, {"more": 1}, {"lost_chrf": -101.0}]
)
def test_a_damaged_file_is_named_and_replaced(bundle: Bundle, change: dict[str, object]) -> None:
    save_scorecard(bundle, CARD)
    path = bundle.folder / SCORECARD
    content = json.loads(path.read_bytes())
    content["behaviours"][0] |= change
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    with pytest.raises(BundleError, match=r"scorecard\.json"):
        read_scorecard(bundle)
    save_scorecard(bundle, CARD)
    assert read_scorecard(bundle) is not None


def test_a_file_that_is_no_scorecard_is_not_replaced_unasked(bundle: Bundle) -> None:
    path = bundle.folder / SCORECARD
    path.write_text('{"holes": 18}', encoding="utf-8")
    before = contents(bundle.folder)
    for write in (check_scorecard, lambda bundle: save_scorecard(bundle, CARD)):
        with pytest.raises(OutputError, match=r"scorecard\.json: is not a scorecard: .*--force"):
            write(bundle)
    assert contents(bundle.folder) == before
    save_scorecard(bundle, CARD, force=True)
    assert read_scorecard(bundle) is not None


def test_while_the_bundle_is_being_written_it_waits_for_nobody(bundle: Bundle) -> None:
    lock = bundle.folder.with_name(f".{bundle.folder.name}.lock")
    with lock_folder(bundle.folder, lock), pytest.raises(BusyError):
        save_scorecard(bundle, CARD)


@pytest.mark.parametrize("num_written", [0, 1])
def test_a_full_disk_leaves_both_files_as_they_were(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, num_written: int
) -> None:
    save_scorecard(bundle, CARD)
    before = contents(bundle.folder)
    write, left = Path.write_bytes, num_written

    def write_until_full(path: Path, data: bytes) -> int:
        nonlocal left
        if not left:
            raise OSError(28, os.strerror(28))
        left -= 1
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_until_full)
    with pytest.raises(TransduceError, match="nothing was changed: No space left"):
        save_scorecard(bundle, CARD.model_copy(update={"seed": 2}))
    monkeypatch.undo()
    assert contents(bundle.folder) == before
