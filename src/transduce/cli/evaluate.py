"""`transduce evaluate`, `score` and `calibrate`: how good translations are, and how far they can be trusted."""

import sys
import time
from dataclasses import asdict
from json import dumps
from pathlib import Path

from transduce.bundle import (
    Bundle,
    RecordedConfidence,
    RecordedHead,
    check_calibratable,
    find_bundle,
    update_calibration,
)
from transduce.cli.options import Computation
from transduce.cli.standard_streams import print_json, print_message
from transduce.errors import UserError
from transduce.evaluation import evaluate_translator, format_scores
from transduce.text import open_parallel_corpus
from transduce.translation import (
    ForcedDecoder,
    PairScore,
    Perplexity,
    Translator,
    choose_head,
    measure_confidence,
    measure_heads,
    score_stream,
)

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
    print_message(f"{result.num_lines:,} lines in {result.seconds:.1f} s, {how}")


def score(
    model: Path,
    /,
    *,
    source: Path,
    target: Path,
    tokens: bool = False,
    json: bool = False,
    device: str = "auto",
) -> None:
    """Print the score of given translations, one a line: log-probability by length penalty, as `translate` scores.

    Args:
        model: a bundle, or the folder of a run.
        source: the text, one sentence a line; plain, .gz, .xz or .zst.
        target: its translations, line for line.
        tokens: behind the score, tab, piece, space, log-probability of each piece.
        json: print one JSON object a line: score, log_probability, and tokens, each with piece and log_probability.
        device: cpu, cuda, mps or auto.
    """
    if tokens and json:
        raise UserError("--tokens and --json: the JSON objects have the tokens; give one of them")
    corpus = open_parallel_corpus(Path(), str(source), str(target), None, None)
    corpus.check()  # both files to their end, before anything is printed
    decoder = ForcedDecoder.load(model, device=device)
    started = time.monotonic()
    perplexity = Perplexity()
    for line, found in enumerate(score_stream(decoder, corpus), start=1):
        perplexity.add(found)
        sys.stdout.write((dumps(found.as_json(), ensure_ascii=False) if json else _text(found, tokens=tokens)) + "\n")
        if found.is_long:
            limit = decoder.search.max_pieces
            print_message(
                f"line {line} is longer than the {limit} pieces that the model reads at a time: scored as a whole"
            )
    measured = "nothing but blank lines, which have no perplexity"
    if perplexity.num_tokens:
        measured = f"perplexity {perplexity.value:.2f} for {perplexity.num_tokens:,} tokens of this model's vocabulary"
    print_message(f"{perplexity.num_pairs:,} pairs in {time.monotonic() - started:.1f} s: {measured}")


def _text(found: PairScore, *, tokens: bool) -> str:
    scored = [f"{token.piece} {token.log_probability:.4f}" for token in found.tokens] if tokens else []
    return "\t".join([f"{found.score:.4f}", *scored])


def calibrate(
    model: Path,
    /,
    *,
    source: Path,
    target: Path,
    beam: int | None = None,
    device: str = "auto",
    force: bool = False,
    json: bool = False,
) -> None:
    """Measure how far translations can be trusted and which head aligns words, and keep it in the bundle.

    Args:
        model: a bundle, or the folder of a run; calibration.json is written into the bundle.
        source: text that the model was not trained on, one sentence a line; some hundred sentences are enough.
        target: its translations by people, line for line.
        beam: hypotheses kept for each sentence; 1 is greedy. The model's own setting unless given.
        device: cpu, cuda, mps or auto.
        force: replace a calibration.json there that is no calibration.
        json: print one JSON object.
    """
    bundle = Bundle.open(find_bundle(model))
    check_calibratable(bundle, force=force)
    translator = Translator.load(bundle.folder, device=device, precision="float32")
    measured = measure_confidence(translator, source, target, beam=beam)
    pairs = open_parallel_corpus(Path(), str(source), str(target), None, None)
    head = choose_head(measure_heads(ForcedDecoder.from_bundle(bundle, device=device), pairs))
    update_calibration(bundle, confidence=measured, alignment=RecordedHead(**asdict(head)), force=force)
    if json:
        print_json({"model": str(model), **measured.model_dump()})
    else:
        print(_table(measured))
    figures = f"calibrated on {measured.num_pairs:,} pairs, beam {measured.beam}"
    print_message(f"{bundle.folder}: {figures}; words are aligned by --head {head}")


def _table(measured: RecordedConfidence) -> str:
    """One figure a line; those of words and sentences are of the half that was held out of the fit."""
    figures = {
        "words": f"{measured.num_words:,}",
        "right": f"{measured.share_right:.1%}",
        "calibration error, raw": f"{measured.calibration_error_before:.3f}",
        "calibration error": f"{measured.calibration_error:.3f}",
        "right above wrong (AUC)": f"{measured.auc:.3f}",
        "error of predicted chrF": f"{measured.chrf_error:.1f}",
        "the same, always the mean": f"{measured.chrf_error_of_mean:.1f}",
    }
    return "\n".join(f"{name:28}{value}" for name, value in figures.items())
