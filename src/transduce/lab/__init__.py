"""The laboratory: experiments that test the paper's claims, with measurements, reports and verdicts."""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.lab.conclusion import Chart, Claim, ClaimResult, Conclusion
    from transduce.lab.experiment import Experiment, Trial
    from transduce.lab.experiments import EXPERIMENTS, find_experiment
    from transduce.lab.laboratory import Laboratory, TextFiles
    from transduce.lab.measurements import Measurement, MeasurementLog, Results
    from transduce.lab.report import Report, compare_verdicts, render_html, render_markdown, write_reports
    from transduce.lab.run import run_experiment
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.lab.conclusion": "Chart Claim ClaimResult Conclusion",
            "transduce.lab.experiment": "Experiment Trial",
            "transduce.lab.experiments": "EXPERIMENTS find_experiment",
            "transduce.lab.laboratory": "Laboratory TextFiles",
            "transduce.lab.measurements": "Measurement MeasurementLog Results",
            "transduce.lab.report": "Report compare_verdicts render_html render_markdown write_reports",
            "transduce.lab.run": "run_experiment",
        },
    )

__all__ = [
    "EXPERIMENTS",
    "Chart",
    "Claim",
    "ClaimResult",
    "Conclusion",
    "Experiment",
    "Laboratory",
    "Measurement",
    "MeasurementLog",
    "Report",
    "Results",
    "TextFiles",
    "Trial",
    "compare_verdicts",
    "find_experiment",
    "render_html",
    "render_markdown",
    "run_experiment",
    "write_reports",
]
