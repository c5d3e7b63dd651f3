import hashlib
import json
import os
import pickletools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import transduce
from transduce.bundle import Bundle, BundleDescription, collect_model_tensors, find_bundle, name_model, save_bundle
from transduce.config import PRESETS, TransformerConfig
from transduce.errors import BundleError, OutputError
from transduce.model import Transformer
from transduce.text import Tokenizer

MakeModel = Callable[..., Transformer]
Save = Callable[..., Transformer]
Describe = Callable[[Transformer], BundleDescription]
Harm = Callable[[Path], object]

VARIANTS = [
    {"tied_embeddings": "three_way"},
    {"tied_embeddings": "two_way"},
    {"tied_embeddings": "none"},
    {"normalization": "batch"},
    {"normalization": "rms"},
    {"feed_forward": "gated"},
    {"positions": "rotary"},
    {"architecture": "recurrent", "output_bias": True},
    {"architecture": "convs2s", "kernel_width": 5, "tied_embeddings": "none"},
    {"architecture": "bytenet"},
    {"positions": "relative", "max_relative_distance": 3},
    {"norm_order": "pre", "positions": "learned", "max_positions": 16},
    {"attention_score": "additive", "positions": "none", "d_k": 3, "d_v": 5},
]


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the parsed bundle.json in place."""
    path = folder / "bundle.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def _record(folder: Path, name: str) -> None:
    """Make bundle.json agree with a file again."""
    content = (folder / name).read_bytes()
    record = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _edit(folder, lambda description: description["files"].update({name: record}))


def _rewrite_weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = {name: tensor.clone() for name, tensor in load_file(folder / "weights.safetensors").items()}
    change(tensors)
    save_file(tensors, folder / "weights.safetensors")
    _record(folder, "weights.safetensors")


# Round trip


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_a_model_comes_back_bit_for_bit(tmp_path: Path, save: Save, settings: dict[str, Any]) -> None:
    model = save(tmp_path / "bundle", **settings)
    bundle = Bundle.open(tmp_path / "bundle")
    loaded = bundle.load_model()
    expected, found = model.state_dict(), loaded.state_dict()
    assert list(expected) == list(found)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert bundle.model_config == model.config
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    source, mask = torch.tensor([[5, 6, 1]]), torch.ones(1, 3, dtype=torch.bool)
    assert torch.equal(model.eval()(source, mask, source, mask), loaded(source, mask, source, mask))


@pytest.mark.parametrize(("tied", "num_matrices"), [("three_way", 1), ("two_way", 2), ("none", 3)])
def test_ties_stay_ties(tmp_path: Path, save: Save, tied: str, num_matrices: int) -> None:
    save(tmp_path / "bundle", tied_embeddings=tied)
    loaded = Bundle.open(tmp_path / "bundle").load_model()
    embedding = loaded.target_embedding.weight
    assert (loaded.source_embedding.weight is embedding) == (tied == "three_way")
    assert (loaded.projection.weight is embedding) == (tied != "none")
    shapes = [tensor.shape for tensor in load_file(tmp_path / "bundle" / "weights.safetensors").values()]
    assert shapes.count(embedding.shape) == num_matrices


def test_a_bundle_of_version_1_loads(tmp_path: Path, save: Save, tokenizer: Tokenizer) -> None:
    model = save(tmp_path / "bundle")
    tensors = load_file(tmp_path / "bundle" / "weights.safetensors")
    former = {name.replace("cross_attention", "memory_attention"): tensor for name, tensor in tensors.items()}
    assert former.keys() != tensors.keys()
    save_file(former, tmp_path / "bundle" / "weights.safetensors")
    _record(tmp_path / "bundle", "weights.safetensors")
    _edit(tmp_path / "bundle", lambda content: content.update(format_version=1))
    bundle = Bundle.open(tmp_path / "bundle")
    loaded = bundle.load_model()
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in model.state_dict().items())
    save_bundle(tmp_path / "again", loaded, tokenizer, bundle.description)
    again = Bundle.open(tmp_path / "again")
    assert again.description.format_version == 3
    assert load_file(tmp_path / "again" / "weights.safetensors").keys() == tensors.keys()


def test_running_statistics_are_saved(tmp_path: Path, save: Save) -> None:
    save(tmp_path / "bundle", normalization="batch")
    names = load_file(tmp_path / "bundle" / "weights.safetensors")
    buffers = [name for name, _ in Bundle.open(tmp_path / "bundle").load_model().named_buffers() if "running" in name]
    assert buffers
    assert set(buffers) <= set(names)


def test_the_tokenizer_and_the_description_come_back(
    bundle_folder: Path, tokenizer: Tokenizer, make_model: MakeModel, describe: Describe
) -> None:
    bundle = Bundle.open(bundle_folder)
    assert bundle.load_tokenizer().model_bytes == tokenizer.model_bytes
    expected = describe(make_model()).model_copy(update={"files": bundle.description.files})
    assert bundle.description == expected
    assert bundle.description.library_version == transduce.__version__


def test_every_preset_can_be_described() -> None:
    for preset in PRESETS.values():
        description = BundleDescription(model=TransformerConfig(**preset.get("model", {})))
        assert BundleDescription.model_validate_json(description.model_dump_json()) == description


def test_opening_changes_nothing(bundle_folder: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in bundle_folder.iterdir()}
    Bundle.open(bundle_folder).load_model()
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in bundle_folder.iterdir()} == before


def test_changing_a_loaded_model_changes_no_file(bundle_folder: Path) -> None:
    before = _bytes(bundle_folder)
    model = Bundle.open(bundle_folder).load_model()
    with torch.no_grad():
        for tensor in collect_model_tensors(model).values():
            tensor.zero_()
    assert _bytes(bundle_folder) == before
    assert Bundle.open(bundle_folder).load_model().projection.weight.abs().sum() > 0


def test_other_files_and_an_edited_model_card_do_no_harm(bundle_folder: Path) -> None:
    (bundle_folder / ".gitattributes").write_text("*.safetensors filter=lfs\n", encoding="utf-8")
    (bundle_folder / "README.md").write_text("# My own words\n", encoding="utf-8")
    Bundle.open(bundle_folder)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_all_files_are_equally_readable(bundle_folder: Path) -> None:
    assert len({path.stat().st_mode for path in bundle_folder.iterdir()}) == 1


# Damage


def _cut(folder: Path) -> None:
    content = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(content[:-1])


def _flip(name: str) -> Harm:
    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)

    return damage


def _set(**values: object) -> Harm:
    return lambda folder: _edit(folder, lambda content: content.update(values))


def _write(text: bytes) -> Harm:
    return lambda folder: (folder / "bundle.json").write_bytes(text)


def _replace_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.model").write_bytes(b"no tokenizer")
    _record(folder, "tokenizer.model")


def _garbage_weights(folder: Path) -> None:
    (folder / "weights.safetensors").write_bytes(b"\xff" * 64)
    _record(folder, "weights.safetensors")


def _double(tensors: dict[str, Tensor]) -> None:
    tensors["projection.weight" if "projection.weight" in tensors else min(tensors)] = torch.zeros(2, 3)


def _to_half(tensors: dict[str, Tensor]) -> None:
    name = min(tensors)
    tensors[name] = tensors[name].half()


DAMAGES = {
    "weights missing": (
        lambda folder: (folder / "weights.safetensors").unlink(),
        ["weights.safetensors", "is missing"],
    ),
    "tokenizer missing": (lambda folder: (folder / "tokenizer.model").unlink(), ["tokenizer.model", "is missing"]),
    "description missing": (lambda folder: (folder / "bundle.json").unlink(), ["bundle.json", "looked for"]),
    "wrong size": (_cut, ["weights.safetensors", "bytes, but bundle.json says"]),
    "flipped byte in the weights": (_flip("weights.safetensors"), ["weights.safetensors", "has the SHA-256"]),
    "flipped byte in the tokenizer": (_flip("tokenizer.model"), ["tokenizer.model", "has the SHA-256"]),
    "no JSON": (_write(b'{"format": '), ["bundle.json", "is not JSON"]),
    "no UTF-8": (_write(b'{"format": "\xff"}'), ["bundle.json", "is not JSON"]),
    "nested without end": (_write(b"[" * 200_000), ["bundle.json", "is not JSON"]),
    "empty description": (_write(b""), ["bundle.json", "is not JSON"]),
    "a list": (_write(b"[]"), ["bundle.json", "its format is None"]),
    "another format": (_set(format="box"), ["bundle.json", "'box', but must be 'transduce bundle'"]),
    "newer": (_set(format_version=4), ["bundle.json", "format version 4", "up to 3", "update it"]),
    "version of another type": (_set(format_version="1"), ["bundle.json", "format_version = '1'"]),
    "unknown key": (_set(colour="red"), ["bundle.json", "colour = 'red'"]),
    "unknown model key": (
        lambda folder: _edit(folder, lambda content: content["model"].update(rotary=True)),
        ["bundle.json", "model.rotary = True"],
    ),
    "impossible model": (
        lambda folder: _edit(folder, lambda content: content["model"].update(num_heads=0)),
        ["bundle.json", "model.num_heads = 0"],
    ),
    "more layers than tensors": (
        lambda folder: _edit(folder, lambda content: content["model"].update(num_encoder_layers=10**5)),
        ["weights.safetensors", "tensors, too few for the 100,00", "bundle.json"],
    ),
    "path out of the folder": (
        lambda folder: _edit(
            folder, lambda content: content["files"].update({"../x": {"bytes": 0, "sha256": "0" * 64}})
        ),
        ["bundle.json", "../x"],
    ),
    "unlisted weights": (
        lambda folder: _edit(folder, lambda content: content["files"].pop("weights.safetensors")),
        ["bundle.json", "must list ['tokenizer.model', 'weights.safetensors']"],
    ),
    "tensor missing": (
        lambda folder: _rewrite_weights(folder, lambda tensors: tensors.pop(max(tensors))),
        ["weights.safetensors", "has no tensor"],
    ),
    "tensor too many": (
        lambda folder: _rewrite_weights(folder, lambda tensors: tensors.update(extra=torch.zeros(2))),
        ["weights.safetensors", "has a tensor 'extra'"],
    ),
    "wrong shape": (lambda folder: _rewrite_weights(folder, _double), ["weights.safetensors", "is float32 [2, 3]"]),
    "wrong type": (lambda folder: _rewrite_weights(folder, _to_half), ["weights.safetensors", "is float16"]),
    "weights of another kind": (_garbage_weights, ["weights.safetensors", "cannot be read as safetensors"]),
    "no tokenizer": (_replace_tokenizer, ["tokenizer.model", "cannot be read as a tokenizer"]),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused_by_name_and_left_as_it_is(bundle_folder: Path, damage: str) -> None:
    harm, words = DAMAGES[damage]
    harm(bundle_folder)
    before = _bytes(bundle_folder)
    with pytest.raises(BundleError) as caught:
        Bundle.open(bundle_folder)
    assert str(bundle_folder) in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []
    assert _bytes(bundle_folder) == before


# Two SentencePiece models


@pytest.fixture
def separate(tmp_path: Path, tokenizer: Tokenizer, make_model: MakeModel, describe: Describe) -> Path:
    """A bundle whose tokenizer is that of a model made elsewhere, with a model for each language."""
    pieces = tokenizer.pieces(range(tokenizer.pad_id - 1))
    other = Tokenizer.train(["another text with other words"] * 20, 264, "bpe", shrink=True)
    made = Tokenizer.with_vocabulary(
        tokenizer.model_bytes, other.model_bytes, pieces[:-4], "made", source_only=pieces[-4:], target_only=[">x<"]
    )
    model = make_model(tied_embeddings="none", output_bias=True)
    save_bundle(tmp_path / "separate", model, made, describe(model))
    return tmp_path / "separate"


def test_a_bundle_may_have_two_tokenizers(separate: Path) -> None:
    bundle = Bundle.open(separate)
    names = {"tokenizer.model", "target_tokenizer.model", "vocabulary.json", "weights.safetensors"}
    assert set(bundle.description.files) == names
    found = bundle.load_tokenizer()
    assert found.files == {name: (separate / name).read_bytes() for name in names - {"weights.safetensors"}}
    assert Tokenizer.load(bundle.tokenizer_path).files == found.files
    assert found.vocabulary == bundle.model_config.vocabulary == 300
    assert found.encode("text") != found.encode_targets(["text"])[0]
    card = (separate / "README.md").read_text(encoding="utf-8")
    assert "`tokenizer.model` and `target_tokenizer.model`" in card


def test_the_file_of_one_tokenizer_is_named_by_its_path(bundle_folder: Path, tokenizer: Tokenizer) -> None:
    bundle = Bundle.open(bundle_folder)
    assert bundle.tokenizer_path == bundle_folder / "tokenizer.model"
    assert Tokenizer.load(bundle.tokenizer_path).files == Tokenizer.load(bundle_folder).files == tokenizer.files


def _replace_vocabulary(folder: Path) -> None:
    (folder / "vocabulary.json").write_bytes(b'{"shared": ["</s>"]}')
    _record(folder, "vocabulary.json")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda folder: (folder / "target_tokenizer.model").unlink(), "target_tokenizer.model: is missing"),
        (_flip("vocabulary.json"), "vocabulary.json: has the SHA-256"),
        (_replace_vocabulary, "cannot be read as a tokenizer: .*begins with"),
        (lambda folder: _edit(folder, lambda content: content["files"].pop("vocabulary.json")), "optionally with .*"),
        (
            lambda folder: _edit(folder, lambda content: content["files"].update(x={"bytes": 0, "sha256": "0" * 64})),
            "it lists the files",
        ),
    ],
)
def test_damage_to_two_tokenizers_is_refused(separate: Path, harm: Harm, words: str) -> None:
    harm(separate)
    with pytest.raises(BundleError, match=words):
        Bundle.open(separate)


def test_what_is_verified_and_fails_is_not_put_in_place(
    bundle_folder: Path, tokenizer: Tokenizer, make_model: MakeModel, describe: Describe
) -> None:
    before = _bytes(bundle_folder)
    model = make_model(num_decoder_layers=1)
    seen = []

    def verify(folder: Path) -> None:
        seen.append(Bundle.open(folder).model_config)
        raise BundleError("not good enough")

    with pytest.raises(BundleError, match="not good enough"):
        save_bundle(bundle_folder, model, tokenizer, describe(model), verify)
    assert seen == [model.config]
    assert _bytes(bundle_folder) == before
    assert [path.name for path in bundle_folder.parent.iterdir()] == [bundle_folder.name]


def test_a_tokenizer_of_another_size_is_refused(bundle_folder: Path) -> None:
    def widen(tensors: dict[str, Tensor]) -> None:
        name = "source_embedding.weight"
        tensors[name] = torch.cat([tensors[name], torch.zeros(1, 8)])

    _rewrite_weights(bundle_folder, widen)
    _edit(bundle_folder, lambda content: content["model"].update(vocabulary=301))
    with pytest.raises(BundleError, match=r"tokenizer\.model: the tokenizer has 300 token ids, its model 301"):
        Bundle.open(bundle_folder)


def test_a_change_after_opening_is_noticed(bundle_folder: Path) -> None:
    bundle = Bundle.open(bundle_folder)
    _rewrite_weights(bundle_folder, lambda tensors: tensors.pop(max(tensors)))
    with pytest.raises(BundleError, match=r"weights\.safetensors"):
        bundle.load_model()


def test_other_weights_of_the_same_shape_are_noticed(bundle_folder: Path) -> None:
    bundle = Bundle.open(bundle_folder)
    _rewrite_weights(bundle_folder, lambda tensors: tensors[max(tensors)].neg_())
    with pytest.raises(BundleError, match=r"weights\.safetensors"):
        bundle.load_model()
    assert Bundle.open(bundle_folder).load_model()


@pytest.mark.parametrize("look", [Bundle.open, find_bundle])
def test_what_is_no_bundle_is_said(tmp_path: Path, look: Callable[[Path], object]) -> None:
    (tmp_path / "file").write_text("text", encoding="utf-8")
    for folder, *files in (("hugging", "config.json"), ("ct2", "config.json", "model.bin"), ("onnx", "encoder.onnx")):
        (tmp_path / folder).mkdir()
        for file in files:
            (tmp_path / folder / file).write_text("{}", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, words in {
        "nowhere": "there is no such folder",
        "pipe": "is neither a folder nor a regular file",
        "file": "is a file",
        "hugging": r"bundle\.json.*has config\.json, .* Hugging Face .*; import it: transduce import \S*/hugging",
        "ct2": r"has model\.bin, as a model for CTranslate2 has; import it: transduce import \S*/ct2 --output FOLDER",
        "onnx": r"has encoder\.onnx, as a model for ONNX Runtime has; give the bundle that it was exported",
        "empty": "is not a bundle: looked for .*bundle.json",
    }.items():
        with pytest.raises(BundleError, match=rf"{name}: .*{words}"):
            look(tmp_path / name)


# Finding


def test_best_comes_before_last(tmp_path: Path, save: Save) -> None:
    save(tmp_path / "last")
    assert find_bundle(tmp_path) == tmp_path / "last"
    save(tmp_path / "best")
    assert find_bundle(tmp_path) == tmp_path / "best"
    assert find_bundle(tmp_path / "last") == tmp_path / "last"


def test_all_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError) as caught:
        find_bundle(tmp_path)
    for place in ("bundle.json", "best/bundle.json", "last/bundle.json"):
        assert str(tmp_path / place) in str(caught.value)


# Saving


def test_a_bundle_replaces_a_bundle_and_leaves_no_trace(bundle_folder: Path, save: Save) -> None:
    save(bundle_folder, num_encoder_layers=2)
    assert Bundle.open(bundle_folder).model_config.num_encoder_layers == 2
    assert [path.name for path in bundle_folder.parent.iterdir()] == ["bundle"]


def test_another_folder_is_not_replaced(tmp_path: Path, save: Save) -> None:
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(OutputError, match="contains other files"):
        save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_does_not_belong_together_is_not_saved(
    tmp_path: Path, make_model: MakeModel, tokenizer: Tokenizer, describe: Describe
) -> None:
    model, other = make_model(), make_model(d_ff=13)
    with pytest.raises(BundleError, match="differ in d_ff"):
        save_bundle(tmp_path / "bundle", model, tokenizer, describe(other))
    with pytest.raises(BundleError, match=r"the model to save: .* is float16"):
        save_bundle(tmp_path / "bundle", make_model().half(), tokenizer, describe(model))
    small = make_model(vocabulary=299)
    with pytest.raises(BundleError, match="300 token ids, its model 299"):
        save_bundle(tmp_path / "bundle", small, tokenizer, describe(small))
    assert not (tmp_path / "bundle").exists()


DISK_FULL = """
import resource, sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from transduce.bundle import Bundle, save_bundle
from transduce.errors import TransduceError
bundle = Bundle.open(Path(sys.argv[1]))
model, tokenizer = bundle.load_model(), bundle.load_tokenizer()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))
try:
    save_bundle(Path(sys.argv[1]), model, tokenizer, bundle.description)
