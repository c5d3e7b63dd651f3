"""The whole main job in a few minutes: make data, train, translate what was never seen, count."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transduce.bundle import check_writable, make_write_error, replace_file
from transduce.config import RunConfig, load_run_config
from transduce.demo.sentences import check_unseen_pairs, training_pairs, unseen_pairs
from transduce.errors import OutputError
from transduce.training import Reporter, RunFolder, Sample, train
from transduce.translation import Translator

NUM_TRAINING_PAIRS = 60_000

SETTINGS: dict[str, Any] = {
    "data.source_language": "en",
    "data.target_language": "de",
    "data.held_out": 200,
    "text.vocabulary": 500,
    "model.num_encoder_layers": 2,
    "model.num_decoder_layers": 2,
    "model.d_model": 64,
    "model.d_ff": 256,
    "model.num_heads": 4,
    "model.dropout": 0.0,
    "training.updates": 3500,
    "training.batch_tokens": 700,
    "training.precision": "float32",
    "training.schedule": "linear",
    "training.learning_rate": 3e-3,
    "training.warmup": 300,
    "training.log_every": 100,
    "training.validate_every": 1750,
    "training.checkpoint_every": 500,
}
"""Small batches and many updates: batches of the paper's size would leave no time to learn."""


@dataclass(frozen=True)
class DemonstrationResult:
    """The test of the trained model on unseen inputs."""

    exact_match: float
    """Share of unseen inputs translated right to the letter."""
    num_tested: int
    seconds: float
    """Seconds of training."""
    bundle: Path
    """The trained model."""
    samples: tuple[Sample, ...]
    """Some of the unseen inputs."""
    wrong: tuple[Sample, ...]
    """All unseen inputs that were translated wrong."""

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {**asdict(self), "bundle": str(self.bundle), "seconds": round(self.seconds, 1)}


def demonstrate(
    output: Path, reporter: Reporter, *, updates: int | None = None, restart: bool = False
) -> DemonstrationResult:
    """Train a small Transformer to translate English numbers, years and dates into German, and test it.

    Args:
        output: folder of the run; the text lies in it as data/text.tsv.
        reporter: is told how training goes.
        updates: how long to train; as long as it takes to learn the task unless given.
        restart: begin anew where a demonstration was before.

    Raises:
        MissingExtraError: the packages that make the data are not installed.
        OutputError: `output` cannot be written, or has another text in the place of this one.
        RunError: `output` holds something else than a demonstration.
    """
    check_unseen_pairs()
    unseen = unseen_pairs()
    text = output / "data" / "text.tsv"
    config = _config(text, output, updates)
    RunFolder(output).check(config, restart=restart)
    check_writable(text)
    reporter.report(f"making {NUM_TRAINING_PAIRS:,} pairs of English and German numbers, years and dates")
    _write_pairs(text, training_pairs(NUM_TRAINING_PAIRS, seed=1))
    result = train(config, reporter, restart=restart)
    bundle = result.folder / "best"
    reporter.report(f"translating {len(unseen):,} inputs that were never seen in training")
    sources, references = zip(*unseen, strict=True)
    translations = Translator.load(bundle).translate(sources, beam=1)
    tested = [Sample(*triple) for triple in zip(sources, translations, references, strict=True)]
    wrong = tuple(sample for sample in tested if not sample.is_right)
    return DemonstrationResult(
        exact_match=1 - len(wrong) / len(tested),
        num_tested=len(tested),
        seconds=result.seconds,
        bundle=bundle,
        samples=tuple(tested[:: len(tested) // 8][:8]),
        wrong=wrong,
    )


def _config(text: Path, output: Path, updates: int | None) -> RunConfig:
    length = {} if updates is None else {"training.updates": updates, "training.warmup": max(1, updates // 20)}
    arguments = {**SETTINGS, **length, "data.pairs": text.name, "data.folder": str(text.parent), "output": str(output)}
    return load_run_config(None, arguments=arguments)[0]


def _write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Write the text, unless it is there already; no other text is replaced by it."""
    content = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    if path.is_file() and path.read_bytes() == content:
        return
    if path.exists():
        raise OutputError(f"{path}: is not the text of this demonstration: remove it, or choose another output")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as beside:
            beside.write_bytes(content)
    except OSError as error:
        raise make_write_error(path, error) from error
