"""`transduce evaluate`."""

from pathlib import Path

from transduce.cli.computation import Computation
from transduce.cli.console import print_json, say
from transduce.evaluation import evaluate_translator, format_scores

_COMPUTATION = Computation()


def evaluate(
    model: Path,
    /,
    *,
    source: Path,
    reference: Path,
    beam: int | None = None,
    tokenize: str = "13a",
    confidence: bool = False,
    computation: Computation = _COMPUTATION,
    json: bool = False,
) -> None:
    """Translate a test set and score it: BLEU, chrF and TER, with sacreBLEU's signatures.

    Args:
        model: a bundle, the folder of a run, or for another engine what was exported to it.
        source: the text to translate, one sentence a line.
        reference: its translations by people, line for line, as they are: not tokenised, not lower-cased.
        beam: hypotheses kept for each sentence; 1 is greedy. The model's own setting unless given.
        tokenize: how BLEU divides text into words: 13a, as everybody reports it; intl, char, zh; or none, for a model
            that was trained on tokenised text.
        confidence: add to each score the interval in which it lies with 95 %, by bootstrap resampling of the lines.
        computation: what computes.
        json: print one JSON object.
    """
    translator = computation.load(model)
    result = evaluate_translator(translator, source, reference, beam=beam, tokenization=tokenize, confidence=confidence)
    if json:
        print_json({"model": str(model), **result.as_json()})
        return
    print(format_scores(result.scores))
    how = f"beam {result.beam}, {computation.engine}, {computation.settled()}"
    say(f"{result.num_lines:,} lines in {result.seconds:.1f} s, {how}")
