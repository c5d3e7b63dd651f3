"""`transduce average`, `export` and `import`: commands that make a bundle, or convert one to another program's
format.
"""

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.bundle import Bundle, find_bundle
from transduce.cli.console import print_facts, print_message
from transduce.cli.corpus_options import check_language_code
from transduce.interop import FORMATS, export_bundle, import_model
from transduce.training import average_run


def average(run: Path, /, *, last: int = 5, output: Path, force: bool = False) -> None:
    """Average the last checkpoints of a run into one bundle (paper 6.1).

    Args:
        run: the folder of a run.
        last: number of checkpoints to average, at most the `training.keep_checkpoints` that the run keeps.
        output: folder of the new bundle.
        force: replace an existing model; a folder containing other files is never replaced.
    """
    updates = average_run(run, last, output, force=force)
    print_message(
        f"{output}: the average of the checkpoints of updates {', '.join(f'{update:,}' for update in updates)}"
    )


def export(
    model: Path,
    /,
    *,
    to: Annotated[str, Parameter(name="--to", choices=tuple(FORMATS), show_choices=False)],
    output: Path,
    precision: str | None = None,
    probe: Path | None = None,
    reference: Path | None = None,
    force: bool = False,
) -> None:
    """Write a model for another program or in int8, and check that it is the same.

    Args:
        model: a bundle, or the folder of a run.
        to: the format: ctranslate2, huggingface, argos, marian or onnx; or transduce, a bundle in int8, about a
            quarter of the size; of networks other than a Transformer, not all matrices are rounded.
        output: the folder to write, or the file for argos; an earlier export there is replaced.
        precision: type of the weights, if the format supports it. Default: float32; for transduce always int8.
        probe: sentences for the parity check, one per line, plain or compressed; the first 200 are used. Without it,
            sentences are generated from the model's vocabulary.
        reference: human translations of the probe, line for line, for BLEU.
        force: replace an existing model, a modified export, or for argos any file; a folder containing other files is
            never replaced.
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
    """Convert another program's model to a bundle, and check that it is the same.

    Args:
        path: a model folder of Transformers (such as OPUS-MT) or CTranslate2, a Marian .npz file, or an Argos package.
        output: folder of the new bundle.
        tokenizer: a SentencePiece model, or a folder with one or two, if the model folder has none.
        source_language: language code such as "en". Default: the one recorded in the model.
        target_language: language code such as "de". Default: the one recorded in the model.
        probe: sentences for the parity check, one per line, plain or compressed; the first 200 are used. Without it,
            sentences are generated from the model's vocabulary.
        force: replace an existing model; a folder containing other files is never replaced.
    """
    for side, language in (("source", source_language), ("target", target_language)):
        check_language_code(f"--{side}-language", language or "")
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
