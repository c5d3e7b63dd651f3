"""What an experiment is: the paper's claims, the trials that are measured, and the conclusion from their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transduce.lab.conclusion import Claim, Conclusion
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Results, Settings


@dataclass(frozen=True)
class Trial:
    """One measurement, repeated with every seed.

    Args:
        settings: identify the trial, also after a stop; they and the seed decide the result.
        measure: takes the seed, and returns the measured quantities by name. A quantity that could not be measured,
            such as the loss of a run that diverged, is left out.
        cost: expected time in comparison with other trials, for the time remaining.
    """

    settings: Settings
    measure: Callable[[int], Mapping[str, float]]
    cost: float = 1.0


@dataclass(frozen=True)
class Experiment:
    """An experiment of the laboratory.

    Args:
        title: what is compared, in one line.
        claims: what the paper says of it.
        method: what is done, in a few sentences for a reader of the report.
        plan: the trials, for the folder, budget and text of a laboratory.
        conclude: computes verdicts, charts and tables from the results.
        num_seeds: seeds with which every trial is repeated, unless asked otherwise; one where a trial takes minutes.
    """

    title: str
    claims: Sequence[Claim]
    method: str
    plan: Callable[[Laboratory], Sequence[Trial]]
    conclude: Callable[[Results], Conclusion]
    num_seeds: int = 3
