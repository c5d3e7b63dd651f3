"""`transduce export`."""

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.bundle import Bundle, find_bundle
from transduce.cli.console import say, say_facts
from transduce.interop import export_bundle


def export(
    model: Path,
    /,
    *,
    to: Annotated[str, Parameter(name="--to")],
    output: Path,
    precision: str | None = None,
    probe: Path | None = None,
    reference: Path | None = None,
    force: bool = False,
) -> None:
    """Write a model for another program, with the proof that this program computes the same.

    Args:
        model: a bundle, or the folder of a run.
        to: the format: ctranslate2, huggingface, argos, marian or onnx.
        output: the folder to write, or the file for argos; an older export there is replaced.
        precision: of the weights: float32 unless given, or whatever else the format has, as int8.
        probe: text to prove it by, plain or compressed, one sentence a line, of which the first 200 are taken; unless
            given, sentences are made of the model's vocabulary.
        reference: translations of the probe by people, line for line, for BLEU.
        force: replace a model, or for argos any file, that is there; a folder with anything else in it never is.
    """
    started = time.monotonic()
    bundle = Bundle.open(find_bundle(model))
    parity = export_bundle(
        bundle, to, output, precision=precision, probe=probe, reference=reference, force=force, report=say
    )
    say_facts(parity.facts())
    say(f"{output} written in {time.monotonic() - started:.1f} s")
