"""`transduce score`, `calibrate` and `align`: scores, confidence and word alignments of given translations."""

import sys
import time
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path

from cyclopts import Parameter

from transduce.bundle import (
    Bundle,
    RecordedConfidence,
    RecordedHead,
    check_calibratable,
    find_bundle,
    update_calibration,
)
from transduce.cli.console import print_json, print_message
from transduce.cli.corpus_options import PairFlags
from transduce.errors import UserError
from transduce.pages import format_count
from transduce.text import ParallelCorpus
from transduce.translation import (
    AlignmentHead,
    ForcedDecoder,
    PairScore,
    Perplexity,
    Translator,
    align_stream,
    choose_head,
    measure_confidence,
    measure_heads,
    read_gold_alignments,
    score_stream,
)

_TEXT = PairFlags()


def score(
    model: Path,
    /,
    *,
    text: PairFlags = _TEXT,
    tokens: bool = False,
    json: bool = False,
    device: str = "auto",
) -> None:
    """Print how probable the model finds given translations, line by line.

    Args:
        model: a bundle, or the folder of a run.
        text: the text and its translations.
        tokens: after the score, print for each piece a tab, the piece, a space and its log-probability.
        json: print one JSON object per line: score, log_probability, and tokens, each with piece and log_probability.
        device: cpu, cuda, mps or auto.
    """
    if tokens and json:
        raise UserError("--tokens and --json: the JSON objects already contain the tokens; give one of them")
    corpus = text.open_corpus(model)
    corpus.check()  # read both files to the end before printing
    decoder = ForcedDecoder.load(model, device=device)
    started = time.monotonic()
    perplexity = Perplexity()
    for number, found in enumerate(score_stream(decoder, corpus), start=1):
        perplexity.add(found)
        line = dumps(found.as_json(), ensure_ascii=False) if json else _format_pair_score(found, tokens=tokens)
        sys.stdout.write(line + "\n")
        if found.is_long:
            limit = decoder.search.max_pieces
            print_message(
                f"line {number} is longer than the {limit} pieces that the model reads at once; scored as a whole"
            )
    measured = "no perplexity: all lines are blank"
    if perplexity.num_tokens:
        measured = f"perplexity {perplexity.value:.2f} for {perplexity.num_tokens:,} tokens of this model's vocabulary"
    print_message(f"{format_count(perplexity.num_pairs, 'pair')} in {time.monotonic() - started:.1f} s: {measured}")


def _format_pair_score(found: PairScore, *, tokens: bool) -> str:
    scored = [f"{token.piece} {token.log_probability:.4f}" for token in found.tokens] if tokens else []
    return "\t".join([f"{found.score:.4f}", *scored])


def calibrate(
    model: Path,
    /,
    *,
    text: PairFlags = _TEXT,
    beam: int | None = None,
    device: str = "auto",
    force: bool = False,
    json: bool = False,
) -> None:
    """Calibrate confidence and choose the alignment head; store both in the bundle.

    Args:
        model: a bundle, or the folder of a run; calibration.json is written into the bundle.
        text: text that the model was not trained on; a few hundred sentences are enough.
        beam: hypotheses kept for each sentence; 1 is greedy. Default: the model's setting.
        device: cpu, cuda, mps or auto.
        force: overwrite an existing calibration.json that is not a Transduce calibration.
        json: print one JSON object.
    """
    bundle = Bundle.open(find_bundle(model))
    check_calibratable(bundle, force=force)
    translator = Translator.load(bundle.folder, device=device, precision="float32")
    corpus = text.open_corpus(model)
    measured = measure_confidence(translator, corpus, text.name_files(corpus), beam=beam)
    head = None
    if bundle.model_config.architecture == "transformer":
        head = choose_head(measure_heads(ForcedDecoder.from_bundle(bundle, device=device), corpus))
    alignment = None if head is None else RecordedHead(**asdict(head))
    update_calibration(bundle, confidence=measured, alignment=alignment, force=force)
    if json:
        print_json({"model": str(model), **measured.model_dump()})
    else:
        print(_format_figures(measured))
    figures = f"calibrated on {format_count(measured.num_pairs, 'pair')}, beam {measured.beam}"
    words = f"words are aligned by --head {head}" if head else "words are not aligned: only a Transformer has heads"
    print_message(f"{bundle.folder}: {figures}; {words}")


