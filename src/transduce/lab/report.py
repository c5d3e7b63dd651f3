"""Reports of experiments, for a browser (HTML, opens from disk) and as Markdown with charts beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import UserError
from transduce.lab.conclusion import Chart, Conclusion
from transduce.lab.experiments import find_experiment
from transduce.lab.laboratory import read_plan
from transduce.lab.measurements import MeasurementLog
from transduce.pages import Table, format_table, make_standalone, make_templates, read_style
from transduce.storage import OwnFileKind, replace_file

MEASUREMENTS = "measurements.jsonl"
"""The file of an experiment's folder that its measurements are in."""

_TEMPLATES = make_templates(Path(__file__).parent)


@dataclass(frozen=True)
class Report:
    """All that is known of an experiment that was run in a folder."""

    name: str
    title: str
    method: str
    conclusion: Conclusion
    facts: Sequence[tuple[str, str]]
    """Command, machine, versions, and numbers that followed from the speed of the machine.

    Where the experiment went on with another of these, it follows with the number of the first measurement."""

    @classmethod
    def read(cls, folder: Path) -> "Report":
        """The report of the measurements in `folder`, however many of them there are.

        Raises:
            UserError: there are none, or they are damaged, or of an unknown experiment.
        """
        log = MeasurementLog(folder / MEASUREMENTS)
        header = log.header()
        if "name" not in header:
            raise UserError(f"{folder}: has no {MEASUREMENTS}: give the --output of `transduce lab run`")
        experiment, results = find_experiment(str(header["name"])), log.read()
        conclusion = experiment.conclude(results) if results.measurements else Conclusion(claim_results=())
        seconds = sum(one.seconds for one in results.measurements)
        measured = f"{len(results.measurements)} in {seconds:.0f} seconds, with seeds " + ", ".join(
            map(str, results.seeds())
        )
        numbers = {name: value for name, value in read_plan(folder).items() if isinstance(value, int)}
        facts = [
            *_list_facts(log.sessions()),
            *((name, f"{value:,}") for name, value in numbers.items()),
            ("measurements", measured),
        ]
        return cls(str(header["name"]), experiment.title, experiment.method, conclusion, facts)


def _list_facts(sessions: Sequence[tuple[Mapping[str, Any], int]]) -> list[tuple[str, str]]:
    """Command, machine and versions; of later sessions, what differs from the one before."""
    facts: list[tuple[str, str]] = []
    known: dict[str, Any] = {}
    for header, first in sessions:
        since = f", from measurement {first:,}" if facts else ""
        changed = {key: value for key, value in header.items() if key != "name" and known.get(key) != value}
        facts += [(f"{key}{since}", str(value)) for key, value in changed.items()]
        known |= header
    return facts


def write_reports(folder: Path) -> Report:
    """Write report.html, report.md and the charts of the experiment in `folder`; returns the report.

    Raises:
        UserError: see `Report.read`.
    """
    report = Report.read(folder)
    files = {"report.html": render_html([report]), "report.md": render_markdown(report)}
    files |= {_name_chart(report, number): make_standalone(chart.svg) for number, chart in _number_charts(report)}
    for name, content in files.items():
        with replace_file(folder / name) as beside:
            beside.write_text(content, encoding="utf-8", newline="\n")
    return report


_MARK = '<meta name="generator" content="transduce lab">'


REPORT_PAGE = OwnFileKind("page of transduce lab report", (_MARK,))
"""A page of `render_html`."""


def render_html(reports: Sequence[Report]) -> str:
    """One page for all the reports, without scripts or external resources."""
    return _TEMPLATES.get_template("report.html.j2").render(reports=reports, style=read_style(), mark=_MARK)


def render_markdown(report: Report) -> str:
    """The report as Markdown, which shows the charts from files beside it."""
    conclusion = report.conclusion
    parts = [f"# {report.title}", report.method, "## Claims and verdicts"]
    parts += [
        f"**{claim_result.claim.section}**: {claim_result.claim.text}\n\nMeasured: {claim_result.measured}.\n\n"
        f"Verdict: **{claim_result.verdict}**"
        for claim_result in conclusion.claim_results
    ]
    if conclusion.charts:
        parts.append("## Charts")
        parts += [f"![{chart.title}]({_name_chart(report, number)})" for number, chart in _number_charts(report)]
    if conclusion.tables:
        parts.append("## Figures")
        parts += [format_table(table) for table in conclusion.tables]
    if conclusion.remarks:
        parts += ["## Remarks", *conclusion.remarks]
    parts += ["## How it was measured", format_table(Table("", ["what", "which"], report.facts, num_texts=2))]
    return "\n\n".join(parts) + "\n"


def compare_verdicts(reports: Sequence[Report]) -> Table:
    """A table of all claims of the reports; of an experiment that was run more than once, its verdicts side by side."""
    verdicts: dict[tuple[str, str, str], list[str]] = {}
    for report in reports:
        for claim_result in report.conclusion.claim_results:
            key = (report.name, claim_result.claim.section, claim_result.claim.text)
            verdicts.setdefault(key, []).append(claim_result.verdict)
    rows = [[*key, "; ".join(found)] for key, found in verdicts.items()]
    return Table("", ["experiment", "section", "claim", "verdict"], rows, num_texts=4)


def _number_charts(report: Report) -> Sequence[tuple[int, Chart]]:
    return list(enumerate(report.conclusion.charts, start=1))


def _name_chart(report: Report, number: int) -> str:
    return f"{report.name}-{number}.svg"
