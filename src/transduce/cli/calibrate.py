"""`transduce calibrate`."""

from dataclasses import asdict
from pathlib import Path

from transduce.bundle import (
    Bundle,
    RecordedConfidence,
    RecordedHead,
    check_calibratable,
    find_bundle,
    update_calibration,
)
from transduce.cli.console import print_json, say
from transduce.text import open_parallel_corpus
from transduce.translation import ForcedDecoder, Translator, choose_head, measure_confidence, measure_heads


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
    say(f"{bundle.folder}: {figures}; words are aligned by --head {head}")


def _table(measured: RecordedConfidence) -> str:
    """One figure a line; those of words and sentences are of the half that was held out of the fit."""
    return "\n".join(
        [
            f"words                       {measured.num_words:,}",
            f"right                       {measured.share_right:.1%}",
            f"calibration error, raw      {measured.calibration_error_before:.3f}",
            f"calibration error           {measured.calibration_error:.3f}",
            f"right above wrong (AUC)     {measured.auc:.3f}",
            f"error of predicted chrF     {measured.chrf_error:.1f}",
            f"the same, always the mean   {measured.chrf_error_of_mean:.1f}",
        ]
    )
