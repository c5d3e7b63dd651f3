"""`transduce score`."""

import sys
import time
from json import dumps
from pathlib import Path

from transduce.cli.console import say
from transduce.errors import UserError
from transduce.text import open_parallel_corpus
from transduce.translation import ForcedDecoder, PairScore, Perplexity, score_stream


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
            say(f"line {line} is longer than the {limit} pieces that the model reads at a time: scored as a whole")
    measured = "nothing but blank lines, which have no perplexity"
    if perplexity.num_tokens:
        measured = f"perplexity {perplexity.value:.2f} for {perplexity.num_tokens:,} tokens of this model's vocabulary"
    say(f"{perplexity.num_pairs:,} pairs in {time.monotonic() - started:.1f} s: {measured}")


def _text(found: PairScore, *, tokens: bool) -> str:
    scored = zip(found.pieces, found.log_probabilities, strict=True) if tokens else ()
    return "\t".join([f"{found.score:.4f}", *(f"{piece} {log_probability:.4f}" for piece, log_probability in scored)])
