"""`transduce import`."""

import time
from pathlib import Path

from transduce.cli.console import say, say_facts
from transduce.interop import import_model


def import_bundle(
    path: Path,
    /,
    *,
    output: Path,
    tokenizer: Path | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    probe: Path | None = None,
    force: bool = False,
) -> None:
    """Make a bundle of a model of another program, with the proof that it computes the same.

    Args:
        path: a folder of Transformers, as OPUS-MT's, or of CTranslate2; Marian's .npz; or an Argos package.
        output: folder of the new bundle.
        tokenizer: a SentencePiece model, or a folder with one or two, where none lies in or beside the model.
        source_language: a code as in "en"; what the model says of itself unless given.
        target_language: likewise.
        probe: text to prove it by, plain or compressed, one sentence a line, of which the first 200 are taken; unless
            given, sentences are made of the model's vocabulary.
        force: replace a model that is there; a folder with anything else in it never is.
    """
    started = time.monotonic()
    parity = import_model(
        path,
        output,
        tokenizer=tokenizer,
        source_language=source_language,
        target_language=target_language,
        probe=probe,
        force=force,
        report=say,
    )
    say_facts(parity.facts())
    say(f"{output} written in {time.monotonic() - started:.1f} s")
