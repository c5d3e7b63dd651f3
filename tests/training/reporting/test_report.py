"""Report and TensorBoard fail for real: a disk that is full (`/dev/full`), places that are taken."""

import errno
import math
import re
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from transduce.config import RunConfig, load_run_config
from transduce.errors import MissingExtraError, TrainingError
from transduce.pages.templates import MAX_CHARACTERS
from transduce.training import train, write_report
from transduce.training.reporting.curves import to_finite
from transduce.training.reporting.report import MAX_OUTPUTS, EventFile, format_figure


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e31, None, "1", True])
def test_what_is_no_figure(value: object) -> None:
    assert to_finite(value) is None


def test_figures() -> None:
    assert (to_finite(3), to_finite(-0.5)) == (3.0, -0.5)
    assert [format_figure(value, ".2f") for value in (1.234, math.nan, None, "x", True)] == ["1.23", "nan", "", "", ""]


HOSTILE = "<script>alert(1)</script> & \"'"
CONFIG = load_run_config(None, arguments={"preset": "tiny", "data.source_language": "en"})[0]
SCORES = [
    {"metric": "BLEU", "value": 12.345, "signature": "nrefs:1|tok:13a", "low": 11.0, "high": 13.7},
    {"metric": "chrF", "value": 34.5, "signature": "nrefs:1|nc:6"},
]


def lines() -> list[dict[str, Any]]:
    training = [
        {
            "kind": "training",
            "update": update,
            "cross_entropy": 8.0 / update,
            "learning_rate": 1e-3,
            "tokens_per_second": 5000.0,
            "seconds": update * 0.1,
        }
        for update in range(50, 201, 50)
    ]
    sample = {"source": HOSTILE, "translation": "eins", "reference": "zwei"}
    validation = {
        "kind": "validation",
        "update": 200,
        "loss": 2.0,
        "perplexity": 7.39,
        "is_best": True,
        "scores": SCORES,
        "samples": [sample],
        "seconds": 20.0,
    }
    cleaning = {"blank": 3, "kept": 97}
    data = {"kind": "data", "update": 0, "num_pairs": 97, "num_parameters": 1234567, "cleaning": cleaning}
    return [data, *training, validation]


class Balance(HTMLParser):
    """Fails at a tag that is closed without being open."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opened and closed at once, as in <rect/>."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("amount", range(7))
def test_the_page_is_whole_however_far_the_run_has_come(tmp_path: Path, amount: int) -> None:
    write_report(tmp_path / "report.html", CONFIG, lines()[:amount])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_page_tells_the_figures_and_asks_nobody_else(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", CONFIG, lines())
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for figure in ("12.35", "34.50", "7.39", "1,234,567", "nrefs:1|tok:13a", "blank"):
        assert figure in page
    assert not re.search(r"""src=|href="[^#]|url\(|@import""", page)
    assert set(re.findall(r'href="#(.*?)"', page)) == set(re.findall(r'id="(.*?)"', page))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "Best model: the one after update 200." in page


def test_cleaning_is_told_corpus_by_corpus_where_there_are_several(tmp_path: Path) -> None:
    def told(*counts: tuple[int, int]) -> str:
        corpora = [
            {"name": f"<{number}>", "weight": 0.5, "cleaning": {"blank": blank, "kept": kept}}
            for number, (blank, kept) in enumerate(counts)
        ]
        write_report(tmp_path / "report.html", CONFIG, [{**lines()[0], "corpora": corpora}])
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        Balance().feed(page)
        return page[page.index("Pairs that each rule") : page.index("<h2>Settings")]

    several = told((1, 56), (2, 41))
    names = ["all corpora", "&lt;0&gt; (weight 0.5)", "&lt;1&gt; (weight 0.5)"]
    assert re.findall(r"pairs kept: ([^<>]+)</caption>", several) == names
    assert re.findall(r'class="number">(\d+)<', several) == ["3", "97", "1", "56", "2", "41"]
    alone = told((3, 97))
    assert "pairs kept</caption>" in alone
    assert re.findall(r'class="number">(\d+)<', alone) == ["3", "97"]


