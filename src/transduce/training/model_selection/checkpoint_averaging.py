"""Averages of the weights in checkpoints of a run (paper 6.1): `transduce average`, and the average at a run's end."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from transduce.baselines import make_encoder_decoder
from transduce.bundle import (
    Bundle,
    average_weights,
    check_new_bundle,
    list_checkpoints,
    load_checkpoint,
    load_tensors,
    save_bundle,
)
from transduce.config import TransformerConfig
from transduce.errors import RunError, UserError
from transduce.model import EncoderDecoder
from transduce.storage import resolve_folder
from transduce.training.run_folder import RunFolder

NO_AVERAGE: Mapping[str, int | float] = {"averaged_checkpoints": 1, "ema_decay": 0.0}
"""What a bundle records of averaging if its weights are no average: one checkpoint, and no moving average."""


def average_checkpoints(folder: RunFolder, updates: Sequence[int], config: TransformerConfig) -> EncoderDecoder:
    """The mean of the weights in the checkpoints of `updates` (paper 6.1), on the CPU."""
    tensors = (load_checkpoint(folder.checkpoints, update, ["weights"])[0] for update in updates)
    weights = average_weights(parts["weights"] for parts in tensors)
    model = make_encoder_decoder(config)
    load_tensors(model, weights, f"the average of {len(updates)} checkpoints")
    return model.eval()


def average_run(run: Path, last: int, output: Path, *, force: bool = False) -> list[int]:
    """Average the weights of the `last` checkpoints of the run in `run` into the bundle `output`.

    The bundle has no scores, as it has not been validated. Returns the updates of the checkpoints. An existing bundle
    is replaced only with `force`.

    Raises:
        RunError: `run` is not a run, or has fewer checkpoints.
        UserError: `last` is less than 1, or `output` is in `run`.
        BundleError: a checkpoint is damaged.
        OutputError: `output` contains files that are not replaced, or cannot be written.
        WriteError: writing failed, as on a full disk.
    """
    folder = RunFolder(run)
    if not folder.config_file.is_file():
        raise RunError(f"{run}: is not a run: it has no {folder.config_file.name}; give the folder of a run")
    if output.resolve().is_relative_to(run.resolve()):
        raise UserError(f"--output {output}: is in the run's own folder: choose another")
    if last < 1:
        raise UserError(f"--last {last}: must be at least 1")
    check_new_bundle(output, force=force)
    updates = list_checkpoints(folder.checkpoints)
    if len(updates) < last:
        raise RunError(
            f"{folder.checkpoints}: holds {len(updates)} checkpoint{'' if len(updates) == 1 else 's'}, but --last is "
            f"{last}: lower it, or train with a higher training.keep_checkpoints"
        )
    if not resolve_folder(folder.last).exists():
        raise RunError(f"{run}: has no {folder.last.name}/ yet: it is written by the first validation; train further")
    bundle = Bundle.open(folder.last)
    chosen = updates[-last:]
    model = average_checkpoints(folder, chosen, bundle.model_config)
    # The checkpoints have the weights themselves, and not their moving average, which `last` may hold.
    averages = {**NO_AVERAGE, "averaged_checkpoints": last}
    training = {**bundle.description.training, **averages, "update": chosen[-1]}
    for name in ("epochs", "seconds", "validation_loss", "scored_pairs"):  # these describe another model
        training.pop(name, None)
    description = bundle.description.model_copy(update={"scores": [], "training": training})
    save_bundle(output, model, bundle.load_tokenizer(), description, lambda _: check_new_bundle(output, force=force))
    return chosen
