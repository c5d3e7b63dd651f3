"""Points of learning curves, from a run and from measurements."""

from pathlib import Path

from transduce.lab import Laboratory, Results, TextFiles
from transduce.lab.laboratory import count_as_diverged
from transduce.lab.learning_curves import draw_learning_curves, read_curve, summarize_curve, train_with_curve
from transduce.lab.measurements import Measurement

TINY = {
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.d_model": 16,
    "model.d_ff": 16,
    "model.num_heads": 2,
    "search.max_extra_length": 2,
    "training.log_every": 4,
}


def test_training_has_a_curve(text_files: TextFiles, tmp_path: Path) -> None:
    values = train_with_curve(Laboratory(tmp_path / "lab", (1,), text_files=text_files), TINY, 60, 1)
    assert values["loss"] > 0
    results = Results([Measurement({"variant": "tiny"}, 1, values, 1.0)])
    updates, losses = zip(*read_curve(results, "update", variant="tiny"), strict=True)
    assert updates[0] == 4
    assert updates[-1] == 60
    assert len(updates) == 10
    assert losses[-1] < losses[0]
    seconds = [place for place, _ in read_curve(results, "seconds", variant="tiny")]
    assert seconds == sorted(seconds)


def test_points_are_means_of_tenths_of_a_run() -> None:
    lines = [{"update": update, "seconds": update / 10, "cross_entropy": float(update)} for update in range(1, 21)]
    values = summarize_curve(lines)
    assert [values[f"cross-entropy {number}"] for number in (1, 2, 10)] == [1.5, 3.5, 19.5]
    assert (values["update 1"], values["seconds 1"], values["update 10"]) == (2, 0.2, 20)
    assert summarize_curve([]) == {}
    chart = draw_learning_curves(Results([Measurement({"variant": "a"}, 1, values, 1.0)]), ["a", "b"])
    assert "a at 20: 19.5" in chart.svg


def test_divergence_has_no_curve(text_files: TextFiles, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path / "lab", (1,), text_files=text_files)
    values = train_with_curve(laboratory, {**TINY, "training.learning_rate": 1e30}, 60, 1)
    assert values == count_as_diverged(500)


def test_curve_is_the_mean_over_seeds() -> None:
    made = [
        Measurement({"variant": "a"}, seed, {"update 1": 50.0, "seconds 1": seed, "cross-entropy 1": 2.0 * seed}, 1.0)
        for seed in (1, 3)
    ]
    assert read_curve(Results(made), "seconds", variant="a") == [(2.0, 4.0)]
    assert read_curve(Results(made), "update", variant="b") == []
