"""Where an experiment runs: its folder, seeds, time budget and text, and the training of one variant of the model."""

import hashlib
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from transduce import demo
from transduce.baselines import make_encoder_decoder
from transduce.config import RunConfig, load_run_config
from transduce.data import PreparedData, prepare
from transduce.errors import CorpusError, DivergedError, RunError, UserError
from transduce.evaluation import score_corpus
from transduce.kernels.device import find_device
from transduce.lab.measurements import Value
from transduce.pages import choose_evenly, format_count
from transduce.storage import replace_file
from transduce.text import Pair, open_parallel_corpus
from transduce.training import MetricsLog, Progress, SilentReporter, Updater, train
from transduce.training.distributed import SINGLE_RANK
from transduce.training.optimization.memory import BatchShape
from transduce.training.optimization.micro_batches import choose_parallel_micro_batches
from transduce.translation import Translator

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

SECONDS_OF_TESTS = 20.0
"""Time in which the networks of a seed are tested where an experiment has training of its own: see
`decide_training_share`."""

PROBE_UPDATES = 8
"""Updates whose time is measured to plan a run; the first half of them are not counted."""

MIN_UPDATES = 60

MAX_SHOWN = 100
"""Characters of settings in the name of a run's folder; file systems allow 255 bytes for all of it."""

PLAN = "plan.json"
"""The file of an experiment's folder that its decisions are in."""

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


