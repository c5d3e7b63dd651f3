import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.bundle import Bundle, BundleDescription, Languages, model_tensors, save_bundle
from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import ParityError
from transduce.interop.export import prove_export
from transduce.interop.formats import ExportFormat, render_card
from transduce.interop.marian import export_format as marian_format
from transduce.interop.marian.export_format import FORMAT
from transduce.interop.marian.files import read_archive, read_vocabulary
from transduce.interop.marian.runtime import find_marian
from transduce.interop.probe import make_probe
from transduce.interop.proof import Claim
from transduce.model import NEVER, Transformer
from transduce.text import Tokenizer
from transduce.translation import ForcedDecoder, Translator

pytest.importorskip("ctranslate2")


def card(*, is_joint: bool, **languages: str) -> str:
    search = SearchConfig(max_pieces=77, length_penalty=0.9)
    description = BundleDescription(model=TransformerConfig(), search=search, languages=Languages(**languages))
    return render_card(marian_format.__file__, description, "float16", is_joint=is_joint)


def test_it_says_what_the_model_is() -> None:
    text = card(is_joint=True, source="en", target="no")
    assert text.startswith("# Translation model for Marian, from en to no\n")
    assert "weights in float16" in text
    assert "at most 77 pieces" in text
    assert "n^0.9" in text
    assert card(is_joint=True).startswith("# Translation model for Marian\n")


def test_files_are_named_that_are_there() -> None:
    joint, separate = card(is_joint=True), card(is_joint=False)
    assert "vocab.spm" in joint
    assert "target_tokenizer.model" not in joint
    assert "vocab.spm" not in separate
    assert "target_tokenizer.model" in separate
    assert all("{" not in text.replace('f"{', "") for text in (joint, separate))


needs_marian = pytest.mark.skipif(find_marian() is None, reason="the package pymarian, with Marian, is not installed")


