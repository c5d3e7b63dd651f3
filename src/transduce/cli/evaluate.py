"""`transduce evaluate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cyclopts import Parameter

from transduce.cli.console import print_json, say
from transduce.evaluation import evaluate_translator, format_scores
from transduce.interop import NATIVE, load_translator


@Parameter(name="*")
@dataclass(frozen=True)
class Computation:
    """What computes.

    Args:
        engine: native, or that of another program, for which the model is a folder that `transduce export` has written;
            a bundle is exported to it first.
        precision: of the arithmetic. Native: float32 is exact, which it is unless given; auto is what is fastest here.
            Other engines: that of the exported folder, or what a bundle is exported in, float32 unless given.
        device: cpu, cuda, mps or auto.
    """

    engine: Literal["native", "ctranslate2", "onnx"] = "native"
    precision: Literal["auto", "float32", "bfloat16", "float16", "int8", "int16"] | None = None
    device: str = "auto"

    @property
    def settled_precision(self) -> str:
        """The one that is given, or the exact one of the native engine."""
        return self.precision or ("float32" if self.engine == NATIVE else "auto")


_COMPUTATION = Computation()


def evaluate(
    model: Path,
    /,
    *,
    source: Path,
    reference: Path,
    beam: int | None = None,
    tokenize: str = "13a",
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
        computation: what computes.
        json: print one JSON object.
    """
    precision = computation.settled_precision
    translator = load_translator(model, computation.engine, device=computation.device, precision=precision, say=say)
    result = evaluate_translator(translator, source, reference, beam=beam, tokenization=tokenize)
    if json:
        print_json({"model": str(model), **result.as_json()})
        return
    print(format_scores(result.scores))
    say(f"{result.num_lines:,} lines in {result.seconds:.1f} s, beam {result.beam}, {computation.engine}, {precision}")
