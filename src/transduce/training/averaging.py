"""The average of a run's last checkpoints (paper 6.1) as a bundle of its own."""

from pathlib import Path

from transduce.bundle import Bundle, check_new_bundle, list_checkpoints, resolve_folder, save_bundle
from transduce.errors import RunError, UserError
from transduce.training.outcome import averaged_model
from transduce.training.run_folder import RunFolder


def average_run(run: Path, last: int, output: Path, *, force: bool = False) -> list[int]:
    """Average the weights of the `last` checkpoints of the run in `run` into the bundle `output`.

    The bundle carries no scores, since nobody has measured it yet. Returns the updates of the checkpoints. A bundle
    that is there is replaced only with `force`.

    Raises:
        RunError: there is no run, or it keeps fewer checkpoints.
        UserError: `last` is less than 1, or `output` lies in `run`.
        BundleError: a checkpoint is damaged.
        OutputError: `output` holds something that is not replaced, or cannot be written.
        WriteError: writing failed, as on a full disk.
    """
    folder = RunFolder(run)
    if not folder.config_file.is_file():
        raise RunError(f"{run}: is no run: it has no {folder.config_file.name}; give the folder of a run")
    if output.resolve().is_relative_to(run.resolve()):
        raise UserError(f"--output {output}: lies in the run's own folder, whose models are the run's: choose another")
    if last < 1:
        raise UserError(f"--last {last}: must be at least 1")
    check_new_bundle(output, force=force)
    updates = list_checkpoints(folder.checkpoints)
    if len(updates) < last:
        raise RunError(
            f"{folder.checkpoints}: holds {len(updates)} checkpoints, {last} were asked for: ask for fewer with "
            f"--last, or train with a higher training.keep_checkpoints"
        )
    if not resolve_folder(folder.last).exists():
        raise RunError(f"{run}: has no {folder.last.name}/ yet: its first validation makes it; train further")
    bundle = Bundle.open(folder.last)
    chosen = updates[-last:]
    model = averaged_model(folder, chosen, bundle.model_config)
    training = {**bundle.description.training, "update": chosen[-1], "averaged_checkpoints": last}
    for name in ("epochs", "seconds", "validation_loss", "scored_pairs"):  # of another model
        training.pop(name, None)
    description = bundle.description.model_copy(update={"scores": [], "training": training})
    save_bundle(output, model, bundle.load_tokenizer(), description, lambda _: check_new_bundle(output, force=force))
    return chosen
