"""Where an experiment runs: its folder, seeds, time budget and text, and the training of one variant of the model."""

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

from transduce.baselines import make_encoder_decoder
from transduce.bundle import replace_file
from transduce.config import RunConfig, SearchConfig, load_run_config
from transduce.data import PreparedData, prepare
from transduce.demo import training_pairs, unseen_pairs
from transduce.errors import CorpusError, DivergedError, RunError
from transduce.evaluation import corpus_scores
from transduce.kernels.device import find_device
from transduce.lab.measurements import Value
from transduce.model import EncoderDecoder
from transduce.text import Tokenizer, open_parallel_corpus
from transduce.training import MetricsLog, Progress, Updater, Validation, train
from transduce.training.distributed import ALONE
from transduce.training.distributed.batches import choose_parallel_micro_batches
from transduce.training.loss import compute_losses
from transduce.training.memory import Shape
from transduce.translation import ForcedDecoder, Translator

Pair = tuple[str, str]

NUM_PAIRS = 30_000
"""Pairs of generated text to train on, where no text is given."""

FEW_PAIRS = 1000
"""Pairs of generated text to train on where translations shall be far from perfect, so that they can differ in quality.

From `NUM_PAIRS` pairs, the text is soon learned so well that almost no translation is wrong, whatever the model."""

NUM_TEST_PAIRS = 400
"""Pairs that are set aside and translated after training."""

TRAINING_SHARE = 0.8
"""Part of the time budget that is planned for updates; the rest is for validation, translation and whatever else."""

SECONDS_AROUND_A_RUN = 5.0
"""Time of a run without its updates: preparing text, measuring memory, validating, translating the test pairs."""

PROBE_UPDATES = 8
"""Updates whose time is measured to plan a run; the first half of them are not counted."""

MIN_UPDATES = 60

LOGGED_UPDATES = 50
"""Updates of a run whose loss is recorded, evenly spread."""

SETTINGS: dict[str, Value] = {
    "text.vocabulary": 500,
    "model.num_encoder_layers": 2,
    "model.num_decoder_layers": 2,
    "model.d_model": 64,
    "model.d_ff": 256,
    "model.num_heads": 4,
    "model.dropout": 0.0,
    "training.batch_tokens": 700,
    "training.precision": "float32",
    "training.device": "cpu",
    "training.schedule": "linear",
    "training.learning_rate": 3e-3,
    "training.keep_checkpoints": 1,
    "data.held_out": 400,
}
"""The model and the training from which experiments vary one thing: the demonstration's, which learns in a minute."""


class TrialReporter:
    """Passes the progress of training on, and drops its messages, which would bury those of the experiment."""

    def __init__(self, report_progress: Callable[[Progress], None]) -> None:
        self.report_progress = report_progress

    def report(self, text: str) -> None:
        """Drop the message."""

    def report_validation(self, update: int, validation: Validation, *, is_best: bool) -> None:
        """Drop the figures, which are in the folder of the run."""


@dataclass(frozen=True)
class TextFiles:
    """A user's parallel text, one sentence on a line."""

    source: Path
    target: Path