def test_findings_and_their_end_stand_at_the_top(tmp_path: Path) -> None:
    ill = {
        "kind": "finding",
        "name": "source ignored",
        "text": "the model ignores <it>",
        "is_over": False,
        "update": 400,
    }
    early = {**ill, "name": "high rate", "text": "too high", "update": 0}
    over = {**ill, "text": "it is used now", "is_over": True, "update": 1200}

    def told(*findings: dict[str, Any]) -> str:
        write_report(tmp_path / "report.html", CONFIG, [*lines(), *findings])
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        Balance().feed(page)
        return page[page.index("<h2>Diagnosis") : page.index("<h2>Curves")]

    assert "Nothing was found. Looked for: unrelated pairs, " in told()
    assert "<li><b>high rate</b>, before the first update: too high.</li>" in told(early, ill)
    assert "<li><b>source ignored</b>, after update 400: the model ignores &lt;it&gt;.</li>" in told(early, ill)
    everything = told(early, ill, over)
    assert '<li class="soft"><b>source ignored is over</b>, after update 1,200: it is used now.</li>' in everything
    assert '<li class="soft"><b>source ignored</b>' in everything
    assert everything.index("is over") < everything.index("after update 400") < everything.index("high rate")


def test_an_average_that_is_best_is_named_and_stands_in_the_table(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", CONFIG, [*lines(), {**lines()[-1], "kind": "average", "loss": 1.875}])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Best model: the average of checkpoints after update 200." in page
    table = page[page.index("Validations as a table") : page.index("<h2>Samples")]
    for cell in (">200<", ">2.000<", ">200 (average of checkpoints)<", ">1.875<", ">12.35 (11.00–13.70)<", ">34.50<"):
        assert cell in table


def test_the_scores_at_the_top_are_those_of_the_fitted_search(tmp_path: Path) -> None:
    data, *rest = lines()
    fitted = {"kind": "fitted_search", "update": 200, "scores": [{**SCORES[0], "value": 13.21}]}
    page = page_of(tmp_path, {**data, "num_validation_pairs": 2345}, *rest, fitted)
    top = page[: page.index("<h2>")]
    assert ">13.21<" in top
    assert ">12.35<" not in top
    assert "those of the 2,345 validation sentences by which the model was chosen" in top
    # A model that became the best one later has its own.
    later = {**rest[-1], "update": 300, "scores": [{**SCORES[0], "value": 14.56}]}
    assert ">14.56<" in page_of(tmp_path, data, *rest, fitted, later)
    few = load_run_config(None, arguments={"training.max_validation_pairs": 300})[0]
    page = page_of(tmp_path, {**data, "num_validation_pairs": 2345}, *rest, config=few)
    assert "those of the 300 validation sentences" in page


def test_a_moving_average_has_its_own_name(tmp_path: Path) -> None:
    moving = {**lines()[-1], "kind": "average", "averaged_checkpoints": 1, "ema_decay": 0.999}
    write_report(tmp_path / "report.html", CONFIG, [*lines(), moving])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Best model: the moving average after update 200." in page
    assert ">200 (moving average)<" in page


@pytest.mark.parametrize("kind", ["data", "training", "validation", "average"])
def test_a_line_may_lack_every_figure(tmp_path: Path, kind: str) -> None:
    write_report(tmp_path / "report.html", CONFIG, [{"kind": kind, "update": 7, "is_best": True}])
    assert (tmp_path / "report.html").read_text(encoding="utf-8").endswith("</html>\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_figure_that_is_not_finite_does_not_end_the_run(tmp_path: Path, value: float) -> None:
    scores = [{**score, "value": value} for score in SCORES]
    broken = {**lines()[-1], "update": 250, "loss": value, "perplexity": value, "scores": scores}
    training = {**lines()[1], "update": 250, "cross_entropy": value, "learning_rate": value}
    write_report(tmp_path / "report.html", CONFIG, [*lines(), training, broken])
    for picture in re.findall(r"<svg.*?</svg>", (tmp_path / "report.html").read_text(encoding="utf-8"), re.DOTALL):
        assert not re.search(r"\b(nan|inf)\b", picture)
        ET.fromstring(picture)


LENGTHS = {
    "width": 4,
    "source": [7, 90, 0],
    "target": [17, 79, 1],
    "median": {"source": 5, "target": 6},
    "longest": {"source": 7, "target": 1234},
}


def page_of(folder: Path, *lines_: dict[str, Any], config: RunConfig = CONFIG) -> str:
    write_report(folder / "report.html", config, lines_)
    return (folder / "report.html").read_text(encoding="utf-8")


def test_lengths_and_cleaning_are_shown(tmp_path: Path) -> None:
    cleaning = {"too_long": 50, "like_held_out": 10, "kept": 140}
    page = page_of(tmp_path, {**lines()[0], "lengths": LENGTHS, "cleaning": cleaning})
    assert "target, 8 and more tokens: 1<" in page
    assert "1,234" in page
    assert '<th scope="row">too long</th><td class="number">50</td><td class="number">25.00%</td>' in page
    assert '<th scope="row">sharing a sentence with a held-out pair</th><td class="number">10</td>' in page


def test_what_differs_from_the_defaults_stands_first(tmp_path: Path) -> None:
    config = load_run_config(None, arguments={"training.updates": 777, "data.source_language": HOSTILE})[0]
    page = page_of(tmp_path, config=config)
    settings = page[page.index("<h2>Settings") : page.index("<h2>Environment")]
    differing, whole = settings.split("<details>")
    assert "training.updates</th><td>777</td><td>100000<" in differing
    assert "training.warmup" not in differing
    assert "warmup = 4000" in whole
    assert "<script" not in page


def test_it_is_said_by_what_the_run_was_computed(tmp_path: Path) -> None:
    page = page_of(tmp_path, {**lines()[0], "environment": {"hardware": "<gpu>"}, "digests": {"a.tsv": "ab" * 32}})
    assert '<th scope="row">hardware</th><td>&lt;gpu&gt;</td>' in page
    assert "ab" * 32 in page


def long_run(num_updates: int) -> list[dict[str, Any]]:
    data, training, *_, validation = lines()
    many = [data]
    for number in range(1, num_updates + 1):
        many.append({**training, "update": number, "gradient_norm": number % 7, "accuracy": 0.5, "loss": 3.0})
        if number % 10 == 0:
            sample = {"source": HOSTILE * 100, "translation": f"{number} eins" * 100, "reference": "zwei eins" * 100}
            many.append({**validation, "update": number, "samples": [sample]})
    return many


@pytest.mark.exhaustive
def test_a_long_run_has_a_small_page_soon(tmp_path: Path, time_growth: Callable[..., float]) -> None:
    pages = []
    # Ten times as many updates take about ten times as long; if each looked at all others, it would be a hundred times.
    assert time_growth(lambda run: pages.append(page_of(tmp_path, *run)), long_run(500), long_run(5000)) < 40
    assert len(pages[-1].encode()) < 300_000
    assert "update 5,000, after" in pages[-1]


def test_a_page_that_cannot_be_written_leaves_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = page_of(tmp_path, *lines())
    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        page_of(tmp_path, lines()[0])
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == before


def test_half_a_character_does_not_end_the_page(tmp_path: Path) -> None:
    sample = {"source": "a\ud800", "translation": "b", "reference": "c"}
    assert "a?" in page_of(tmp_path, {**lines()[-1], "samples": [sample]})


def sampled(update: int, translation: str, reference: str = "eins zwei", source: str = "one two") -> dict[str, Any]:
    sample = {"source": source, "translation": translation, "reference": reference}
    return {"kind": "validation", "update": update, "samples": [sample]}


def rows(page: str) -> list[tuple[str, str]]:
    return re.findall(r'<tr><th scope="row" class="number">(.*?)</th><td dir="auto".*?>(.*?)</td></tr>', page)


def samples(folder: Path, lines: list[dict[str, Any]], source_language: str, target_language: str) -> str:
    given = {"data.source_language": source_language, "data.target_language": target_language}
    write_report(folder / "report.html", load_run_config(None, arguments=given)[0], lines)
    page = (folder / "report.html").read_text(encoding="utf-8")
    return page[page.index("<h2>Samples over time") : page.index("<h2>Data")]


def test_an_output_stands_there_for_as_long_as_it_is_the_same(tmp_path: Path) -> None:
    outputs = ["drei", "eins drei", "eins drei", "eins zwei"]
    page = samples(tmp_path, [sampled(100 * number, text) for number, text in enumerate(outputs, 1)], "en", "de")
    assert [update for update, _ in rows(page)] == ["100", "200 to 300", "400"]
    assert page.count("one two") == 1
    assert 'lang="de"' in page


def test_what_the_reference_has_too_stands_out(tmp_path: Path) -> None:
    [(_, words)] = rows(samples(tmp_path, [sampled(1, "eins oder drei")], "", ""))
    assert words == "<b>eins </b>oder drei"
    [(_, letters)] = rows(samples(tmp_path, [sampled(1, "猫が好き", reference="犬が好き")], "", ""))
    assert letters == "猫<b>が好き</b>"


def test_every_text_is_escaped_and_none_is_endless(tmp_path: Path) -> None:
    page = samples(tmp_path, [sampled(1, "<i>" * 500, "<b> & <u>" * 500, '"<script>"' * 500)], '"><script>', "")
    assert "<script" not in page
    assert "<i>" not in page
    assert "<u>" not in page
    assert len(page) < 3 * MAX_CHARACTERS * 6 + 1000


def test_of_many_outputs_a_few_are_shown(tmp_path: Path) -> None:
    page = samples(tmp_path, [sampled(update, f"eins {update}") for update in range(1, 101)], "", "")
    shown = [update for update, _ in rows(page)]
    assert len(shown) == MAX_OUTPUTS
    assert (shown[0], shown[-1]) == ("1", "100")


def test_there_may_be_no_samples(tmp_path: Path) -> None:
    assert "The first validation" in samples(tmp_path, [], "", "")
    assert "The first validation" in samples(tmp_path, [{"kind": "validation", "update": 3}], "", "")


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def points(events: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events.Scalars(tag)]


def line(update: int, **figures: Any) -> dict[str, Any]:
    return {"kind": "training", "update": update, "seconds": update / 10, **figures}


SCORE = {"metric": "BLEU", "value": 12.5, "signature": "s", "low": 11.0, "high": 14.0}
VALIDATION = {"kind": "validation", "update": 20, "loss": 2.0, "is_best": True, "scores": [SCORE], "samples": [{}]}


def test_tensorboard_reads_every_figure(tmp_path: Path) -> None:
    data = {"kind": "data", "update": 0, "num_pairs": 7}
    EventFile(tmp_path, [data, line(10, loss=3.5), line(20, loss=2.5, digest="abc"), VALIDATION])
    events = read(tmp_path)
    assert set(events.Tags()["scalars"]) == {
        *("training/loss", "training/seconds", "validation/loss"),
        *("validation/bleu", "validation/bleu_low", "validation/bleu_high"),
    }
    assert points(events, "training/loss") == [(10, 3.5), (20, 2.5)]
    assert points(events, "validation/bleu") == [(20, 12.5)]
    assert points(events, "validation/bleu_low") == [(20, 11.0)]


def test_the_time_axis_is_that_of_training(tmp_path: Path) -> None:
    file = EventFile(tmp_path, [line(100, loss=1.0), line(300, loss=1.0)])
    file.append(line(350, loss=1.0))
    first, second, third = (event.wall_time for event in read(tmp_path).Scalars("training/loss"))
    assert second - first == pytest.approx(20.0, abs=1e-3)
    assert third - second == pytest.approx(5.0, abs=1e-3)
    assert second == pytest.approx(time.time(), abs=60)


def test_a_figure_that_is_not_finite_is_written_as_it_is(tmp_path: Path) -> None:
    EventFile(tmp_path, [line(10, loss=math.nan), line(20, loss=math.inf)])
    (_, first), (_, second) = points(read(tmp_path), "training/loss")
    assert math.isnan(first)
    assert second == math.inf


def test_a_run_that_goes_on_has_no_point_twice(tmp_path: Path) -> None:
    """Neither for a TensorBoard that comes new, nor for one that has watched all the time."""
    file = EventFile(tmp_path, [line(10, loss=3.0)])
    for update in (20, 30, 40):
        file.append(line(update, loss=2.0))
    watching = read(tmp_path)
    assert len(watching.Scalars("training/loss")) == 4
    # back to the checkpoint of update 20
    EventFile(tmp_path, [line(10, loss=3.0), line(20, loss=2.0)]).append(line(30, loss=1.0))
    watching.Reload()
    expected = [(10, 3.0), (20, 2.0), (30, 1.0)]
    assert points(watching, "training/loss") == points(read(tmp_path), "training/loss") == expected


@pytest.mark.exhaustive
def test_a_run_writes_what_its_metrics_say(make_config: Any, metrics_of: Any, watcher: Any, killed: Any) -> None:
    config = make_config(training__tensorboard=True, training__updates=12)
    with pytest.raises(killed):
        train(config, watcher(11))
    folder = train(config).folder
    lines = metrics_of(folder)
    events = read(folder / "tensorboard")
    for kind, figure in (("training", "loss"), ("validation", "loss"), ("average", "perplexity")):
        expected = [(line["update"], pytest.approx(line[figure])) for line in lines if line["kind"] == kind]
        assert points(events, f"{kind}/{figure}") == expected
        assert expected


def test_without_tensorboard_nothing_begins(make_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    config = make_config(training__tensorboard=True)
    with pytest.raises(MissingExtraError, match=r"training.tensorboard = true needs .*'transduce\[tensorboard\]'"):
        train(config)
    assert not Path(config.output).exists()
    train(make_config(training__updates=1))


MakeConfig = Callable[..., RunConfig]
SHORT = {"training__updates": 12, "training__validate_every": 4, "training__tensorboard": True}
needs_full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")


class Saboteur:
    """A watcher mixed into another, that breaks something after update 5 and may repair it after update 9."""

    def __init__(self, spoil: Callable[[], None], repair: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.acts = {5: spoil, 9: repair}

    def report_progress(self, progress: Any) -> None:
        super().report_progress(progress)  # type: ignore[misc]  # of the watcher
        if act := self.acts.get(progress.update):
            act()


@pytest.fixture
def saboteur(watcher: type) -> type:
    return type("SabotagingWatcher", (Saboteur, watcher), {})


def complaints(told: Any) -> list[str]:
    return [text for text in told.said if "training continues without" in text]


@pytest.mark.exhaustive
def test_a_full_disk_stops_no_report_for_long(
    make_config: MakeConfig, saboteur: type, metrics_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(**SHORT)
    folder = Path(config.output)
    writing = import_module("transduce.storage.writing")
    flush = writing.flush_to_disk
    seen: list[str] = []

    def repair() -> None:
        seen.append((folder / "report.html").read_text(encoding="utf-8"))
        monkeypatch.setattr(writing, "flush_to_disk", flush)

    def spoil() -> None:
        monkeypatch.setattr(writing, "flush_to_disk", flush_unless_full)

    def flush_unless_full(path: Path) -> None:
        if path.name.startswith("report.html"):
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(path)

    told = saboteur(spoil, repair)
    assert train(config, told).updates == 12
    [complaint] = complaints(told)
    assert "report.html could not be written" in complaint
    assert "No space left" in complaint
    assert "update 4, after" in seen[0]  # the page from before the disk was full, whole
    assert "update 12, after" in (folder / "report.html").read_text(encoding="utf-8")
    assert [line["update"] for line in metrics_of(folder) if line["kind"] == "validation"] == [4, 8, 12]


@pytest.mark.exhaustive
@needs_full_disk
def test_a_full_disk_ends_tensorboard_and_not_the_run(make_config: MakeConfig, saboteur: type) -> None:
    config = make_config(**SHORT)

    def spoil() -> None:
        [events] = (Path(config.output) / "tensorboard").iterdir()
        events.unlink()
        events.symlink_to("/dev/full")

    told = saboteur(spoil)
    assert train(config, told).updates == 12
    [complaint] = complaints(told)
    assert "TensorBoard" in complaint
    assert "No space left" in complaint


@pytest.mark.exhaustive
def test_places_that_are_taken_are_told_once(make_config: MakeConfig, watcher: type) -> None:
    config = make_config(**SHORT)
    train(make_config(**{**SHORT, "training__updates": 1, "training__tensorboard": False}))
    folder = Path(config.output)
    (folder / "tensorboard").write_text("mine", encoding="utf-8")
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()
    told = watcher()
    assert train(config, told).updates == 12
    assert len(complaints(told)) == 2
    assert (folder / "tensorboard").read_text(encoding="utf-8") == "mine"
    assert not list(folder.glob("*transduce-tmp*"))


def test_a_broken_tensorboard_is_done_without(
    make_config: MakeConfig, watcher: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    told = watcher()
    assert train(make_config(**{**SHORT, "training__updates": 2}), told).updates == 2
    [complaint] = complaints(told)
    assert "tensorboard.compat.proto" in complaint


@pytest.mark.exhaustive
def test_there_is_a_report_from_the_start(
    make_config: MakeConfig, saboteur: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(**SHORT)
    seen: list[str] = []
    train(config, saboteur(lambda: seen.append((Path(config.output) / "report.html").read_text(encoding="utf-8"))))
    assert "update 4, after" in seen[0]
    seen.clear()
    later = make_config("later", **{**SHORT, "training__validate_every": 100})
    train(later, saboteur(lambda: seen.append((Path(later.output) / "report.html").read_text(encoding="utf-8"))))
    assert "update 0, after" in seen[0]
    assert "Lengths of the training sentences" in seen[0]
    monkeypatch.setattr("transduce.training.reporting.report.REPORT_EVERY_SECONDS", 0.0)
    train(
        later,
        saboteur(lambda: seen.append((Path(later.output) / "report.html").read_text(encoding="utf-8"))),
        restart=True,
    )
    assert "update 4, after" in seen[1]


def test_a_run_that_diverges_leaves_its_report(make_config: MakeConfig) -> None:
    config = make_config(training__learning_rate=1e30, training__updates=20)
    with pytest.raises(TrainingError):
        train(config)
    # The first update spoils the weights; those after it are skipped, until the first validation ends the run.
    assert "update 8, after" in (Path(config.output) / "report.html").read_text(encoding="utf-8")
