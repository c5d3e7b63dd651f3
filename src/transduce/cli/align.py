"""`transduce align`."""

import sys
import time
from dataclasses import dataclass
from json import dumps
from pathlib import Path

from cyclopts import Parameter

from transduce.bundle import Bundle, find_bundle
from transduce.cli.standard_streams import print_message
from transduce.errors import UserError
from transduce.text import ParallelCorpus, open_parallel_corpus
from transduce.translation import (
    AlignmentHead,
    ForcedDecoder,
    align_stream,
    choose_head,
    measure_heads,
    read_gold_alignments,
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """Whose attention to align by, or what to choose it on."""

    head: str | None = None
    """LAYER.HEAD of the decoder, from 1, or LAYER for the mean of its heads; +1 behind it reads the next position."""
    choose_on_source: Path | None = None
    """Choose the head on this text, of which the first 1,000 lines count, best on what was not trained on."""
    choose_on_target: Path | None = None
    """Its translations, line for line."""
    gold: Path | None = None
    """Choose by alignments that people made of the text to choose on, as in 0-0 1-2, or 1?2 for a possible link."""


def align(
    model: Path,
    /,
    *,
    source: Path,
    target: Path,
    choice: HeadChoice | None = None,
    json: bool = False,
    device: str = "auto",
) -> None:
    """Print which words translate each other, as in "0-0 2-1": source word, target word, one pair a line.

    Args:
        model: a bundle, or the folder of a run.
        source: the text, one sentence a line; plain, .gz, .xz or .zst.
        target: its translations, line for line.
        choice: the head.
        json: print one JSON object a line: words of source and target, and alignment with source, target and weight.
        device: cpu, cuda, mps or auto.
    """
    corpus = open_parallel_corpus(Path(), str(source), str(target), None, None)
    num_pairs = corpus.check()  # both files to their end, before anything is printed
    given = choice or HeadChoice()
    text = _open_text_to_choose_on(given)
    bundle = Bundle.open(find_bundle(model))
    decoder = ForcedDecoder.from_bundle(bundle, device=device)
    if given.head is not None:
        head = AlignmentHead.parse(given.head)
    elif text is None and given.gold is None and (recorded := AlignmentHead.load(bundle)) is not None:
        head = recorded
        print_message(f"aligned by --head {head}, which the bundle's calibration names")
    else:
        head = _choose_measured_head(decoder, text or corpus, given.gold)
    started = time.monotonic()
    for alignment in align_stream(decoder, corpus, head):
        sys.stdout.write((dumps(alignment.as_json(), ensure_ascii=False) if json else str(alignment)) + "\n")
    print_message(f"{num_pairs:,} pairs in {time.monotonic() - started:.1f} s")


def _open_text_to_choose_on(given: HeadChoice) -> ParallelCorpus | None:
    source, target = given.choose_on_source, given.choose_on_target
    if given.head is not None and any((source, target, given.gold)):
        raise UserError(f"--head {given.head} leaves nothing to choose: give either a head, or text to choose one on")
    if source is None and target is None:
        return None
    if source is None or target is None:
        raise UserError("--choose-on-source and --choose-on-target: one of them is missing; give both")
    return open_parallel_corpus(Path(), str(source), str(target), None, None)


def _choose_measured_head(decoder: ForcedDecoder, text: ParallelCorpus, gold: Path | None) -> AlignmentHead:
    num_pairs = text.check()
    qualities = measure_heads(decoder, text, None if gold is None else read_gold_alignments(gold, num_pairs))
    head = choose_head(qualities)
    figure = f"mean log-probability of linked words, {qualities[head]:.3f}"
    if gold is not None:
        figure = f"alignment error rate, {1 - qualities[head]:.3f}"
    print_message(f"aligned by --head {head}, the best of {len(qualities)} by {figure}")
    return head