except TransduceError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit on the size of files")
def test_a_full_disk_leaves_the_old_bundle(bundle_folder: Path) -> None:
    before = _bytes(bundle_folder)
    command = [sys.executable, "-c", DISK_FULL, str(bundle_folder), "1000"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.stdout.startswith(f"WriteError {bundle_folder}: could not be written"), finished.stderr
    assert _bytes(bundle_folder) == before
    assert [path.name for path in bundle_folder.parent.iterdir()] == ["bundle"]


# Nothing that can run


def test_no_file_is_a_pickle(bundle_folder: Path) -> None:
    for path in bundle_folder.iterdir():
        content = path.read_bytes()
        assert not content.startswith((b"\x80", b"PK"))
        with pytest.raises(ValueError):  # noqa: PT011 - whatever the reader of pickles says, it finds none
            list(pickletools.genops(content))


def test_the_source_knows_no_pickle() -> None:
    for path in (Path(transduce.__file__).parent / "bundle").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not [word for word in ("pickle", "torch.load", "torch.save") if word in text], path


@pytest.mark.parametrize(("folder", "name"), [("mine", "mine"), ("runs/mine/best", "mine"), ("runs/mine/last", "mine")])
def test_a_model_has_the_name_of_its_folder_or_of_its_run(tmp_path: Path, folder: str, name: str) -> None:
    assert name_model(tmp_path / folder) == name
