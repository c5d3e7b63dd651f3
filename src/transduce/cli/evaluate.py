"""`transduce evaluate`."""

from pathlib import Path
from typing import Literal

from transduce.cli.console import print_json, say
from transduce.evaluation import evaluate_translator, format_scores
from transduce.translation import Translator


def evaluate(
    model: Path,
    /,
    *,
    source: Path,
    reference: Path,
    beam: int | None = None,
    tokenize: str = "13a",
    precision: Literal["auto", "float32", "bfloat16"] = "float32",
    device: str = "auto",
    json: bool = False,
) -> None:
    """Translate a test set and score it: BLEU, chrF and TER, with sacreBLEU's signatures.

    Args:
        model: a bundle, or the folder of a run.
        source: the text to translate, one sentence a line.
        reference: its translations by people, line for line, as they are: not tokenised, not lower-cased.
        beam: hypotheses kept for each sentence; 1 is greedy. The model's own setting unless given.
        tokenize: how BLEU divides text into words: 13a, as everybody reports it; intl, char, zh; or none, for a model
            that was trained on tokenised text.
        precision: of the arithmetic; float32 is exact, auto what is fastest here.
        device: cpu, cuda, mps or auto.
        json: print one JSON object.
    """
    translator = Translator.load(model, device=device, precision=precision)
    result = evaluate_translator(translator, source, reference, beam=beam, tokenization=tokenize)
    if json:
        print_json({"model": str(model), **result.as_json()})
        return
    print(format_scores(result.scores))
    say(f"{result.num_lines:,} lines in {result.seconds:.1f} s, beam {result.beam}, {precision}")
