"""What follows from the measurements of an experiment: claims with verdicts, charts and tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from transduce.pages import Series, Table, draw_line_chart

Verdict = Literal["supported", "not supported", "not decided"]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or of another paper."""

    section: str
    """Where it is made, as in "3.2.1"; of another paper, its authors and year."""
    text: str


@dataclass(frozen=True)
class ClaimResult:
    """What was measured for a claim, and the verdict."""

    claim: Claim
    measured: str
    """The figures in one sentence, with their uncertainty."""
    verdict: Verdict


@dataclass(frozen=True)
class Chart:
    """A chart of a report."""

    title: str
    svg: str
    """An `<svg>` element, see `pages`."""

    @classmethod
    def draw_lines(cls, title: str, series: Sequence[Series], x_label: str, y_label: str, **scales: bool) -> "Chart":
        """Draw a line chart; `scales` are the `log` and `log_x` of `draw_line_chart`, for logarithmic axes."""
        return cls(title, draw_line_chart(title, series, x_label, y_label, **scales))


@dataclass(frozen=True)
class Conclusion:
    """All that a report shows of an experiment's measurements."""

    claim_results: Sequence[ClaimResult]
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    remarks: Sequence[str] = ()
    """What a reader needs to know to judge the verdicts, in sentences; for instance what differs from the paper."""
