import json
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.bundle import Bundle
from transduce.errors import BundleError
from transduce.interop.onnx.settings import CONFIG_FILE, OnnxSettings, read_settings


def write(folder: Path, settings: OnnxSettings) -> Path:
    (folder / CONFIG_FILE).write_text(settings.model_dump_json(indent=2), encoding="utf-8")
    return folder


def test_they_say_what_a_program_needs(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle(num_decoder_layers=2)
    settings = OnnxSettings.of(bundle.description, "int8")
    assert read_settings(write(tmp_path, settings)) == settings
    tokenizer = bundle.load_tokenizer()
    assert (settings.unknown_id, settings.end_id, settings.pad_id) == (0, 1, tokenizer.pad_id)
    assert settings.precision == "int8"
    assert (settings.model, settings.search) == (bundle.model_config, bundle.description.search)
    assert settings.languages == bundle.description.languages
    memory = ("memory_keys_0", "memory_values_0", "memory_keys_1", "memory_values_1")
    assert settings.encoder.outputs == ("source_mask", *memory)
    assert settings.decoder_step.inputs[:6] == ("last_ids", "source_mask", *memory)
    assert settings.decoder_step.inputs[6:8] == ("past_keys_0", "past_values_0")
    assert settings.decoder_step.outputs[:3] == ("log_probabilities", "present_keys_0", "present_values_0")


@pytest.mark.parametrize(("positions", "limit"), [("sinusoidal", None), ("none", None), ("learned", 30)])
def test_only_learned_positions_end(make_bundle: Callable[..., Bundle], positions: str, limit: int | None) -> None:
    bundle = make_bundle(positions=positions, max_positions=30)
    assert OnnxSettings.of(bundle.description, "float32").max_positions == limit


def test_a_folder_without_them_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read"):
        read_settings(tmp_path)


@pytest.mark.parametrize("change", [{"format": "other"}, {"format_version": 2}, {"end_id": "1"}, {"more": 1}])
def test_other_settings_are_refused(make_bundle: Callable[..., Bundle], tmp_path: Path, change: dict) -> None:
    write(tmp_path, OnnxSettings.of(make_bundle().description, "float32"))
    path = tmp_path / CONFIG_FILE
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), encoding="utf-8")
    with pytest.raises(BundleError, match=f"{next(iter(change))}: .*: give a folder that"):
        read_settings(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_settings_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / CONFIG_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(BundleError, match="give a folder that transduce export --to onnx has written"):
        read_settings(tmp_path)