@pytest.fixture(params=["CTranslate2", pytest.param("Marian", marks=needs_marian)])
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two programs that can prove an export, as if the other was not there."""
    if request.param == "CTranslate2":
        monkeypatch.setattr(marian_format, "find_marian", lambda: None)
    return str(request.param)


@pytest.fixture
def separate(
    tokenizer: Tokenizer, random_model: Callable[..., Transformer], make_bundle: Callable[..., Bundle], tmp_path: Path
) -> Bundle:
    """A bundle with a SentencePiece model for each language, and pieces that one side lacks, as imported ones have."""
    pieces = tokenizer.pieces(range(tokenizer.pad_id))
    model = tokenizer.model_bytes
    own = Tokenizer.with_vocabulary(model, model, pieces[:290], "test", source_only=[*pieces[290:-1], ">>fra<<"])
    network = random_model(output_bias=True, tied_embeddings="two_way")
    with torch.no_grad():
        network.projection.bias[2:258] = NEVER  # bytes, of which a random network makes no text
        network.projection.bias[290:-1] = NEVER
    description = make_bundle().description.model_copy(update={"model": network.config})
    save_bundle(tmp_path / "separate", network, own, description)
    return Bundle.open(tmp_path / "separate")


def written(bundle: Bundle, folder: Path, precision: str = "float32") -> Path:
    folder.mkdir()
    FORMAT.write(bundle, folder, precision)
    return folder


def test_it_is_a_format() -> None:
    assert isinstance(FORMAT, ExportFormat)
    assert FORMAT.precisions[0] == "float32"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm_order": "pre"},
        {"tied_embeddings": "two_way", "activation": "swish"},
        {"tied_embeddings": "none", "output_bias": True, "norm_order": "pre"},
        {"output_bias": True, "num_heads": 1},
        {"positions": "learned", "max_positions": 30},
        {"positions": "none", "num_encoder_layers": 1, "num_decoder_layers": 3},
    ],
    ids=str,
)
def test_both_programs_compute_the_same(
    make_bundle: Callable[..., Bundle], tmp_path: Path, program: str, settings: dict[str, Any]
) -> None:
    bundle = make_bundle(**settings)
    assert FORMAT.obstacles(bundle) == []
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    probe = make_probe(decoder, num_sentences=14)
    parity = prove_export(
        decoder, FORMAT, written(bundle, tmp_path / "out"), probe, Claim("marian", "float32", bundle.digest)
    )
    assert parity.theirs.startswith(program)
    assert parity.largest_difference < 2e-5
    assert parity.identical_greedy == parity.identical_tokenizations == 14
    assert parity.identical_weights == len(model_tensors(decoder.model))


def test_numbers_of_16_bits_are_close(make_bundle: Callable[..., Bundle], tmp_path: Path, program: str) -> None:
    bundle = make_bundle(d_model=32, num_heads=4, d_ff=64, tied_embeddings="none", output_bias=True)
    exact, folder = written(bundle, tmp_path / "exact"), written(bundle, tmp_path / "half", "float16")
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    probe = make_probe(decoder, num_sentences=14)
    parity = prove_export(decoder, FORMAT, folder, probe, Claim("marian", "float16", bundle.digest))
    assert parity.theirs.startswith(program)
    assert parity.largest_difference > 1e-4
    assert parity.identical_weights == len(model_tensors(decoder.model))  # rounding apart
    old, new = (read_archive(folder / name).arrays for name in ("model.npz", "transformer-new.npz"))
    table = read_archive(exact / "model.npz").arrays["Wpos"]
    assert torch.equal(old["Wpos"], table)
    assert torch.equal(new["TransformerBatchDecoder->decoder->positionEmbedding->embeddings"], table)


def test_a_tokenizer_for_each_language_travels_too(separate: Bundle, tmp_path: Path, program: str) -> None:
    decoder = ForcedDecoder.from_bundle(separate, device="cpu")
    assert not decoder.tokenizer.is_joint
    probe = make_probe(decoder, num_sentences=14)
    claim = Claim("marian", "float32", separate.digest)
    parity = prove_export(decoder, FORMAT, written(separate, tmp_path / "out"), probe, claim)
    assert parity.theirs.startswith(program)
    assert parity.identical_greedy == parity.identical_tokenizations == 14
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"target_tokenizer.model", "vocabulary.json", "source.vocab.yml", "target.vocab.yml"} <= found
    assert not {"vocab.spm", "vocab.yml"} & found


def test_a_piece_that_a_side_never_has_is_unknown_to_it(separate: Bundle, tmp_path: Path) -> None:
    folder, tokenizer = written(separate, tmp_path / "out"), separate.load_tokenizer()
    source, target = (read_vocabulary(folder / f"{side}.vocab.yml", 309) for side in ("source", "target"))
    assert source[:290] == target[:290]
    assert source[308] == ">>fra<<"
    assert target[290:] == [f"<id {row}>" for row in range(290, 309)]
    texts = [">>fra<< sun moon", "sun >>fra<<"]
    expected = [[*row, 1] for row in tokenizer.encode_all(texts)]
    assert FORMAT.load(folder, tokenizer).encode(texts) == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"attention_score": "dot"}, 'attention_score = "dot"'),
        ({"attention_score": "additive"}, 'attention_score = "additive"'),
        ({"normalization": "batch"}, "normalization"),
        ({"d_k": 4, "d_v": 8}, "d_k = 4, d_v = 8"),
        ({"d_k": 5, "d_v": 5}, "d_k = 5, d_v = 5"),
        ({"activation": "gelu"}, "activation"),
    ],
)
def test_what_marian_has_no_word_for_is_an_obstacle(
    make_bundle: Callable[..., Bundle], settings: dict[str, Any], words: str
) -> None:
    (obstacle,) = FORMAT.obstacles(make_bundle(**settings))
    assert obstacle.startswith(words)


def test_two_of_everything_that_marian_wants(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    folder = written(bundle, tmp_path / "out")
    names = {
        "README.md",
        "decoder.yml",
        "model.npz",
        "tokenizer.model",
        "transformer-new.npz",
        "vocab.spm",
        "vocab.yml",
    }
    assert {path.name for path in folder.iterdir()} == names
    old, new = (read_archive(folder / name) for name in ("model.npz", "transformer-new.npz"))
    assert old.settings.text("type") == "transformer"
    assert new.settings.text("type") == "transformer-new"
    assert len(old.arrays["Wemb"]) == bundle.model_config.vocabulary - 1
    tables = [array for name, array in new.arrays.items() if "positionEmbedding" in name]
    assert [torch.equal(table, old.arrays["Wpos"]) for table in tables] == [True, True]
    assert str(len(tables[0])) == new.settings.text("max-length")


def test_writing_again_gives_the_same_bytes(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    one, other = written(bundle, tmp_path / "one"), written(bundle, tmp_path / "other")
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes(), path.name


@needs_marian
def test_marian_translates_plain_text_by_the_decoder_file(make_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle()
    folder = written(bundle, tmp_path / "out")
    (command,) = re.findall(r"^pymarian (.*) < texts", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    texts = ["sun moon river", "", "fish"]
    done = subprocess.run(
        [str(find_marian()), *command.split(), "--beam-size", "1", "--quiet", "--allow-special"],
        cwd=folder,
        input="".join(f"{text}\n" for text in texts),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    translator = Translator.load(bundle.folder, device="cpu", precision="float32").with_search({"beam": 1})
    expected = translator.translate(texts)
    found = done.stdout.split("\n")[:-1]
    assert len(found) == 3
    assert found[1] == ""
    # The network is random and knows no end: each program breaks off elsewhere.
    assert [theirs.startswith(ours[: len(theirs)]) for ours, theirs in zip(expected, found, strict=True)] == [True] * 3
    assert min(len(found[0]), len(found[2])) > 5


@needs_marian
def test_the_lines_for_separate_tokenizers_run(separate: Bundle, tmp_path: Path) -> None:
    folder = written(separate, tmp_path / "out")
    (program,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    program = program.replace('["One sentence.", "And another."]', '["sun moon", "fish"]')
    assert "sun moon" in program
    path = os.pathsep.join([str(Path(str(find_marian())).parent), os.environ["PATH"]])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PATH": path}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=True, env=environment)
    assert len(ast.literal_eval(done.stdout)) == 2


def test_the_converter_is_called_as_the_readme_says(
    make_bundle: Callable[..., Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ctranslate2.converters import marian

    folder = written(make_bundle(), tmp_path / "out")
    text = (folder / "README.md").read_text(encoding="utf-8")
    (arguments,) = re.findall(r"`ct2-marian-converter (.*?)`", text)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["ct2-marian-converter", *arguments.split()])
    marian.main()
    assert (folder / "converted" / "model.bin").is_file()


@pytest.mark.parametrize("name", ["Wemb", "decoder_ff_logit_out_b"])
def test_the_newer_file_is_compared_whichever_program_proves_the_export(
    make_bundle: Callable[..., Bundle], tmp_path: Path, name: str
) -> None:
    folder = written(make_bundle(), tmp_path / "written")
    assert FORMAT.read_back(folder)
    with np.load(folder / "transformer-new.npz", allow_pickle=False) as file:
        arrays = {key: file[key].copy() for key in file.files}
    arrays[name][0, 3] = 1.01 * arrays[name][0, 3] + 0.01
    np.savez(folder / "transformer-new.npz", **arrays)
    with pytest.raises(ParityError, match=f"transformer-new.npz: {name} is not what model.npz has"):
        FORMAT.read_back(folder)
