import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import JsonValue
from torch import Tensor

from transduce.bundle import (
    Checkpoint,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    load_tensors,
    model_tensors,
    recover_checkpoints,
    remove_checkpoints,
    save_checkpoint,
)
from transduce.errors import BundleError
from transduce.model import Transformer

Parts = dict[str, dict[str, Tensor]]

STATE: dict[str, JsonValue] = {
    "epoch": 3,
    "position": 17,
    "best": 31.25,
    "by": "bleu",
    "history": [1.5, None, {"a": True}],
}


def _tensors(seed: int = 0) -> Parts:
    generator = torch.Generator().manual_seed(seed)
    weights = {"a.weight": torch.rand(3, 4, generator=generator), "b": torch.rand(2, 1, 2, generator=generator)}
    moments = {f"{name}.mean": tensor.square() for name, tensor in weights.items()}
    return {"weights": weights, "optimizer": moments | {"step": torch.tensor(7.0), "count": torch.tensor([2**60])}}


def _same(found: Parts, expected: Parts) -> bool:
    return found.keys() == expected.keys() and all(
        found[part].keys() == expected[part].keys()
        and all(torch.equal(found[part][name], expected[part][name]) for name in expected[part])
        for part in expected
    )


def test_tensors_of_version_1_get_the_names_of_today(tmp_path: Path) -> None:
    tensors = {"weights": {"decoder.layers.0.memory_attention.output.weight": torch.rand(3, 4)}}
    save_checkpoint(tmp_path, 7, tensors, STATE)
    loaded, _ = load_checkpoint(tmp_path, 7)
    assert list(loaded["weights"]) == ["decoder.layers.0.cross_attention.output.weight"]


def test_everything_comes_back_bit_for_bit(tmp_path: Path) -> None:
    place = save_checkpoint(tmp_path / "checkpoints", 4000, _tensors(), STATE)
    assert place == tmp_path / "checkpoints" / "000004000"
    assert {path.name for path in place.iterdir()} == {
        "checkpoint.json",
        "weights.safetensors",
        "optimizer.safetensors",
    }
    tensors, state = load_checkpoint(tmp_path / "checkpoints", 4000)
    assert _same(tensors, _tensors())
    assert state == STATE
    assert all(
        tensor.dtype == _tensors()[part][name].dtype for part in tensors for name, tensor in tensors[part].items()
    )


@pytest.mark.parametrize("settings", [{"tied_embeddings": "none"}, {"normalization": "batch"}, {}], ids=str)
def test_a_model_goes_through_a_checkpoint(
    tmp_path: Path, make_model: Callable[..., Transformer], settings: dict[str, Any]
) -> None:
    model, other = make_model(**settings), make_model(**settings)
    save_checkpoint(tmp_path, 1, {"weights": model_tensors(model)}, {})
    load_tensors(other, load_checkpoint(tmp_path, 1)[0]["weights"], "checkpoint")
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in model.state_dict().items())
    assert (other.projection.weight is other.source_embedding.weight) == (settings.get("tied_embeddings") != "none")


def test_one_part_can_be_loaded(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 5, _tensors(), STATE)
    assert _same(load_checkpoint(tmp_path, 5, ["weights"])[0], {"weights": _tensors()["weights"]})
    with pytest.raises(BundleError, match="no part 'teeth'"):
        load_checkpoint(tmp_path, 5, ["teeth"])


def test_a_part_without_tensors(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 0, {"weights": {}}, {})
    assert load_checkpoint(tmp_path, 0) == ({"weights": {}}, {})


def test_saving_again_replaces(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 5, _tensors(1), STATE)
    save_checkpoint(tmp_path, 5, _tensors(2), {})
    assert _same(load_checkpoint(tmp_path, 5)[0], _tensors(2))
    assert list_checkpoints(tmp_path) == [5]


def test_what_is_loaded_is_no_view_of_the_file(tmp_path: Path) -> None:
    place = save_checkpoint(tmp_path, 5, _tensors(1), STATE)
    tensors, _ = load_checkpoint(tmp_path, 5)
    for part in tensors:
        path = place / f"{part}.safetensors"
        with path.open("r+b") as file:  # the same file, not a new one of the same name
            file.write(b"\xff" * path.stat().st_size)
    assert _same(tensors, _tensors(1))


def test_what_is_loaded_outlives_its_folder(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 5, _tensors(1), STATE)
    tensors, _ = load_checkpoint(tmp_path, 5)
    save_checkpoint(tmp_path, 5, _tensors(2), STATE)
    remove_checkpoints(tmp_path, 0)
    assert _same(tensors, _tensors(1))


def test_numbers_that_json_does_not_know_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="finite"):
        save_checkpoint(tmp_path, 5, _tensors(), {"best": float("-inf")})
    assert list(tmp_path.iterdir()) == []