class TrialReporter(SilentReporter):
    """Passes the progress of training on, and drops its messages, which would bury those of the experiment."""

    def __init__(self, report_progress: Callable[[Progress], None]) -> None:
        self._report_progress = report_progress

    def report_progress(self, progress: Progress) -> None:
        """Pass the progress on."""
        self._report_progress(progress)


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
        budget: seconds that the whole experiment is to take: an aim, by which it is planned.
        report: shows a message.
        report_progress: shows the progress of a training run.
        text_files: text to train on; generated text unless given.
        chosen_pairs: what to train on; the text without its test pairs unless given.
        plan_of: folder of another run of the experiment, whose decisions are taken over; see `decide_once`.
    """

    folder: Path
    seeds: Sequence[int] = (1, 2, 3)
    budget: float = 600.0
    report: Callable[[str], None] = lambda _: None
    report_progress: Callable[[Progress], None] = lambda _: None
    text_files: TextFiles | None = None
    chosen_pairs: Sequence[Pair] | None = None
    plan_of: Path | None = None

    def decide_once(self, name: str, decide: Callable[[], Any]) -> Any:  # noqa: ANN401 - a value of JSON
        """Take a decision that depends on the machine once: after a stop, the experiment goes on with the same.

        With `plan_of`, the decision of that run is taken over if it has one; a run that has decided otherwise before is
        refused.

        Args:
            name: names the decision in plan.json.
            decide: takes the decision; returns a value of JSON.

        Raises:
            UserError: plan.json is damaged, or has another decision than that of `plan_of`.
        """
        known = read_plan(self.folder)
        others = {} if self.plan_of is None else read_plan(self.plan_of)
        if name in known and name in others and known[name] != others[name]:
            raise UserError(
                f"{self.folder}: was begun with {name} = {known[name]!r}, and --plan-of {self.plan_of} has "
                f"{others[name]!r}: leave out --plan-of, choose another --output, or start over with --restart"
            )
        if name not in known:
            decision = others[name] if name in others else decide()
            self.folder.mkdir(parents=True, exist_ok=True)
            with replace_file(self.folder / PLAN) as beside:
                beside.write_text(
                    json.dumps(read_plan(self.folder) | {name: decision}, indent=1) + "\n", encoding="utf-8"
                )
        return read_plan(self.folder)[name]

    @property
    def training_pairs(self) -> Sequence[Pair]:
        """What models are trained on: the chosen pairs, or the text without its test pairs."""
        return self._split_text[0] if self.chosen_pairs is None else self.chosen_pairs

    @cached_property
    def test_pairs(self) -> list[Pair]:
        """The pairs that no model was trained on, at most `NUM_TEST_PAIRS`."""
        return self._split_text[1]

    @property
    def text_digest(self) -> str:
        """The beginning of the SHA-256 of all pairs, by which it is noticed that a text has changed."""
        return hashlib.sha256(repr(self._split_text).encode()).hexdigest()[:12]

    @cached_property
    def training_file(self) -> Path:
        """A file of tab-separated pairs to train on."""
        path = self.folder / "data" / "train.tsv"
        content = "".join(f"{source}\t{target}\n" for source, target in self.training_pairs)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            with replace_file(path) as beside:
                beside.write_text(content, encoding="utf-8", newline="\n")
        return path

    def with_fewer_pairs(self, num_pairs: int) -> "Laboratory":
        """The same laboratory with `num_pairs` of its pairs to train on, spread evenly over the text."""
        return replace(self, chosen_pairs=choose_evenly(self.training_pairs, num_pairs))

    def with_fewer_generated_pairs(self, num_pairs: int) -> "Laboratory":
        """The same laboratory with `num_pairs` pairs to train on if text is generated; itself if a user gave text."""
        return self.with_fewer_pairs(num_pairs) if self.text_files is None else self

    @cached_property
    def _split_text(self) -> tuple[list[Pair], list[Pair]]:
        """Pairs for training and pairs for the test, which have no side in common."""
        if self.text_files is None:
            return _generate_text(NUM_PAIRS, NUM_TEST_PAIRS)
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
        chosen = pairs[::step][:NUM_TEST_PAIRS]
        sources, targets = map(set, zip(*chosen, strict=True))
        return [pair for pair in pairs if pair[0] not in sources and pair[1] not in targets], chosen

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
            "training.scorecard_sentences": 0,
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

        The time of an update of each variant is measured for a moment, once (`decide_once`). If an experiment goes on
        with more seeds, or there is no time for `MIN_UPDATES`, it takes longer than the budget, and a message says so.

        Args:
            variants: settings of each, see `make_config`.
            reserve: seconds of the budget that other trials of the experiment need.
            seconds_around: time of each run without its updates.
        """
        around = seconds_around * len(variants)

        def measure() -> float:
            self.report(f"measuring the time of an update of {len(variants)} models")
            return sum(self._measure_update(settings) for settings in variants)

        def decide() -> int:
            seconds = self.decide_once("seconds of one update of each variant", measure)
            updates = (TRAINING_SHARE * (self.budget - reserve) / len(self.seeds) - around) / seconds
            return max(MIN_UPDATES, _round_down(updates))

        updates = int(self.decide_once("updates", decide))
        seconds = read_plan(self.folder).get("seconds of one update of each variant", 0.0)
        self._warn_if_longer(f"{updates} updates", reserve + len(self.seeds) * (updates * seconds + around))
        return updates

    def decide_training_share(self, usual: float, *, least: float) -> float:
        """Decide once which part of a training of usual length fits into the time budget: see `decide_once`.

        If an experiment goes on with more seeds, or there is no time for `least`, it takes longer than the budget, and
        a message says so.

        Args:
            usual: seconds of a seed with training of usual length, its tests included (`SECONDS_OF_TESTS`).
            least: the least part with which something is trained.
        """

        def decide() -> float:
            return max(least, (self.budget / len(self.seeds) - SECONDS_OF_TESTS) / (usual - SECONDS_OF_TESTS))

        share = float(self.decide_once("share", decide))
        expected = len(self.seeds) * (SECONDS_OF_TESTS + share * (usual - SECONDS_OF_TESTS))
        self._warn_if_longer(f"{share:.0%} of the usual training", expected)
        return share

    def _warn_if_longer(self, what: str, expected: float) -> None:
        if round(expected) > self.budget:
            count = format_count(len(self.seeds), "seed")
            self.report(
                f"{what} with {count}: about {timedelta(seconds=round(expected))}, longer than the budget of "
                f"{timedelta(seconds=round(self.budget))}"
            )

    def _measure_update(self, settings: Mapping[str, Value]) -> float:
        """Seconds of an update, the median of a few."""
        config = self.make_config(settings, MIN_UPDATES, 1, "probe")
        vocabulary = config.text.vocabulary
        config = config.with_vocabulary(vocabulary if isinstance(vocabulary, int) else 1000)
        device = find_device(config.training.device)
        updater = Updater(make_encoder_decoder(config.model).to(device), config.training, device)
        updater.parallel_micro_batches = choose_parallel_micro_batches(config, device, SINGLE_RANK)
        length = 16
        shape = BatchShape(max(1, config.training.batch_tokens // length), length, length)
        batch = shape.make_batch(updater.model.pad_id)
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
            "seconds" of training. If training diverges, nothing was learned: see `count_as_diverged`.
        """
        config = self.make_config(settings, updates, seed, _name_run(settings, updates, seed))
        try:
            result = train(config, TrialReporter(self.report_progress))
        except DivergedError:
            return count_as_diverged(config.model.vocabulary)
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
        """Translate the test pairs with a bundle in float32.

        Args:
            bundle: the bundle.
            search: settings of the search that differ from the bundle's, as in beam=4.

        Returns:
            "bleu", "chrf", "exact", the share of exact matches, "length", the tokens of all translations in relation to
            those of all references, and "search_seconds".
        """
        sources, references = zip(*self.test_pairs, strict=True)
        translator = Translator.load(bundle, device="cpu", precision="float32").with_search(search)
        started = time.perf_counter()
        translations = translator.translate(sources)
        seconds = time.perf_counter() - started
        bleu, chrf = score_corpus(translations, references, ["bleu", "chrf"])
        exact = sum(one == reference for one, reference in zip(translations, references, strict=True))
        num_tokens, num_reference_tokens = (
            sum(map(len, translator.tokenizer.encode_targets(texts))) for texts in (translations, references)
        )
        return {
            "bleu": bleu.value,
            "chrf": chrf.value,
            "exact": exact / len(references),
            "length": num_tokens / num_reference_tokens,
            "search_seconds": seconds,
        }

    def find_run(self, settings: Mapping[str, Value], updates: int, seed: int) -> Path:
        """The folder of a run that `train` has finished.

        Raises:
            DivergedError: the run has no model, as it diverged.
            RunError: there is no such run.
        """
        folder = self.folder / "runs" / _name_run(settings, updates, seed)
        if not folder.exists():
            raise RunError(f"{folder}: is not there: start the experiment anew with --restart")
        if not (folder / "best").exists():
            raise DivergedError(f"{folder}: has no model, as training diverged")
        return folder


def count_as_diverged(vocabulary: int) -> dict[str, float]:
    """The measurements that stand for a diverged run, so that a variant that often diverges does not look better.

    They are those of a model that has learned nothing: no translation is right, and its loss is that of guessing among
    all tokens of the vocabulary but `<pad>`.

    Args:
        vocabulary: number of tokens.
    """
    return {"diverged": 1.0, "loss": math.log(vocabulary - 1), "accuracy": 0.0, "bleu": 0.0, "chrf": 0.0, "exact": 0.0}


def _name_run(settings: Mapping[str, Value], updates: int, seed: int) -> str:
    """Name the folder of a run: by its first settings, which people read, and by a digest of all of them."""
    shown = " ".join(f"{name.rpartition('.')[2]}={value}" for name, value in settings.items())[:MAX_SHOWN] or "default"
    digest = hashlib.sha256(json.dumps(dict(settings), sort_keys=True).encode()).hexdigest()[:8]
    return f"{shown} ({digest}), {updates} updates, seed {seed}"


def _round_down(number: float) -> int:
    """A number with two digits that are not zero, at most `number`."""
    if number < 1:
        return 0
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return int(number // unit * unit)


@cache
def _generate_text(num_pairs: int, num_test_pairs: int) -> tuple[list[Pair], list[Pair]]:
    """Generated pairs for training and for the test; made once, as it takes seconds."""
    return demo.generate_training_pairs(num_pairs, seed=1), demo.generate_test_pairs()[:num_test_pairs]


def read_plan(folder: Path) -> dict[str, Any]:
    """The decisions of an experiment that runs in `folder`, by name; none before the first is taken.

    Raises:
        UserError: its plan.json is damaged.
    """
    path = folder / PLAN
    if not path.exists():
        return {}
    try:
        plan = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: is damaged: {error}; restore it, or start over with --restart") from None
    if not isinstance(plan, dict):
        raise UserError(f"{path}: is damaged: it is no JSON object; restore it, or start over with --restart")
    return plan
