"""What is made of a validated model: the bundles `last/` and `best/`, and at the end the average of checkpoints."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import JsonValue

from transduce.bundle import (
    Bundle,
    BundleDescription,
    Languages,
    RecordedScore,
    average_weights,
    list_checkpoints,
    load_checkpoint,
    load_tensors,
    save_bundle,
)
from transduce.config import RunConfig, SearchConfig, TransformerConfig
from transduce.data import PreparedData
from transduce.errors import BundleError
from transduce.model import Transformer
from transduce.training.environment import environment
from transduce.training.run_folder import RunFolder
from transduce.training.state import RunState
from transduce.training.step import Updater
from transduce.training.validation import Validation


@dataclass(frozen=True)
class Average:
    """Of what the weights of a model are the mean.

    Args:
        averaged_checkpoints: how many of the last checkpoints; 1 is no average.
        ema_decay: decay of the moving average of all updates' weights; 0 is no average.
    """

    averaged_checkpoints: int = 1
    ema_decay: float = 0.0

    def __str__(self) -> str:
        if self.ema_decay:
            return f"moving average of the weights with decay {self.ema_decay}"
        if self.averaged_checkpoints == 1:
            return "weights of the last update, not averaged"
        return f"average of the last {self.averaged_checkpoints} checkpoints"


NO_AVERAGE = Average()


def save_model(
    folder: Path,
    model: Transformer,
    prepared: PreparedData,
    config: RunConfig,
    state: RunState,
    validation: Validation,
    average: Average = NO_AVERAGE,
) -> None:
    """Write `model` as a bundle that says what it was trained on, how far, and how good it proved to be."""
    description = BundleDescription(
        model=config.model,
        search=config.search,
        languages=Languages(source=config.data.source_language, target=config.data.target_language),
        data=prepared.digests,
        scores=[RecordedScore(**asdict(score), data="validation") for score in validation.scores],
        training={
            **_origin(config, state),
            "update": state.update,
            "epochs": round(state.place.epochs, 2),
            "seconds": round(state.seconds, 1),
            "seed": config.training.seed,
            **asdict(average),
            "validation_loss": validation.loss,
            "pairs": len(prepared.train),
            "validation_pairs": len(prepared.validation),
            "scored_pairs": len(prepared.validation[: config.training.max_validation_pairs or None]),
            "cleaning": {**prepared.cleaning},
            "environment": {**environment(next(model.parameters()).device, config.training.precision)},
        },
    )
    save_bundle(folder, model, prepared.tokenizer, description)


def recorded_quality(folder: Path, best_by: str, search: SearchConfig) -> list[float] | None:
    """`Validation.quality` and `ties` of the bundle in `folder`, as it says of itself.

    None if they cannot be read, or are not of translations with the length penalty of `search`, but with a fitted one.
    """
    try:
        description = Bundle.open(folder).description
    except BundleError:
        return None
    if description.search.length_penalty != search.length_penalty:
        return None
    figures = {score.metric.lower(): score.value for score in description.scores}
    loss = description.training.get("validation_loss")
    if isinstance(loss, float):
        figures["loss"] = -loss
    wanted = (best_by, "chrf", "loss")
    return [figures[name] for name in wanted] if figures.keys() >= {*wanted} else None


def _origin(config: RunConfig, state: RunState) -> dict[str, JsonValue]:
    """Where network and first weights came from."""
    if not state.start:
        return {"preset": config.preset}
    return {"start_from": config.training.start_from, "start_from_sha256": state.start}


def averaged_model(folder: RunFolder, updates: Sequence[int], config: TransformerConfig) -> Transformer:
    """The mean of the weights in the checkpoints of `updates` (paper 6.1), on the CPU."""
    weights = average_weights(
        load_checkpoint(folder.checkpoints, update, ["weights"])[0]["weights"] for update in updates
    )
    model = Transformer(config)
    load_tensors(model, weights, f"the average of {len(updates)} checkpoints")
    return model.eval()


def _is_undamaged(folder: RunFolder, update: int, say: Callable[[str], None]) -> bool:
    try:
        load_checkpoint(folder.checkpoints, update, [])
    except BundleError as error:
        say(f"the checkpoint of update {update} is left out of the average: {error}")
        return False
    return True


def averages(folder: RunFolder, updater: Updater, say: Callable[[str], None]) -> Iterator[tuple[Average, Transformer]]:
    """The models that are tried when a run ends, beside the one that its validations have measured.

    The mean of the kept checkpoints, if there are several; and, where validations measure a moving average of the
    weights, the weights themselves. `say` is told which checkpoints are damaged and left out, and of a mean that cannot
    be made, why.
    """
    updates = [update for update in list_checkpoints(folder.checkpoints) if _is_undamaged(folder, update, say)]
    if len(updates) > 1:
        average = Average(averaged_checkpoints=len(updates))
        try:
            model = averaged_model(folder, updates, updater.model.config).to(updater.device)
        except BundleError as error:
            say(f"there is no {average}: {error}")
        else:
            yield average, model
    if updater.moving_average is not None:
        yield NO_AVERAGE, updater.model