def test_listing_sorts_by_number_and_leaves_out_what_has_another_name(tmp_path: Path) -> None:
    assert list_checkpoints(tmp_path / "nowhere") == []
    for update in (200, 1_000_000_000, 30):
        save_checkpoint(tmp_path, update, _tensors(), STATE)
    (tmp_path / "notes").mkdir()
    (tmp_path / "000000040").touch()
    save_checkpoint(tmp_path, 50, _tensors(), STATE).rename(tmp_path / "000000050.transduce-tmp-12")
    assert list_checkpoints(tmp_path) == [30, 200, 1_000_000_000]


def _damage_json(place: Path) -> None:
    (place / "checkpoint.json").write_text("{", encoding="utf-8")


def _flip(place: Path) -> None:
    content = bytearray((place / "optimizer.safetensors").read_bytes())
    content[-1] ^= 1
    (place / "optimizer.safetensors").write_bytes(content)


def _cut(place: Path) -> None:
    (place / "weights.safetensors").write_bytes((place / "weights.safetensors").read_bytes()[:-4])


def _edit(**values: object) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        content = json.loads((place / "checkpoint.json").read_text(encoding="utf-8"))
        (place / "checkpoint.json").write_text(json.dumps(content | values), encoding="utf-8")

    return change


DAMAGES = {
    "no JSON": (_damage_json, "checkpoint.json: is not JSON"),
    "flipped": (_flip, "optimizer.safetensors: has the SHA-256"),
    "cut": (_cut, "weights.safetensors: has .* bytes, but checkpoint.json says"),
    "half": (lambda place: (place / "checkpoint.json").unlink(), "checkpoint.json: is missing"),
    "missing": (lambda place: (place / "weights.safetensors").unlink(), "weights.safetensors: is missing"),
    "newer": (_edit(format_version=9), "checkpoint.json: has format version 9"),
    "foreign": (_edit(format="transduce bundle"), "checkpoint.json: its format is 'transduce bundle'"),
    "renamed": (_edit(update=6), "checkpoint.json: the checkpoint is of update 6, its folder is 000000020"),
    "other state": (_edit(state={"epoch": 4}), "checkpoint.json: its state is not the one that was saved"),
    "way out": (_edit(files={"../x": {"bytes": 0, "sha256": "0" * 64}}), r"checkpoint.json: files\.\.\./x"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_and_passed_over(tmp_path: Path, damage: str) -> None:
    harm, words = DAMAGES[damage]
    save_checkpoint(tmp_path, 10, _tensors(), STATE)
    harm(save_checkpoint(tmp_path, 20, _tensors(), {}))
    with pytest.raises(BundleError, match=words):
        load_checkpoint(tmp_path, 20)
    told: list[str] = []
    assert latest_checkpoint(tmp_path, told.append) == Checkpoint(10, STATE)
    assert len(told) == 1
    assert "checkpoint of update 20 is passed over" in told[0]
    assert "safetensors" in told[0] or "checkpoint.json" in told[0]


def test_the_latest_is_taken_silently(tmp_path: Path) -> None:
    for update in (10, 20):
        save_checkpoint(tmp_path, update, _tensors(), {"at": update})
    told: list[str] = []
    assert latest_checkpoint(tmp_path, told.append) == Checkpoint(20, {"at": 20})
    assert told == []


def test_there_may_be_none(tmp_path: Path) -> None:
    told: list[str] = []
    assert latest_checkpoint(tmp_path, told.append) is None
    _cut(save_checkpoint(tmp_path, 1, _tensors(), STATE))
    assert latest_checkpoint(tmp_path, told.append) is None
    assert len(told) == 1


def test_a_missing_checkpoint_is_said(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"000000003.checkpoint\.json: is missing"):
        load_checkpoint(tmp_path, 3)


@pytest.mark.parametrize(("keep", "left"), [(0, []), (1, [30]), (2, [20, 30]), (9, [10, 20, 30])])
def test_the_latest_are_kept(tmp_path: Path, keep: int, left: list[int]) -> None:
    for update in (10, 20, 30):
        save_checkpoint(tmp_path, update, _tensors(), STATE)
    remove_checkpoints(tmp_path, keep)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{update:09d}" for update in left]


def test_removing_and_recovering_where_nothing_is(tmp_path: Path) -> None:
    remove_checkpoints(tmp_path / "nowhere", 3)
    recover_checkpoints(tmp_path / "nowhere")


def test_what_killed_processes_left_is_put_right(tmp_path: Path) -> None:
    for update in (10, 20, 30):
        save_checkpoint(tmp_path, update, _tensors(), STATE)
    (tmp_path / "000000010").rename(tmp_path / "000000010.transduce-removed-77")
    (tmp_path / "000000020").rename(tmp_path / "000000020.transduce-old-77")
    (tmp_path / "000000020.transduce-tmp-77").mkdir()
    recover_checkpoints(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000020", "000000030"]
    assert latest_checkpoint(tmp_path, pytest.fail) == Checkpoint(30, STATE)
    load_checkpoint(tmp_path, 20)
