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
    FileRecord,
    Shard,
    begin_checkpoint,
    collect_model_tensors,
    find_latest_checkpoint,
    finish_checkpoint,
    list_checkpoints,
    load_checkpoint,
    load_tensors,
    recover_checkpoints,
    remove_checkpoints,
    save_checkpoint,
    write_shard,
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
    save_checkpoint(tmp_path, 1, {"weights": collect_model_tensors(model)}, {})
    load_tensors(other, load_checkpoint(tmp_path, 1)[0]["weights"], "checkpoint")
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in model.state_dict().items())
    assert (other.projection.weight is other.source_embedding.weight) == (settings.get("tied_embeddings") != "none")


def test_one_part_can_be_loaded(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 5, _tensors(), STATE)
    assert _same(load_checkpoint(tmp_path, 5, ["weights"])[0], {"weights": _tensors()["weights"]})
    with pytest.raises(BundleError, match="no part 'teeth'"):
        load_checkpoint(tmp_path, 5, ["teeth"])


SHARDED = {"matrix": [2, 2, 1], "few": [1, 1, 0], "cube": [1, 1, 1]}
"""Rows of tensors in each of three shards."""


def save_shards(folder: Path, update: int = 20) -> tuple[Path, Parts]:
    """Saves three shards, and returns the whole tensors."""
    widths = {"matrix": (4,), "few": (), "cube": (2, 3)}
    shards = [
        {"weights": {name: torch.rand(rows[number], *widths[name]) for name, rows in SHARDED.items()}}
        for number in range(3)
    ]
    whole = {"weights": {name: torch.cat([shard["weights"][name] for shard in shards]) for name in SHARDED}}
    alone = {"step": torch.tensor(7.0), "statistics": torch.rand(5)}
    shards[0]["weights"] |= alone
    whole["weights"] |= alone
    with begin_checkpoint(folder, update) as temporary:
        files: dict[str, FileRecord] = {}
        for number in (2, 0, 1):
            files |= write_shard(temporary, shards[number], Shard(number + 1, 3))
        finish_checkpoint(temporary, update, STATE, files)
    return folder / f"{update:09d}", whole


def test_shards_make_a_whole(tmp_path: Path) -> None:
    place, whole = save_shards(tmp_path)
    names = {f"weights.{number}of3.safetensors" for number in (1, 2, 3)}
    assert {path.name for path in place.iterdir()} == names | {"checkpoint.json"}
    tensors, state = load_checkpoint(tmp_path, 20)
    assert _same(tensors, whole)
    assert state == STATE
    assert find_latest_checkpoint(tmp_path, pytest.fail) == Checkpoint(20, STATE)


@pytest.mark.parametrize("num_readers", [1, 2, 4])
def test_each_reads_the_rows_that_it_needs(tmp_path: Path, num_readers: int) -> None:
    _, whole = save_shards(tmp_path)
    save_checkpoint(tmp_path, 10, whole, STATE)
    for update in (10, 20):
        parts = []
        for number in range(num_readers):
            asked: dict[str, int] = {}

            def find_rows(
                part: str, name: str, num_rows: int, asked: dict[str, int] = asked, number: int = number
            ) -> slice:
                asked[f"{part}/{name}"] = num_rows
                longest = -(-num_rows // num_readers)
                return slice(number * longest, min(num_rows, (number + 1) * longest))

            tensors, _ = load_checkpoint(tmp_path, update, find_rows=find_rows)
            parts.append(tensors["weights"])
            assert asked == {
                f"weights/{name}": len(whole["weights"][name]) for name in whole["weights"].keys() - {"step"}
            }
        for name, tensor in whole["weights"].items():
            found = torch.cat([part[name] for part in parts]) if tensor.dim() else parts[0][name]
            assert torch.equal(found, tensor), name


def test_only_shards_need_a_later_version(tmp_path: Path) -> None:
    sharded, whole = save_shards(tmp_path)
    plain = save_checkpoint(tmp_path, 10, whole, STATE)
    versions = [json.loads((place / "checkpoint.json").read_bytes())["format_version"] for place in (plain, sharded)]
    assert versions == [2, 3]


def test_shards_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    place, _ = save_shards(tmp_path)
    description = json.loads((place / "checkpoint.json").read_bytes())
    files = description["files"]
    left = {name: record for name, record in files.items() if "2of3" not in name}
    for changed in (left, left | {"weights.2of4.safetensors": files["weights.2of3.safetensors"]}):
        (place / "weights.2of4.safetensors").write_bytes((place / "weights.2of3.safetensors").read_bytes())
        (place / "checkpoint.json").write_text(json.dumps(description | {"files": changed}), encoding="utf-8")
        with pytest.raises(BundleError, match="are not all shards of weights"):
            load_checkpoint(tmp_path, 20)
        told: list[str] = []
        assert find_latest_checkpoint(tmp_path, told.append) is None
        assert len(told) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"matrix": torch.rand(2, 5)},
        {"matrix": torch.rand(2, 4).double()},
        {"matrix": torch.rand(2, 4)},  # of three shards, it is in two
    ],
)
def test_shards_of_other_tensors_are_refused(tmp_path: Path, other: dict[str, Tensor]) -> None:
    shards = [{"matrix": torch.rand(2, 4)}, other, {} if other["matrix"].shape == (2, 4) else other]
    with begin_checkpoint(tmp_path, 20) as temporary:
        files: dict[str, FileRecord] = {}
        for number, tensors in enumerate(shards, start=1):
            files |= write_shard(temporary, {"weights": tensors}, Shard(number, 3))
        finish_checkpoint(temporary, 20, STATE, files)
    with pytest.raises(BundleError, match="'matrix' does not fit that of the other shards"):
        load_checkpoint(tmp_path, 20)


def test_without_its_last_step_there_is_no_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 20, _tensors(), STATE)

    def stop_half_way() -> None:
        with begin_checkpoint(tmp_path, 20) as temporary:
            write_shard(temporary, _tensors(1), Shard(1, 2))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_half_way()
    assert _same(load_checkpoint(tmp_path, 20)[0], _tensors())


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
    assert find_latest_checkpoint(tmp_path, told.append) == Checkpoint(10, STATE)
    assert len(told) == 1
    assert "checkpoint of update 20 is passed over" in told[0]
    assert "safetensors" in told[0] or "checkpoint.json" in told[0]


def test_the_latest_is_taken_silently(tmp_path: Path) -> None:
    for update in (10, 20):
        save_checkpoint(tmp_path, update, _tensors(), {"at": update})
    told: list[str] = []
    assert find_latest_checkpoint(tmp_path, told.append) == Checkpoint(20, {"at": 20})
    assert told == []


def test_there_may_be_none(tmp_path: Path) -> None:
    told: list[str] = []
    assert find_latest_checkpoint(tmp_path, told.append) is None
    _cut(save_checkpoint(tmp_path, 1, _tensors(), STATE))
    assert find_latest_checkpoint(tmp_path, told.append) is None
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
    assert find_latest_checkpoint(tmp_path, pytest.fail) == Checkpoint(30, STATE)
    load_checkpoint(tmp_path, 20)
