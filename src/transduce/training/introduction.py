"""What is about to be trained on what: said, and put on record, before the first update."""

from collections.abc import Mapping
from dataclasses import asdict

from transduce.config import TrainingConfig
from transduce.training.diagnosis import measure_text
from transduce.training.environment import environment
from transduce.training.expectations import expected_quality
from transduce.training.length_histogram import length_histogram
from transduce.training.reporter import Reporter
from transduce.training.trainer import Trainer


def introduce(trainer: Trainer) -> None:
    """Say, and put on record, what is about to be trained on what."""
    config, prepared, log = trainer.config, trainer.prepared, trainer.folder.metrics
    parameters, start = trainer.model.num_parameters, config.training.start_from
    model = f"{config.preset} model" if start is None else f"model of {start}"
    machine = environment(trainer.device, config.training.precision)
    if begun := log.first():
        _tell_of_another_machine(begun.get("environment", {}), machine, trainer.reporter)
    else:
        facts = {"num_pairs": len(prepared.train), "num_parameters": parameters, "vocabulary": config.model.vocabulary}
        facts["num_validation_pairs"] = len(prepared.validation)
        log.append(
            "data",
            0,
            {
                **facts,
                "start": trainer.state.start,
                "micro_batches": trainer.state.micro_batches,
                "cleaning": prepared.cleaning,
                "corpora": [asdict(corpus) for corpus in prepared.corpora],
                "lengths": length_histogram(prepared.train.lengths),
                "text": asdict(measure_text(prepared)),
                "digests": prepared.digests,
                "environment": machine,
            },
        )
    trainer.reporter.say(
        f"{len(prepared.train):,} pairs to train on (left out: {_left_out(prepared.cleaning)}), "
        f"{len(prepared.validation):,} to validate with"
    )
    for corpus in prepared.corpora if len(prepared.corpora) > 1 else []:
        trainer.reporter.say(
            f"    {corpus.name}: {corpus.cleaning['kept']:,} pairs (left out: {_left_out(corpus.cleaning)}), each "
            f"{corpus.weight:g} times an epoch"
        )
    budget = trainer.state.ranks * config.training.batch_tokens * config.training.accumulation
    trainer.reporter.say(
        f"{model}, {parameters:,} parameters, {config.model.vocabulary:,} token ids; "
        f"on {_where(trainer)}, precision {config.training.precision}; {config.training.updates:,} updates of at most "
        f"{budget:,} tokens a side; texts of more than {config.search.max_pieces} pieces are translated in parts"
    )
    if not begun and config.preset == "low-resource" and (quality := expected_quality(len(prepared.train))) is not None:
        trainer.reporter.say(quality)
    _tell_of_a_long_warmup(config.training, trainer.reporter)
    trainer.candidates.diagnosis.tell()


def _left_out(cleaning: dict[str, int]) -> str:
    """The count of every rule, in words; "like held out" are pairs that share a sentence with one held out."""
    left_out = {rule.replace("_", " "): count for rule, count in cleaning.items() if count and rule != "kept"}
    return ", ".join(f"{rule} {count:,}" for rule, count in left_out.items()) or "none"


def _where(trainer: Trainer) -> str:
    """The device; also how many ranks there are and how they share the model, or how many processes share a batch."""
    ranks, sharding = trainer.ranks.size, trainer.config.training.sharding
    if ranks > 1:
        return f"{ranks} ranks of {trainer.device.type}, sharding {sharding}"
    if trainer.updater.divides_batches:
        return f"{trainer.device}, each batch as {trainer.updater.micro_batches} micro-batches"
    return str(trainer.device)


def _tell_of_another_machine(before: Mapping[str, str], now: Mapping[str, str], reporter: Reporter) -> None:
    """A run goes on elsewhere, but not to the bit."""
    changed = [f"{name} was {before[name]}, is {now[name]}" for name in now if before.get(name, now[name]) != now[name]]
    if changed:
        reporter.say(
            f"this is not what the run began with ({'; '.join(changed)}): figures may differ by rounding from those "
            f"of a run that never stopped"
        )


def _tell_of_a_long_warmup(training: TrainingConfig, reporter: Reporter) -> None:
    if training.warmup > training.updates:
        reporter.say(
            f"training.warmup = {training.warmup:,}: the learning rate is still rising when training ends after "
            f"{training.updates:,} updates; lower it to reach the rate that the preset or the recipe is meant for"
        )
