"""Illnesses planted in real runs, in miniature; at full size, `benchmarks/illnesses.py` plants them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.config import RunConfig
from transduce.model import Transformer
from transduce.training import train
from transduce.training.diagnosis.diagnosis import new_findings

MetricsOf = Callable[[Path], list[dict[str, Any]]]
LEARNING: dict[str, Any] = {
    "model__d_model": 32,
    "model__dropout": 0.0,
    "training__updates": 90,
    "training__batch_tokens": 500,
    "training__validate_every": 30,
    "training__checkpoint_every": 1000,
    "training__log_every": 1000,
    "search__max_extra_length": 10,
}


def write_corpus(folder: Path, *, shuffled: bool = False) -> dict[str, Any]:
    """Sentences and their translations word by word; the settings that name the files."""
    random = np.random.default_rng(5)
    words = np.array(["sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door"])
    meanings = np.array(
        ["sol", "luna", "rivo", "petro", "avo", "arbo", "vento", "sal", "vojo", "lampo", "peco", "fino"]
    )
    sentences = [random.integers(len(words), size=random.integers(2, 7)) for _ in range(600)]
    sources, targets = ([" ".join(side[sentence]) for sentence in sentences] for side in (words, meanings))
    training = list(zip(sources[40:], targets[40:], strict=True))
    if shuffled:
        order = random.permutation(len(training))
        training = [(source, training[place][1]) for (source, _), place in zip(training, order, strict=True)]
    for name, pairs in (("train", training), ("valid", list(zip(sources[:40], targets[:40], strict=True)))):
        lines = (f"{source}\t{target}\n" for source, target in pairs)
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return {"data__folder": str(folder), "data__pairs": "train.tsv", "data__validation_pairs": "valid.tsv"}


def warnings_of(told: Any) -> list[str]:
    return [text for text in told.said if text.startswith(("warning", "over"))]


def test_shuffled_targets_are_named_before_the_first_update(
    make_config: Callable[..., RunConfig], watcher: Any, tmp_path: Path, metrics_of: MetricsOf
) -> None:
    told = watcher()
    files = write_corpus(tmp_path, shuffled=True)
    run = train(make_config(**files, data__cache=str(tmp_path / "cache"), training__updates=2), told).folder
    (said,) = warnings_of(told)
    assert said.startswith("warning: in 1 of 1 stretches of the training text")
    (line,) = [line for line in metrics_of(run) if line["kind"] == "finding"]
    assert (line["update"], line["name"], line["is_over"]) == (0, "unrelated pairs", False)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<b>unrelated pairs</b>, before the first update: in 1 of 1 stretches" in page


YOUNG: dict[str, Any] = {
    "training__updates": 400,
    "training__validate_every": 1000,
    "training__checkpoint_every": 1000,
    "training__log_every": 50,
}


def test_a_model_without_attention_to_the_source_is_named(
    make_config: Callable[..., RunConfig], watcher: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Transformer.__init__

    def deaf(self: Transformer, config: Any) -> None:
        original(self, config)
        for layer in self.decoder.layers:
            output = layer.cross_attention.output.weight
            torch.nn.init.zeros_(output)
            output.register_hook(torch.zeros_like)

    told, files = watcher(), write_corpus(tmp_path)
    monkeypatch.setattr(Transformer, "__init__", deaf)
    train(make_config(**files, **YOUNG, data__cache=str(tmp_path / "cache")), told)
    (said,) = warnings_of(told)
    assert said.startswith("warning: the model ignores the source: after 400 updates")


def test_a_decoder_that_sees_what_it_has_to_predict_is_noticed(
    make_config: Callable[..., RunConfig], watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_mask(length: int, device: torch.device) -> torch.Tensor:
        return torch.ones(1, 1, length, length, dtype=torch.bool, device=device)

    monkeypatch.setattr("transduce.model.decoder.causal_attention_mask", no_mask)
    told = watcher()
    train(make_config(**LEARNING), told)
    assert any("see the token it has to predict" in text for text in warnings_of(told))
    assert told.validations[-1][1].accuracy > 0.5


def test_a_healthy_model_is_not_suspected(
    make_config: Callable[..., RunConfig], watcher: Any, copier: Any, metrics_of: MetricsOf
) -> None:
    told = watcher()
    healthy = train(make_config(**LEARNING), told).folder
    assert warnings_of(told) == []
    for run in (healthy, copier.result.folder):
        lines = metrics_of(run)
        assert "finding" not in {line["kind"] for line in lines}
        scored = [line for line in lines if line["kind"] in {"validation", "average"}]
        assert all(line["token_f1"] > 0.6 * line["accuracy"] for line in scored if line["accuracy"] > 0.4)
    assert scored[-1]["token_f1"] > 0.9
    assert [line["update"] for line in lines if line["kind"] == "source_use"] == [50, 100, 150, 200, 250, 300]


def validation(update: int, own: float) -> dict[str, Any]:
    return {"kind": "validation", "update": update, "loss": 1.0, "accuracy": 0.9, "token_f1": own}


def test_each_finding_and_its_end_are_said_once() -> None:
    lines: list[dict[str, Any]] = []
    said = []
    for update, own in enumerate((0.3, 0.3, 0.3, 0.8, 0.8, 0.3, 0.3, 0.8), start=1):
        lines.append(validation(update, own))
        for finding in new_findings(RunConfig(), lines):
            said.append((update, finding.name, finding.is_over))
            lines.append({"kind": "finding", "update": update, "name": finding.name, "is_over": finding.is_over})
    assert said == [(2, "exposure bias", False), (4, "exposure bias", True)]


def test_a_damaged_or_empty_record_is_no_finding() -> None:
    assert new_findings(RunConfig(), []) == []
    assert new_findings(RunConfig(), [{"kind": "data", "update": 0}, {"kind": "skipped", "update": 1}]) == []
