"""What runs without a recipe reached, by the kind and the size of their corpora: what to expect before hours go by."""

import math
from typing import NamedTuple


class MeasuredRun(NamedTuple):
    """A run without a recipe, and how good its model was; README's table "What to expect" has the same figures.

    Args:
        text: kind of text, languages and name of the corpus.
        num_pairs: in the training text.
        training: how long it trained.
        test_text: what was translated, with beam 4.
        bleu: sacreBLEU's BLEU.
        chrf: sacreBLEU's chrF.
    """

    text: str
    num_pairs: int
    training: str
    test_text: str
    bleu: float
    chrf: float


MEASURED_RUNS = (
    MeasuredRun("captions, English to German (Multi30k)", 29_000, "30 minutes", "test 2016", 38.3, 62.4),
    MeasuredRun("captions, English to German (Multi30k)", 15_000, "6 minutes", "test 2016", 31.4, 56.3),
    MeasuredRun("captions, English to German (Multi30k)", 6_000, "10 minutes", "test 2016", 23.4, 50.3),
    MeasuredRun("news, English to Hausa (MAFAND-MT)", 5_865, "17 minutes", "development text", 5.5, 27.2),
    MeasuredRun("news, English to Igbo (MAFAND-MT)", 6_998, "15 minutes", "development text", 6.0, 30.6),
)

COMPARABLE_FACTOR = 3.0
"""How many times larger or smaller a corpus may be for its result to say something of another one."""


def expected_quality(num_pairs: int) -> str | None:
    """One sentence on what corpora of about `num_pairs` pairs reached; None where no such corpus was measured."""

    def distance(run: MeasuredRun) -> float:
        return abs(math.log(run.num_pairs / max(1, num_pairs)))

    comparable = [run for run in MEASURED_RUNS if distance(run) <= math.log(COMPARABLE_FACTOR)]
    # Of each kind of text the nearest, which comes last.
    nearest = {run.text: run for run in sorted(comparable, key=distance, reverse=True)}
    if not nearest:
        return None
    reached = "; ".join(
        f"{run.text}, {run.num_pairs:,} pairs, {run.training}: BLEU {run.bleu:g}, chrF {run.chrf:g}"
        for run in nearest.values()
    )
    return f"what corpora of about this size reached: {reached}"
