"""`transduce average`, `export` and `import`: commands that make a bundle, or another program's model of one."""

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.bundle import Bundle, find_bundle
from transduce.cli.console import print_facts, print_message
from transduce.interop import export_bundle, import_model
from transduce.training import average_run


def average(run: Path, /, *, last: int = 5, output: Path, force: bool = False) -> None:
    """Average the weights of a run's last checkpoints into one bundle (paper 6.1).

    Args:
        run: the folder of a run.
        last: how many checkpoints; the run keeps `training.keep_checkpoints` of them.
        output: folder of the new bundle.
        force: replace a model that is there; a folder with anything else in it never is.
    """
    updates = average_run(run, last, output, force=force)
    print_message(
        f"{output}: the average of the checkpoints of updates {', '.join(f'{update:,}' for update in updates)}"
    )


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
    """Write a model for another program, or in int8 for this one, and prove that it computes the same there.

    Args:
        model: a bundle, or the folder of a run.
        to: the format: ctranslate2, huggingface, argos, marian or onnx; or transduce, a bundle in int8, which has a
            quarter of the size.
        output: the folder to write, or the file for argos; an older export there is replaced.
        precision: type of the weights: float32 unless given, or whatever else the format has, as int8; transduce has
            int8 alone.
        probe: text to prove it by, plain or compressed, one sentence a line, of which the first 200 are taken; unless
            given, sentences are made of the model's vocabulary.
        reference: translations of the probe by people, line for line, for BLEU.
        force: replace another model, an export that was changed, or for argos any file, that is there; a folder with
            anything else in it never is.
    """
    started = time.monotonic()
    bundle = Bundle.open(find_bundle(model))
    parity = export_bundle(
        bundle, to, output, precision=precision, probe=probe, reference=reference, force=force, report=print_message
    )
    print_facts(parity.summarize())
    print_message(f"{output} written in {time.monotonic() - started:.1f} s")


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
        target_language: a code as in "de"; what the model says of itself unless given.
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
        report=print_message,
    )
    print_facts(parity.summarize())
    print_message(f"{output} written in {time.monotonic() - started:.1f} s")
