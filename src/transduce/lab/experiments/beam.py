"""Beam width and length penalty of the search for translations (paper 6.1)."""

from collections.abc import Mapping, Sequence
from functools import partial

from transduce.lab.conclusion import Chart, Claim, Conclusion
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Results, Value
from transduce.lab.statistics import format_mean, format_means, judge_larger
from transduce.lab.variants import make_training_trials
from transduce.pages import Series, Table, draw_line_chart

BEAMS = (1, 2, 4, 8, 16)
ALPHAS = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5)

NUM_PAIRS = 150
"""Pairs of generated text to train on. From 1,000, a model is so sure of nearly every translation that all searches
find the same."""

BEAM, ALPHA = 4, 0.6
"""What the paper chose (6.1)."""

MODEL: Mapping[str, Value] = {"model.dropout": 0.1}
"""What differs from the laboratory's settings in the model whose translations are searched: the paper's dropout (5.4),
as each of the few pairs is seen many times."""

SECONDS_OF_SEARCHES = 30.0
"""Part of the budget for the searches with all beams and length penalties, for each seed."""

BEAM_SEARCH = Claim(
    "Sutskever et al. 2014", "Beam search translates better than greedy search: here, with the paper's beam of 4."
)
PENALTY = Claim(
    "Wu et al. 2016", "A length penalty translates better than none: here, the paper's α = 0.6 with a beam of 4."
)
SHORTER = Claim("Murray & Chiang 2018", "Without length penalty, the wider the beam, the shorter the translations.")
WORSE = Claim("Koehn & Knowles 2017", "Wide beams translate worse than narrower ones: here, 16 worse than 4.")


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: one trained model for each seed, then searches with every beam and every length penalty."""
    laboratory = laboratory.with_fewer_generated_pairs(NUM_PAIRS)
    updates = laboratory.plan_updates([MODEL], reserve=SECONDS_OF_SEARCHES * len(laboratory.seeds))

    def search(beam: int, alpha: float, seed: int) -> Mapping[str, float]:
        run = laboratory.find_run(MODEL, updates, seed)
        return laboratory.score(run / "best", beam=beam, length_penalty=alpha)

    searches = [
        Trial({"beam": beam, "alpha": alpha}, partial(search, beam, alpha), cost=0.01 * beam)
        for beam in BEAMS
        for alpha in (ALPHAS if beam > 1 else (ALPHA,))
    ]
    return [*make_training_trials(laboratory, {"trained": MODEL}, updates), *searches]


def conclude(results: Results) -> Conclusion:
    """Verdicts on beam and length penalty by BLEU, and on the length of translations."""

    def find(quantity: str, beam: int, alpha: float) -> Mapping[int, float]:
        return results.by_seed(quantity, beam=beam, alpha=alpha)

    return Conclusion(
        [
            judge_larger(
                BEAM_SEARCH,
                find("bleu", BEAM, ALPHA),
                find("bleu", 1, ALPHA),
                f"BLEU with a beam of {BEAM} minus BLEU of greedy search",
                form=".2f",
            ),
            judge_larger(
                PENALTY,
                find("bleu", BEAM, ALPHA),
                find("bleu", BEAM, 0.0),
                f"BLEU with α = {ALPHA} minus BLEU with α = 0, with a beam of {BEAM}",
                form=".2f",
            ),
            judge_larger(
                SHORTER,
                find("length", 1, ALPHA),
                find("length", BEAMS[-1], 0.0),
                f"relative length with a beam of 1 minus relative length with a beam of {BEAMS[-1]}, with α = 0",
                form=".4f",
            ),
            judge_larger(
                WORSE,
                find("bleu", BEAM, 0.0),
                find("bleu", BEAMS[-1], 0.0),
                f"BLEU with a beam of {BEAM} minus BLEU with a beam of {BEAMS[-1]}, with α = 0",
                form=".2f",
            ),
        ],
        charts=[
            _draw_over_beams(results, "bleu", "BLEU"),
            _draw_over_beams(results, "length", "Length of translations, references = 1"),
        ],
        tables=[_tabulate_bleu(results), _tabulate_beams(results)],
        remarks=[
            "All searches of a seed are with the same model, so that differences between them are those of the search.",
            "With a beam of 1 there is one hypothesis only, so that no length penalty changes it: it is searched once.",
            "The paper chose beam and length penalty on its development text, and does not say whether they help.",
        ],
    )


def _draw_over_beams(results: Results, quantity: str, name: str) -> Chart:
    series = [Series(f"α = {alpha}", results.curve("beam", quantity, alpha=alpha)) for alpha in ALPHAS]
    return Chart(f"{name} over the beam", draw_line_chart(name, series, "beam", "", log_x=True))


def _tabulate_bleu(results: Results) -> Table:
    rows = [
        [str(beam), *(format_mean(results, "bleu", ".2f", beam=beam, alpha=alpha) for alpha in ALPHAS)]
        for beam in BEAMS
    ]
    return Table(
        "BLEU: mean over the seeds (95 % confidence interval)", ["beam", *(f"α = {alpha}" for alpha in ALPHAS)], rows
    )


def _tabulate_beams(results: Results) -> Table:
    quantities = {"bleu": ".2f", "chrf": ".2f", "length": ".4f", "search_seconds": ".2f"}
    rows = [[str(beam), *format_means(results, quantities, beam=beam, alpha=ALPHA)] for beam in BEAMS]
    return Table(
        f"Searches with α = {ALPHA}: mean over the seeds (95 % confidence interval)",
        ["beam", "BLEU", "chrF", "relative length", "seconds for the test pairs"],
        rows,
    )


EXPERIMENT = Experiment(
    title="Beam width and length penalty",
    claims=[BEAM_SEARCH, PENALTY, SHORTER, WORSE],
    method=(
        f"For each seed one model is trained; on generated text, with {NUM_PAIRS} pairs. It translates unseen "
        "sentences with beams of "
        f"{', '.join(map(str, BEAMS))} and with length penalties from α = {ALPHAS[0]} to {ALPHAS[-1]}: the "
        "log-probability of a translation of n tokens is divided by ((5 + n) / 6)^α. Quality is judged by BLEU, "
        "length by the number of tokens of all translations, divided by that of the references."
    ),
    plan=plan,
    conclude=conclude,
)