@dataclass
class Laboratory:
    """The place where an experiment runs.

    Args:
        folder: holds measurements, plan, text and runs of the experiment.
        seeds: every trial is repeated with each.
        budget: seconds that the whole experiment may take.
        report: shows a message.
        report_progress: shows the progress of a training run.
        text_files: text to train on; generated text unless given.
        num_pairs: pairs to train on, spread evenly over the text; all unless given, or if there are fewer.
    """

    folder: Path
    seeds: Sequence[int] = (1, 2, 3)
    budget: float = 600.0
    report: Callable[[str], None] = lambda _: None
    report_progress: Callable[[Progress], None] = lambda _: None
    text_files: TextFiles | None = None
    num_pairs: int | None = None
    _plan: dict[str, Any] = field(default_factory=dict)

    def remember(self, name: str, decide: Callable[[], Any]) -> Any:  # noqa: ANN401 - a value of JSON
        """A decision that depends on the machine, taken once: after a stop the experiment goes on with the same.

        Args:
            name: names the decision in plan.json.
            decide: takes it; returns a value of JSON.
        """
        path = self.folder / "plan.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if name not in known:
            known[name] = decide()
            self.folder.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as beside:
                beside.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        return known[name]

    @cached_property
    def test_pairs(self) -> list[Pair]:
        """The pairs that no model was trained on, at most `NUM_TEST_PAIRS`."""
        return self._split_text()[1]

    @cached_property
    def training_file(self) -> Path:
        """A file of tab-separated pairs to train on."""
        path = self.folder / "data" / "train.tsv"
        pairs = self._split_text()[0]
        if self.num_pairs is not None:
            pairs = pairs[:: max(1, len(pairs) // self.num_pairs)][: self.num_pairs]
        content = "".join(f"{source}\t{target}\n" for source, target in pairs)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            with replace_file(path) as beside:
                beside.write_text(content, encoding="utf-8", newline="\n")
        return path

    def with_fewer_generated_pairs(self, num_pairs: int) -> "Laboratory":
        """The same laboratory with `num_pairs` pairs to train on if text is generated; itself if a user gave text."""
        return self if self.text_files is not None else replace(self, num_pairs=num_pairs)

    def _split_text(self) -> tuple[list[Pair], list[Pair]]:
        if self.text_files is None:
            return training_pairs(NUM_PAIRS, seed=1), unseen_pairs()[:NUM_TEST_PAIRS]
        names = str(self.text_files.source), str(self.text_files.target)
        corpus = open_parallel_corpus(Path(), *names, None, None)
        corpus.check()
        pairs = [(" ".join(source.split()), " ".join(target.split())) for source, target in corpus]
        pairs = list(dict.fromkeys(pair for pair in pairs if all(pair)))
        if len(pairs) < 10 * NUM_TEST_PAIRS:
            raise CorpusError(
                f"{names[0]}: {len(pairs):,} different pairs that are not blank: an experiment needs at least "
                f"{10 * NUM_TEST_PAIRS:,}; leave --source and --target out to use generated text"
            )
        step = len(pairs) // NUM_TEST_PAIRS
        chosen = range(0, step * NUM_TEST_PAIRS, step)
        return [pair for number, pair in enumerate(pairs) if number not in chosen], [pairs[place] for place in chosen]

    def make_config(self, settings: Mapping[str, Value], updates: int, seed: int, run: str) -> RunConfig:
        """The configuration of a run in this laboratory: `SETTINGS`, changed by `settings`.

        Args:
            settings: settings of a run by dotted name, as in "model.num_heads".
            updates: number of updates.
            seed: seed of the run.
            run: name of its folder in `folder`/runs.
        """
        given = {
            **SETTINGS,
            "training.warmup": max(1, updates // 10),
            "training.validate_every": updates,
            "training.checkpoint_every": max(100, updates // 4),
            "training.log_every": max(1, updates // LOGGED_UPDATES),
            **settings,
            "training.updates": updates,
            "training.seed": seed,
            "data.pairs": str(self.training_file.resolve()),
            "data.cache": str(self.folder.resolve() / "cache"),
            "output": str(self.folder / "runs" / run),
        }
        return load_run_config(None, arguments=given)[0]

    def prepare(self, settings: Mapping[str, Value]) -> PreparedData:
        """The tokenizer, training text and validation text of the runs with these settings, as `train` uses them."""
        config = self.make_config(settings, MIN_UPDATES, 1, "prepared")
        return prepare(config.data, config.text, self.folder.resolve() / "cache", report=lambda _: None)

    def plan_updates(
        self,
        variants: Sequence[Mapping[str, Value]],
        *,
        reserve: float = 0.0,
        seconds_around: float = SECONDS_AROUND_A_RUN,
    ) -> int:
        """The number of updates with which all variants, with all seeds, fit into the time budget; the same for all.

        An experiment calls it once.

        The time of an update of each variant is measured for a moment; see `remember`.

        Args:
            variants: settings of each, see `make_config`.
            reserve: seconds of the budget that other trials of the experiment need.
            seconds_around: time of each run without its updates.
        """

        def decide() -> int:
            self.report(f"measuring the time of an update of {len(variants)} models")
            seconds = sum(self._measure_update(settings) for settings in variants) * len(self.seeds)
            around = seconds_around * len(variants) * len(self.seeds)
            updates = (TRAINING_SHARE * (self.budget - reserve) - around) / seconds
            return max(MIN_UPDATES, _round_down(updates))

        return int(self.remember("updates", decide))

    def plan_seconds(self, num_variants: int, *, reserve: float = 0.0) -> float:
        """The seconds that each of the variants may train with each seed, where all get the same time."""
        runs = num_variants * len(self.seeds)
        return max(5.0, TRAINING_SHARE * (self.budget - reserve) / runs - SECONDS_AROUND_A_RUN)

    def _measure_update(self, settings: Mapping[str, Value]) -> float:
        """Seconds of an update, the median of a few."""
        config = self.make_config(settings, MIN_UPDATES, 1, "probe")
        vocabulary = config.text.vocabulary
        config = config.with_vocabulary(vocabulary if isinstance(vocabulary, int) else 1000)
        device = find_device(config.training.device)
        updater = Updater(make_encoder_decoder(config.model).to(device), config.training, device)
        updater.parallel_micro_batches = choose_parallel_micro_batches(config, device, ALONE)
        length = 16
        batch = Shape(max(1, config.training.batch_tokens // length), length, length).batch(updater.model.pad_id)
        seconds = []
        updater.model.train()
        try:
            with updater.limit_threads():
                for number in range(1, PROBE_UPDATES + 1):
                    started = time.perf_counter()
                    updater.update(number, [batch] * config.training.accumulation)
                    seconds.append(time.perf_counter() - started)
        finally:
            updater.processes.close()
        return statistics.median(seconds[PROBE_UPDATES // 2 :])

    def train(self, settings: Mapping[str, Value], updates: int, seed: int, *, beam: int = 1) -> dict[str, float]:
        """Train one variant by `transduce train` and translate the test pairs; a stopped run is resumed.

        Args:
            settings: see `make_config`.
            updates: number of updates.
            seed: seed of the run.
            beam: hypotheses kept when the test pairs are translated.

        Returns:
            "loss": cross-entropy on the validation text in nats per token; "bleu", "chrf" and "exact" (share of
            translations equal to the reference) on the test pairs; "parameters"; "tokens_per_second" of training; and
            "seconds" of training. If training diverges, only "diverged" = 1.
        """
        config = self.make_config(settings, updates, seed, f"{_describe(settings)}, {updates} updates, seed {seed}")
        try:
            result = train(config, TrialReporter(self.report_progress))
        except DivergedError:
            return {"diverged": 1.0}
        lines = MetricsLog(result.folder / "metrics.jsonl").read()
        validation = next(line for line in reversed(lines) if line["kind"] == "validation")
        speeds = [line["tokens_per_second"] for line in lines if line["kind"] == "training"]
        data = next(line for line in lines if line["kind"] == "data")
        return {
            "loss": validation["loss"],
            "parameters": data["num_parameters"],
            "tokens_per_second": statistics.median(speeds) if speeds else math.nan,
            "seconds": result.seconds,
            **self.score(result.folder / "best", beam=beam),
        }

    def score(self, bundle: Path, **search: Any) -> dict[str, float]:  # noqa: ANN401 - of `Translator.translate`
        """Translate the test pairs with a bundle in float32: "bleu", "chrf", and "exact", the share of exact matches.

        Args:
            bundle: the bundle.
            search: settings of `Translator.translate`, as in beam=4.
        """
        sources, references = zip(*self.test_pairs, strict=True)
        translator = Translator.load(bundle, device="cpu", precision="float32")
        translations = translator.translate(sources, **search)
        bleu, chrf = corpus_scores(translations, references, ["bleu", "chrf"])
        exact = sum(one == reference for one, reference in zip(translations, references, strict=True))
        return {"bleu": bleu.value, "chrf": chrf.value, "exact": exact / len(references)}

    def find_run(self, settings: Mapping[str, Value], updates: int, seed: int) -> Path:
        """The folder of a run that `train` has finished.

        Raises:
            RunError: there is none.
        """
        folder = self.folder / "runs" / f"{_describe(settings)}, {updates} updates, seed {seed}"
        if not (folder / "best").exists():
            raise RunError(f"{folder}: is not there or not finished: delete {self.folder} and run the experiment again")
        return folder


class Prediction(NamedTuple):
    """How well a model predicts each token of given translations from the source and the tokens before it."""

    loss: float
    """Cross-entropy in nats per token, without label smoothing."""
    accuracy: float
    """Share of tokens whose probability is the highest of all."""


def measure_prediction(model: EncoderDecoder, tokenizer: Tokenizer, pairs: Sequence[Pair]) -> Prediction:
    """Measure how well a model, without dropout, predicts the targets of pairs of text."""
    sources, targets = zip(*pairs, strict=True)
    source_ids = [tokenizer.as_source(ids) for ids in tokenizer.encode_all(sources)]
    target_ids = [tokenizer.as_target(ids) for ids in tokenizer.encode_targets(targets)]
    sums = torch.zeros(2, dtype=torch.float64)
    with ForcedDecoder(model, tokenizer, SearchConfig()).batches(source_ids, target_ids) as batches:
        for _, batch in batches:
            losses = compute_losses(model, batch, smoothing=0.0)
            sums += torch.stack([losses.cross_entropy.double(), losses.num_correct.double()])
    return Prediction(*(sums / sum(map(len, target_ids))).tolist())


def _describe(settings: Mapping[str, Value]) -> str:
    """Settings as the name of a folder, as in "num_heads=1 d_k=64"; "default" if there are none."""
    return " ".join(f"{name.rpartition('.')[2]}={value}" for name, value in settings.items()) or "default"


def _round_down(number: float) -> int:
    """A number with two digits that are not zero, at most `number`."""
    if number < 1:
        return 0
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return int(number // unit * unit)
