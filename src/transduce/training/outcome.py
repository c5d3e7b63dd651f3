"""What is made of a validated model: the bundles `last/` and `best/`, and at the end the average of checkpoints."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from transduce.bundle import (
    Bundle,
    BundleDescription,
    Languages,
    RecordedScore,
    average_weights,
    load_checkpoint,
    load_tensors,
    save_bundle,
)
from transduce.config import RunConfig, TransformerConfig
from transduce.data import PreparedData
from transduce.errors import BundleError
from transduce.model import Transformer
from transduce.training.environment import environment
from transduce.training.run_folder import RunFolder
from transduce.training.state import RunState
from transduce.training.validation import Validation


def save_model(
    folder: Path,
    model: Transformer,
    prepared: PreparedData,
    config: RunConfig,
    state: RunState,
    validation: Validation,
    averaged: int = 1,
) -> None:
    """Write `model` as a bundle that says what it was trained on, how far, and how good it proved to be."""
    description = BundleDescription(
        model=config.model,
        search=config.search,
        languages=Languages(source=config.data.source_language, target=config.data.target_language),
        data=prepared.digests,
        scores=[RecordedScore(**asdict(score), data="validation") for score in validation.scores],
        training={
            "preset": config.preset,
            "update": state.update,
            "epoch": state.place.epoch,
            "seconds": round(state.seconds, 1),
            "seed": config.training.seed,
            "averaged_checkpoints": averaged,
            "validation_loss": validation.loss,
            "pairs": len(prepared.train),
            "validation_pairs": len(prepared.validation),
            "cleaning": {**prepared.cleaning},
            "environment": {**environment(next(model.parameters()).device, config.training.precision)},
        },
    )
    save_bundle(folder, model, prepared.tokenizer, description)


def recorded_quality(folder: Path, best_by: str) -> float | None:
    """`Validation.quality` of the bundle in `folder`, as it says of itself; None if there is none to be read."""
    try:
        description = Bundle.open(folder).description
    except BundleError:
        return None
    if best_by == "loss":
        loss = description.training.get("validation_loss")
        return -loss if isinstance(loss, float) else None
    return next((score.value for score in description.scores if score.metric.lower() == best_by), None)


def averaged_model(folder: RunFolder, updates: Sequence[int], config: TransformerConfig) -> Transformer:
    """The mean of the weights in the checkpoints of `updates` (paper 6.1), on the CPU."""
    weights = average_weights(
        load_checkpoint(folder.checkpoints, update, ["weights"])[0]["weights"] for update in updates
    )
    model = Transformer(config)
    load_tensors(model, weights, f"the average of {len(updates)} checkpoints")
    return model.eval()