def _format_figures(measured: RecordedConfidence) -> str:
    """One figure per line; those of words and sentences are measured on the half that was held out of the fit."""
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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class HeadFlags:
    """The attention head that gives the alignments, or the text on which to choose it."""

    head: str | None = None
    """LAYER.HEAD of the decoder, from 1, or LAYER for the mean of its heads; append +1 to read the next position."""
    choose_on_source: Path | None = None
    """Choose the head on the first 1,000 lines of this text, preferably held-out text."""
    choose_on_target: Path | None = None
    """Its translations, line for line."""
    choose_on_pairs: Path | None = None
    """One file with this text and its translations, instead of --choose-on-source and --choose-on-target; its columns
    are those of --columns."""
    gold: Path | None = None
    """Choose by human alignments, as in 0-0 1-2, or 1?2 for a possible link: a file with a line for each line of the
    text given by --choose-on, or else of the text itself."""


def align(
    model: Path,
    /,
    *,
    text: PairFlags = _TEXT,
    choice: HeadFlags | None = None,
    json: bool = False,
    device: str = "auto",
) -> None:
    """Print which words of given pairs translate each other, line by line.

    Args:
        model: a bundle, or the folder of a run.
        text: the text and its translations.
        choice: which head gives the alignments.
        json: print one JSON object per line: words of source and target, and alignment with source, target and weight.
        device: cpu, cuda, mps or auto.
    """
    corpus = text.open_corpus(model)
    num_pairs = corpus.check()  # read both files to the end before printing
    given = choice or HeadFlags()
    chosen_on = _open_text_to_choose_on(given, text.columns, model)
    bundle = Bundle.open(find_bundle(model))
    decoder = ForcedDecoder.from_bundle(bundle, device=device)
    if given.head is not None:
        head = AlignmentHead.parse(given.head)
    elif chosen_on is None and given.gold is None and (recorded := AlignmentHead.load(bundle)) is not None:
        head = recorded
        print_message(f"aligned by --head {head}, named by the bundle's calibration")
    else:
        head = _choose_measured_head(decoder, chosen_on or corpus, given.gold)
    started = time.monotonic()
    for number, alignment in enumerate(align_stream(decoder, corpus, head), start=1):
        sys.stdout.write((dumps(alignment.as_json(), ensure_ascii=False) if json else str(alignment)) + "\n")
        if alignment.is_long:
            print_message(f"line {number} is too long for the model; it has no links")
    print_message(f"{format_count(num_pairs, 'pair')} in {time.monotonic() - started:.1f} s")


def _open_text_to_choose_on(given: HeadFlags, columns: tuple[str, str] | None, model: Path) -> ParallelCorpus | None:
    source, target, pairs = given.choose_on_source, given.choose_on_target, given.choose_on_pairs
    if given.head is not None and any((source, target, pairs, given.gold)):
        raise UserError(
            f"--head {given.head}: cannot be combined with options that choose a head; give one or the other"
        )
    if source is None and target is None and pairs is None:
        return None
    if pairs is None and (source is None or target is None):
        raise UserError("--choose-on-source and --choose-on-target: one of them is missing; give both")
    if pairs is not None and (source or target):
        raise UserError(
            "--choose-on-pairs has both sides in one file: leave out --choose-on-source and --choose-on-target"
        )
    return PairFlags(source=source, target=target, pairs=pairs, columns=columns if pairs else None).open_corpus(model)


def _choose_measured_head(decoder: ForcedDecoder, text: ParallelCorpus, gold: Path | None) -> AlignmentHead:
    num_pairs = text.check()
    qualities = measure_heads(decoder, text, None if gold is None else read_gold_alignments(gold, num_pairs))
    head = choose_head(qualities)
    figure = f"mean log-probability of linked words, {qualities[head]:.3f}"
    if gold is not None:
        figure = f"alignment error rate, {1 - qualities[head]:.3f}"
    print_message(f"aligned by --head {head}, the best of {len(qualities)} by {figure}")
    return head
