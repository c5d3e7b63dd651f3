"""Measurements that are made up, the verdicts that follow from them, and a small network with random weights."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.config import SearchConfig, TransformerConfig
from transduce.lab import Experiment, Laboratory, Measurement, Results, TextFiles, laboratory, run_experiment
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation.confidence.scoring import ForcedDecoder

WORDS = ("sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door")


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS, size=random.integers(1, 6))) for _ in range(300)]


@pytest.fixture(scope="session")
def make_decoder(sentences: list[str]) -> Callable[..., ForcedDecoder]:
    tokenizer = Tokenizer.train(sentences, 310, "bpe")

    def make(**settings: Any) -> ForcedDecoder:
        torch.manual_seed(0)
        sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2}
        config = TransformerConfig(vocabulary=tokenizer.vocabulary, **{**sizes, **settings})
        return ForcedDecoder(Transformer(config).eval(), tokenizer, SearchConfig(max_pieces=20))

    return make


@pytest.fixture
def planned(text_files: TextFiles, tmp_path: Path) -> Laboratory:
    """A laboratory that has already decided on 60 updates, so that planning measures nothing."""
    laboratory = Laboratory(tmp_path / "planned", text_files=text_files)
    laboratory.decide_once("updates", lambda: 60)
    return laboratory


@pytest.fixture
def make_up() -> Callable[..., list[Measurement]]:
    """Measurements of one trial, given its settings and the values of each quantity for the seeds 1, 2, 3 and so on."""

    def make(settings: Mapping[str, str | float], **values: Sequence[float]) -> list[Measurement]:
        num_seeds = max(map(len, values.values()))
        return [
            Measurement(settings, seed + 1, {name: of_seeds[seed] for name, of_seeds in values.items()}, 1.0)
            for seed in range(num_seeds)
        ]

    return make


@pytest.fixture
def judge() -> Callable[[Experiment, Sequence[Measurement]], list[str]]:
    """The verdicts about the claims of an experiment, in their order."""

    def find_verdicts(experiment: Experiment, measurements: Sequence[Measurement]) -> list[str]:
        claim_results = experiment.conclude(Results(measurements)).claim_results
        assert [claim_result.claim for claim_result in claim_results] == list(experiment.claims)
        return [claim_result.verdict for claim_result in claim_results]

    return find_verdicts


@pytest.fixture
def check_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs an experiment on little generated text for a few updates, from its plan to its report, and once more."""
    for name, value in {"NUM_PAIRS": 2000, "NUM_TEST_PAIRS": 40, "MIN_UPDATES": 10}.items():
        monkeypatch.setattr(laboratory, name, value)

    def check(name: str) -> None:
        place = Laboratory(tmp_path / "whole", (1,), budget=5.0)
        report = run_experiment(name, place)
        assert report.conclusion.claim_results
        assert (place.folder / "report.html").is_file()
        measurements = (place.folder / "measurements.jsonl").read_bytes()
        run_experiment(name, place)  # nothing is missing, so that nothing is measured
        assert (place.folder / "measurements.jsonl").read_bytes() == measurements

    return check
