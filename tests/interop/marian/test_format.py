import ast
import gc
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch

from transduce.bundle import Bundle, BundleDescription, Languages, collect_model_tensors, load_tensors, save_bundle
from transduce.config import SearchConfig, TransformerConfig
from transduce.errors import BundleError, MissingExtraError, ParityError, TransduceError, UserError
from transduce.interop import marian as marian_format
from transduce.interop.ctranslate2.runtime import CTranslate2Runtime
from transduce.interop.export_import import prove_export
from transduce.interop.formats import ExportFormat, ImportedModel, ImportFormat, Runtime, render_export_card
from transduce.interop.marian import FORMAT, MarianRuntime, find_marian, find_model_paths, load_converted
from transduce.interop.marian.files import read_archive, read_vocabulary, write_archive, write_vocabulary
from transduce.interop.parity import Claim, measure
from transduce.interop.probe_sentences import make_probe
from transduce.model import EXCLUDED_TOKEN_BIAS, Transformer
from transduce.text import Tokenizer
from transduce.translation import ForcedDecoder, Translator, score_ids

pytest.importorskip("ctranslate2")


def card(*, is_joint: bool, no_repeat_ngram: int = 0, **languages: str) -> str:
    search = SearchConfig(max_pieces=77, length_penalty=0.9, no_repeat_ngram=no_repeat_ngram)
    description = BundleDescription(model=TransformerConfig(), search=search, languages=Languages(**languages))
    return render_export_card(marian_format.__file__, description, "float16", is_joint=is_joint, tags=[])


def test_it_says_what_the_model_is() -> None:
    text = card(is_joint=True, source="en", target="no")
    assert text.startswith("# Translation model for Marian, from en to no\n")
    assert "weights in float16" in text
    assert "at most 77 pieces" in text
    assert "n^0.9" in text
    assert card(is_joint=True).startswith("# Translation model for Marian\n")


def test_it_says_that_marian_may_repeat_ngrams() -> None:
    assert "Marian does not\nhave that" not in card(is_joint=True)
    assert "no 4 tokens occur twice" in card(is_joint=True, no_repeat_ngram=4)


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
        network.projection.bias[2:258] = EXCLUDED_TOKEN_BIAS  # bytes, of which a random network makes no text
        network.projection.bias[290:-1] = EXCLUDED_TOKEN_BIAS
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


@pytest.mark.exhaustive
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
    assert FORMAT.find_unsupported_features(bundle) == []
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    probe = make_probe(decoder, num_sentences=14)
    parity = prove_export(
        decoder, FORMAT, written(bundle, tmp_path / "out"), probe, Claim("marian", "float32", bundle.digest)
    )
    assert parity.theirs.startswith(program)
    assert parity.largest_difference < 2e-5
    assert parity.identical_greedy == parity.identical_tokenizations == 14
    assert parity.identical_weights == len(collect_model_tensors(decoder.model))


def test_numbers_of_16_bits_are_close(make_bundle: Callable[..., Bundle], tmp_path: Path, program: str) -> None:
    bundle = make_bundle(d_model=32, num_heads=4, d_ff=64, tied_embeddings="none", output_bias=True)
    exact, folder = written(bundle, tmp_path / "exact"), written(bundle, tmp_path / "half", "float16")
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    probe = make_probe(decoder, num_sentences=14)
    parity = prove_export(decoder, FORMAT, folder, probe, Claim("marian", "float16", bundle.digest))
    assert parity.theirs.startswith(program)
    assert parity.largest_difference > 1e-4
    assert parity.identical_weights == len(collect_model_tensors(decoder.model))  # rounding apart
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
        ({"normalization": "rms"}, 'normalization = "rms"'),
        ({"feed_forward": "gated"}, 'feed_forward = "gated"'),
        ({"positions": "rotary"}, 'positions = "rotary"'),
        ({"positions": "relative"}, 'positions = "relative"'),
        ({"d_k": 4, "d_v": 8}, "d_k = 4, d_v = 8"),
        ({"d_k": 5, "d_v": 5}, "d_k = 5, d_v = 5"),
        ({"activation": "gelu"}, "activation"),
    ],
)
def test_what_marian_has_no_word_for_is_an_obstacle(
    make_bundle: Callable[..., Bundle], settings: dict[str, Any], words: str
) -> None:
    (obstacle,) = FORMAT.find_unsupported_features(make_bundle(**settings))
    assert obstacle.startswith(words)


def test_tags_are_an_obstacle_where_marian_divides_texts(tagged_bundle: Bundle, separate: Bundle) -> None:
    (obstacle,) = FORMAT.find_unsupported_features(tagged_bundle)
    assert obstacle.startswith("the tokenizer has tags (>>de<<, >>fr<<), which Marian spells like words")
    assert FORMAT.find_unsupported_features(separate) == []


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
    program = program.replace('[">>fra<< One sentence.", ">>fra<< And another."]', '["sun moon", ">>fra<< fish"]')
    assert "sun moon" in program
    path = os.pathsep.join([str(Path(str(find_marian())).parent), os.environ["PATH"]])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PATH": path}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=True, env=environment)
    assert len(ast.literal_eval(done.stdout)) == 2


def test_the_lines_for_separate_tokenizers_read_tags(separate: Bundle, tmp_path: Path) -> None:
    folder, tokenizer = written(separate, tmp_path / "out"), separate.load_tokenizer()
    (program,) = re.findall(r"```python\n(.*?)command =", (folder / "README.md").read_text("utf-8"), re.DOTALL)
    texts = [">>fra<< One sentence.", " >>fra<<sun", ">>no<< sun"]
    command = [sys.executable, "-c", f"{program}\nprint(texts, [encode(text) for text in {texts}], sep=chr(10))"]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=True)
    shown, pieces = map(ast.literal_eval, done.stdout.splitlines())
    assert shown == [">>fra<< One sentence.", ">>fra<< And another."]
    for text, row in zip(texts, pieces, strict=True):
        ids = tokenizer.encode(text)
        assert [one if index else "<unk>" for one, index in zip(row, ids, strict=True)] == tokenizer.pieces(ids)


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
    with pytest.raises(ParityError, match=f"transformer-new.npz: {name} differs from model.npz"):
        FORMAT.read_back(folder)


pytest.importorskip("ctranslate2")


def make(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def names(path: Path) -> list[str]:
    places = find_model_paths(path)
    return [one.name for one in (places.model, *places.vocabularies)]


def test_decoder_yml_says_what_belongs_together(tmp_path: Path) -> None:
    # As OPUS-MT publishes models; of paths, only the names count.
    text = "relative-paths: true\nmodels:\n  - ../b.npz\nvocabs:\n  - /x/s.yml\n  - t.spm\nbeam-size: 6\n"
    folder = make(tmp_path, a__npz="", b__npz="", s__yml="", t__spm="", decoder__yml=text)
    assert names(folder) == ["b.npz", "s.yml", "t.spm"]
    assert names(folder / "a.npz") == ["a.npz", "s.yml", "t.spm"]
    assert find_model_paths(folder).decoder.text("beam-size") == "6"


def test_the_file_that_training_leaves_serves_too(tmp_path: Path) -> None:
    folder = make(
        tmp_path, m__npz="", vocab__spm="", m__npz__yml="", m__npz__decoder__yml="vocabs: [vocab.spm, u.yml]\n"
    )
    assert names(folder) == ["m.npz", "vocab.spm", "u.yml"]


def test_what_has_the_usual_name_is_found_without(tmp_path: Path) -> None:
    folder = make(tmp_path, model__npz="", other__npz="", vocab__spm="", vocab__yml="", README__md="")
    assert names(folder) == ["model.npz", "vocab.spm", "vocab.spm"]
    (folder / "vocab.spm").unlink()
    assert names(folder) == ["model.npz", "vocab.yml", "vocab.yml"]
    (folder / "model.npz").unlink()
    assert names(folder) == ["other.npz", "vocab.yml", "vocab.yml"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a__npz": "", "b__npz": ""}, r"has 2 models \(a\.npz, b\.npz\): give the file"),
        ({"a__npz": ""}, r"has no vocabulary: .* --tokenizer"),
        (
            {"a__npz": "", "vocab__en__yml": "", "vocab__de__yml": ""},
            r"2 vocabularies \(vocab\.de\.yml, vocab\.en\.yml\)",
        ),
        ({"a__npz": "", "decoder__yml": "vocabs: [a, b, c]"}, r"decoder\.yml: names 3 vocabularies"),
        ({"a__npz": "", "decoder__yml": "nonsense"}, r"decoder\.yml, line 1"),
    ],
)
def test_what_nobody_says_is_asked(tmp_path: Path, files: dict[str, str], words: str) -> None:
    with pytest.raises(BundleError, match=words):
        find_model_paths(make(tmp_path, **files))


def test_a_decoder_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (make(tmp_path, a__npz="") / "decoder.yml").write_bytes(b"\xff")
    with pytest.raises(BundleError, match=r"decoder\.yml: cannot be read"):
        find_model_paths(tmp_path)


ENGLISH = ("a small dog runs over the meadow", "the old man reads a book", "two birds sing in the tall tree")
GERMAN = ("ein kleiner hund läuft über die wiese", "der alte mann liest ein buch", "zwei vögel singen im hohen baum")
TEXTS = [*ENGLISH, "the dog  sings ☃ 漢字", "Zwei, alte ... BOOK!"]
D_MODEL, D_FF = 16, 24


@cache
def sentencepiece_model(sentences: tuple[str, ...]) -> bytes:
    """As Marian trains it: `</s>` is 0, `<unk>` is 1."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        minloglevel=2,
    )
    return model.getvalue()


def pieces_of(sentences: tuple[str, ...]) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(sentences))
    return [processor.id_to_piece(index) for index in range(processor.get_piece_size())]


def settings_text(**settings: object) -> str:
    """As Marian writes it: names in order, lists below each other."""
    usual = {
        "dec-depth": 1,
        "dim-emb": D_MODEL,
        "enc-depth": 2,
        "tied-embeddings": False,
        "tied-embeddings-all": False,
        "tied-embeddings-src": False,
        "transformer-decoder-autoreg": "self-attention",
        "transformer-dim-ffn": D_FF,
        "transformer-ffn-activation": "swish",
        "transformer-ffn-depth": 2,
        "transformer-heads": 2,
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": '""',
        "transformer-preprocess": '""',
        "transformer-tied-layers": "\n  []",
        "type": "transformer",
    }
    chosen = usual | {name.replace("_", "-"): value for name, value in settings.items()}
    return "".join(f"{name}: {json.dumps(v) if v is True or v is False else v}\n" for name, v in sorted(chosen.items()))


def arrays_of(num_sources: int, num_targets: int, tied: str, *, pre: bool) -> dict[str, torch.Tensor]:
    """Random ones by Marian's names; of what the type `transformer` needs."""
    torch.manual_seed(0)
    shapes: dict[str, tuple[int, int]] = {"decoder_ff_logit_out_b": (1, num_targets)}
    if tied == "all":
        shapes["Wemb"] = (num_sources, D_MODEL)
    else:
        shapes |= {"encoder_Wemb": (num_sources, D_MODEL), "decoder_Wemb": (num_targets, D_MODEL)}
    if tied == "none":
        shapes["decoder_ff_logit_out_W"] = (D_MODEL, num_targets)
    suffix = "_pre" if pre else ""
    for layer, attentions in {"encoder_l1": "s", "encoder_l2": "s", "decoder_l1": "sc"}.items():
        for attention in ("self", "context")[: len(attentions)]:
            for one in "qkvo":
                shapes |= {
                    f"{layer}_{attention}_W{one}": (D_MODEL, D_MODEL),
                    f"{layer}_{attention}_b{one}": (1, D_MODEL),
                }
            shapes |= {f"{layer}_{attention}_Wo_ln_{one}{suffix}": (1, D_MODEL) for one in ("scale", "bias")}
        shapes |= {f"{layer}_ffn_W1": (D_MODEL, D_FF), f"{layer}_ffn_b1": (1, D_FF)}
        shapes |= {f"{layer}_ffn_W2": (D_FF, D_MODEL), f"{layer}_ffn_b2": (1, D_MODEL)}
        shapes |= {f"{layer}_ffn_ffn_ln_{one}{suffix}": (1, D_MODEL) for one in ("scale", "bias")}
    if pre:
        shapes |= {
            f"{stack}_top_ln_{one}": (1, D_MODEL) for stack in ("encoder", "decoder") for one in ("scale", "bias")
        }
    return {name: torch.randn(shape) * 0.4 + ("ln_scale" in name) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """A model as OPUS-MT publishes it: YAML vocabularies, source.spm and target.spm, decoder.yml."""

    def make(tied: str = "all", *, separate: bool = False, **settings: Any) -> Path:
        path = tmp_path / "model"
        path.mkdir()
        source, target = (["</s>", "<unk>", *pieces_of(side)[2:]] for side in (ENGLISH, GERMAN))
        if not separate:
            source = target = list(dict.fromkeys([*source, *target, ">>deu<<", ">>fra<<"]))
        for name, pieces, sentences in (("source", source, ENGLISH), ("target", target, GERMAN)):
            write_vocabulary(path / f"{name}.yml", pieces)
            (path / f"{name}.spm").write_bytes(sentencepiece_model(sentences))
        # One row more than there are pieces, as where the number was rounded up.
        arrays = arrays_of(len(source) + 1, len(target) + 1, tied, pre=settings.get("transformer_preprocess") == "n")
        flags = {"all": {"tied_embeddings_all": True}, "two": {"tied_embeddings": True}, "none": {}}[tied]
        sizes = f"\n  - {len(source) + 1}\n  - {len(target) + 1}"
        write_archive(path / "opus.npz", settings_text(dim_vocabs=sizes, **flags, **settings), arrays)
        lines = [
            "models:",
            "  - opus.npz",
            "vocabs:",
            "  - source.yml",
            "  - target.yml",
            "beam-size: 6",
            "normalize: 1",
        ]
        (path / "decoder.yml").write_text("\n".join(lines), encoding="utf-8")
        return path

    return make


def decoder_of(imported: ImportedModel) -> ForcedDecoder:
    model = Transformer(imported.config)
    load_tensors(model, imported.tensors, "imported")
    return ForcedDecoder(model.eval(), imported.tokenizer, imported.search)


PRE = {"transformer_preprocess": "n", "transformer_postprocess": "da", "transformer_postprocess_top": "n"}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"tied": "two", "separate": True, "transformer_ffn_activation": "relu"},
    {"tied": "none", "separate": True, **PRE},
    {"tied": "none", **PRE},
]


def test_models_are_recognised() -> None:
    assert isinstance(FORMAT, ImportFormat)


def test_what_it_recognises(folder: Callable[..., Path], tmp_path: Path) -> None:
    path = folder()
    assert FORMAT.recognises(path)
    assert FORMAT.recognises(path / "opus.npz")
    assert not FORMAT.recognises(path / "decoder.yml")
    assert not FORMAT.recognises(tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_ctranslate2_computes_the_same(folder: Callable[..., Path], settings: dict[str, Any]) -> None:
    imported = FORMAT.read(folder(**settings), None)
    assert "converter of Marian models" in imported.runtime.name
    measured = measure(decoder_of(imported), imported.runtime, TEXTS)
    assert max(map(max, measured.differences)) < 1e-5
    assert measured.gaps == {}
    assert imported.runtime.encode(TEXTS) == measured.sources
    assert (imported.search.beam, imported.search.length_penalty) == (6, 1.0)


@needs_marian
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_marian_itself_computes_the_same(folder: Callable[..., Path], tmp_path: Path, settings: dict[str, Any]) -> None:
    path = folder(**settings)
    imported = FORMAT.read(path, None)
    tokenizer, targets = imported.tokenizer, [*GERMAN, GERMAN[1], GERMAN[0]]
    rows = tokenizer.encode_all(TEXTS), tokenizer.encode_targets(targets)
    for name, side in zip(("source", "target"), rows, strict=True):
        lines = [" ".join(tokenizer.pieces(row)) + "\n" for row in side]
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    found = marian_scores(path, [tmp_path / "source", tmp_path / "target"])
    ends = ([[*row, 1] for row in side] for side in rows)
    expected = [one.token_scores for one in score_ids(decoder_of(imported), *ends)]
    assert list(map(len, found)) == list(map(len, expected))
    for ours, theirs in zip(expected, found, strict=True):
        # Five decimals, and 1e-6 added to variances instead of 1e-5.
        assert ours == pytest.approx(theirs, abs=2e-4)


def marian_scores(path: Path, texts: Sequence[Path]) -> list[list[float]]:
    command = [str(find_marian()), "score", "--model", str(path / "opus.npz"), "--word-scores", "--quiet"]
    command += [
        "--vocabs",
        str(path / "source.yml"),
        str(path / "target.yml"),
        "--cpu-threads",
        "1",
        "--workspace",
        "64",
    ]
    command += ["--train-sets", *map(str, texts)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    return [[float(score) for score in line.partition("WordScores=")[2].split()] for line in done.stdout.splitlines()]


def test_separate_vocabularies_become_one(folder: Callable[..., Path]) -> None:
    path = folder("two", separate=True)
    imported = FORMAT.read(path, None)
    pieces = imported.tokenizer.pieces(range(imported.tokenizer.pad_id))
    source, target = pieces_of(ENGLISH), pieces_of(GERMAN)
    assert pieces[:2] == ["<unk>", "</s>"]
    assert set(pieces) == {*source, *target, *(one for one in pieces if one.startswith("<id "))}
    is_never = (imported.tensors["projection.bias"][:-1] == EXCLUDED_TOKEN_BIAS).tolist()
    assert [piece for piece, never in zip(pieces, is_never, strict=True) if never] == [
        piece for piece in pieces if (piece in source and piece not in target) or piece == f"<id {len(source)}>"
    ]
    arrays = read_archive(path / "opus.npz").arrays
    alone = next(piece for piece in target if piece not in source)
    place = pieces.index(alone)
    assert not imported.tensors["source_embedding.weight"][place].any()
    assert torch.equal(
        imported.tensors["target_embedding.weight"][place].sort().values,
        arrays["decoder_Wemb"][target.index(alone)].sort().values,
    )


def test_a_vocabulary_can_be_a_sentencepiece_model(tmp_path: Path) -> None:
    model = sentencepiece_model(ENGLISH)
    (tmp_path / "vocab.spm").write_bytes(model)
    pieces = pieces_of(ENGLISH)
    write_archive(
        tmp_path / "m.npz",
        settings_text(tied_embeddings_all=True),
        arrays_of(len(pieces), len(pieces), "all", pre=False),
    )
    imported = FORMAT.read(tmp_path / "m.npz", None)
    assert imported.config.tied_embeddings == "three_way"
    expected = sentencepiece.SentencePieceProcessor(model_proto=model).encode(TEXTS, out_type=str)
    found = imported.tokenizer.encode_all(TEXTS)
    unknown = [[piece if piece in pieces else "<unk>" for piece in row] for row in expected]
    assert [imported.tokenizer.pieces(row) for row in found] == unknown


def test_a_vocabulary_can_be_given_as_the_tokenizer(tmp_path: Path) -> None:
    pieces = pieces_of(ENGLISH)
    arrays = arrays_of(len(pieces), len(pieces), "all", pre=False)
    (tmp_path / "elsewhere").mkdir()
    vocabulary = tmp_path / "elsewhere" / "v.spm"
    vocabulary.write_bytes(sentencepiece_model(ENGLISH))
    write_archive(tmp_path / "m.npz", settings_text(tied_embeddings_all=True), arrays)
    with pytest.raises(BundleError, match="has no vocabulary"):
        FORMAT.read(tmp_path / "m.npz", None)
    given = FORMAT.read(tmp_path / "m.npz", vocabulary)
    (tmp_path / "vocab.spm").write_bytes(vocabulary.read_bytes())
    beside = FORMAT.read(tmp_path / "m.npz", None)
    assert given.tokenizer.encode_all(TEXTS) == beside.tokenizer.encode_all(TEXTS)
    for name, tensor in beside.tensors.items():
        assert torch.equal(given.tensors[name], tensor)


def test_a_language_token_is_one(folder: Callable[..., Path]) -> None:
    imported = FORMAT.read(folder(), None)
    assert imported.tokenizer.pieces(imported.tokenizer.encode(">>fra<< a dog"))[0] == ">>fra<<"
    (encoded,) = imported.runtime.encode([">>fra<< a dog"]) or []
    assert encoded == [*imported.tokenizer.encode(">>fra<< a dog"), 1]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm_order": "pre", "positions": "learned", "max_positions": 30},
        {"tied_embeddings": "none", "output_bias": True, "activation": "swish", "positions": "none"},
    ],
    ids=str,
)
def test_what_was_exported_comes_back_bit_for_bit(
    make_bundle: Callable[..., Bundle], tmp_path: Path, settings: dict[str, Any]
) -> None:
    bundle = make_bundle(**settings)
    (tmp_path / "out").mkdir()
    FORMAT.write(bundle, tmp_path / "out", "float32")
    imported = FORMAT.read(tmp_path / "out", None)
    assert imported.config.model_copy(update={"max_positions": 0}) == bundle.model_config.model_copy(
        update={"max_positions": 0}
    )
    assert imported.tokenizer.model_bytes == bundle.load_tokenizer().model_bytes
    assert imported.tokenizer.is_joint
    expected = collect_model_tensors(bundle.load_model())
    assert imported.tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        kept = slice(None, -1) if name.startswith("projection") else slice(None)  # nobody asks for the logit of <pad>
        assert torch.equal(imported.tensors[name][kept], tensor[kept]), name


@pytest.mark.exhaustive
def test_a_model_with_two_tokenizers_goes_there_and_back(folder: Callable[..., Path], tmp_path: Path) -> None:
    first = FORMAT.read(folder("two", separate=True), None)
    description = BundleDescription(model=first.config)
    save_bundle(tmp_path / "bundle", decoder_of(first).model, first.tokenizer, description)
    (tmp_path / "out").mkdir()
    FORMAT.write(Bundle.open(tmp_path / "bundle"), tmp_path / "out", "float32")
    second = FORMAT.read(tmp_path / "out", None)
    assert second.config == first.config
    assert second.tokenizer.files == first.tokenizer.files
    assert all(torch.equal(second.tensors[name][:-1], tensor[:-1]) for name, tensor in first.tensors.items())
    measured = measure(decoder_of(second), second.runtime, TEXTS)
    assert max(map(max, measured.differences)) < 1e-5
    assert second.runtime.encode(TEXTS) == measured.sources
    vocabulary = (tmp_path / "out" / "vocabulary.json").read_text(encoding="utf-8")
    (tmp_path / "out" / "vocabulary.json").write_text(vocabulary.replace('"▁', '"_'), encoding="utf-8")
    with pytest.raises(BundleError, match=r"vocabulary\.json: does not have the pieces of source\.vocab\.yml"):
        FORMAT.read(tmp_path / "out", None)


def test_what_only_targets_have_is_unknown_in_a_source(folder: Callable[..., Path]) -> None:
    # SentencePiece leaves a letter that it does not know as it is, and so may be called a piece of the other side.
    imported = FORMAT.read(folder("two", separate=True), None)
    only = set(pieces_of(GERMAN)) - set(pieces_of(ENGLISH))
    (letter,) = [piece for piece in ("ä", "ü", "ö") if piece in only][:1]
    assert imported.runtime.encode([f"a {letter}"]) == [[*imported.tokenizer.encode(f"a {letter}"), 1]]
    assert 0 in imported.tokenizer.encode(f"a {letter}")


def change(path: Path, **arrays: torch.Tensor | None) -> Path:
    archive = read_archive(path / "opus.npz")
    changed = {name: array for name, array in {**archive.arrays, **arrays}.items() if array is not None}
    write_archive(path / "opus.npz", archive.text, changed)
    return path


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"encoder_l2_self_Wk": None}, "has no array 'encoder_l2_self_Wk'"),
        ({"Wemb": None}, "has no array 'Wemb'"),
        ({"encoder_l1_ffn_W1": None}, "has no array 'encoder_l1_ffn_W1'"),
        ({"encoder_l1_self_Wq": torch.ones(5, 16)}, "its arrays do not match"),
        ({"decoder_l1_context_enc2_Wq": torch.ones(1, 1)}, "unsupported arrays: decoder_l1_context_enc2_Wq"),
        ({"encoder_l1_self_bq": torch.ones(2, 2, 2)}, "encoder_l1_self_bq has 3 axes"),
        ({"encoder_l1_ffn_W1": torch.ones(16)}, "its arrays do not match"),
    ],
)
def test_arrays_that_do_not_fit_are_named(folder: Callable[..., Path], arrays: dict[str, Any], words: str) -> None:
    with pytest.raises(BundleError) as caught:
        FORMAT.read(change(folder(), **arrays), None)
    assert "opus.npz" in str(caught.value)
    assert words in str(caught.value)


def test_a_model_of_another_kind_is_refused(folder: Callable[..., Path]) -> None:
    with pytest.raises(BundleError, match=r"cannot be imported:\n  transformer-decoder-autoreg = 'rnn'"):
        FORMAT.read(folder(transformer_decoder_autoreg="rnn"), None)


def test_pieces_without_their_model_are_asked_for(folder: Callable[..., Path], tmp_path: Path) -> None:
    path = folder()
    (tmp_path / "given").mkdir()
    for name in ("source.spm", "target.spm"):
        (path / name).rename(tmp_path / "given" / name)
    with pytest.raises(UserError, match="give it with --tokenizer"):
        FORMAT.read(path, None)
    assert FORMAT.read(path, tmp_path / "given").tokenizer.encode("a dog")


def test_a_search_that_is_none_is_refused(folder: Callable[..., Path]) -> None:
    path = folder()
    text = (path / "decoder.yml").read_text(encoding="utf-8")
    (path / "decoder.yml").write_text(text.replace("beam-size: 6", "beam-size: many"), encoding="utf-8")
    with pytest.raises(BundleError, match=r"decoder\.yml: beam: Input should be a valid integer"):
        FORMAT.read(path, None)


def test_a_pickle_is_refused(folder: Callable[..., Path]) -> None:
    path = folder()
    np.savez(path / "opus.npz", **{"special:model.yml": np.array([{}], object)})
    with pytest.raises(BundleError, match="Object arrays cannot be loaded"):
        FORMAT.read(path, None)


SOURCES = [[50, 60, 1], [70, 71, 72, 73, 74, 1], [80, 1], [70, 71, 72, 73, 75, 1]]


@pytest.fixture
def runtime(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Runtime:
    if find_marian() is None:
        pytest.skip("the package pymarian, with Marian, is not installed")
    bundle = make_bundle(positions="learned", max_positions=12)
    (tmp_path / "out").mkdir()
    FORMAT.write(bundle, tmp_path / "out", "float32")
    return FORMAT.load(tmp_path / "out", bundle.load_tokenizer())


def test_it_says_which_marian_it_is(runtime: Runtime) -> None:
    assert isinstance(runtime, MarianRuntime)
    name, version = runtime.name.split()
    assert name == "Marian"
    assert version.split(".")[0].isdigit()


def test_a_sentence_has_the_same_scores_in_any_company(runtime: Runtime) -> None:
    targets = [[5, 1], [1], [90, 91, 92, 1], [93, 94, 1]]
    together = runtime.score_targets(SOURCES, targets)
    assert list(map(len, together)) == list(map(len, targets))
    alone = [runtime.score_targets([source], [target])[0] for source, target in zip(SOURCES, targets, strict=True)]
    assert together == alone


def test_each_translation_has_its_own_limit(runtime: Runtime) -> None:
    # In one go, with a factor for the shortest source, the longest translation would need 36 positions of 12.
    limits = [12, 11, 7, 1]
    found = runtime.translate_greedily(SOURCES, limits)
    for row, limit in zip(found, limits, strict=True):
        assert len(row) == limit or (len(row) < limit and row[-1] == 1)
        assert 1 not in row[:-1]
    assert found == [
        runtime.translate_greedily([source], [limit])[0] for source, limit in zip(SOURCES, limits, strict=True)
    ]


def test_what_marian_complains_about_is_passed_on(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "out" / "vocab.yml").write_text("a: 0\n", encoding="utf-8")
    with pytest.raises(TransduceError, match=r"pymarian failed: .*vocab\.yml is expected to contain"):
        runtime.translate_greedily(SOURCES, [5] * 4)


ctranslate2 = pytest.importorskip("ctranslate2")


@pytest.fixture
def exported(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Bundle:
    """A bundle whose export is in `out`."""
    bundle = make_bundle()
    (tmp_path / "out").mkdir()
    FORMAT.write(bundle, tmp_path / "out", "float32")
    return bundle


def converted(bundle: Bundle, folder: Path) -> CTranslate2Runtime:
    tokenizer, vocabulary = bundle.load_tokenizer(), folder / "vocab.yml"
    return load_converted(folder / "model.npz", (vocabulary, vocabulary), tokenizer)


def test_it_is_a_runtime_and_says_which(exported: Bundle, tmp_path: Path) -> None:
    runtime = converted(exported, tmp_path / "out")
    assert isinstance(runtime, Runtime)
    assert runtime.name == f"CTranslate2 {ctranslate2.__version__}, through its converter of Marian models"
    assert runtime.decode(runtime.encode(["sun moon"])) == ["sun moon"]


def test_what_is_in_the_file_decides(exported: Bundle, tmp_path: Path) -> None:
    folder, sources, targets = tmp_path / "out", [[50, 60, 1]], [[70, 80, 1]]
    before = converted(exported, folder).score_targets(sources, targets)
    _, arrays, text = read_archive(folder / "model.npz")
    arrays["decoder_l1_context_Wv"][3, 5] += 0.5
    write_archive(folder / "model.npz", text, arrays)
    after = converted(exported, folder).score_targets(sources, targets)
    assert not torch.allclose(torch.tensor(before), torch.tensor(after), rtol=0, atol=1e-3)


# CTranslate2 leaves the file open that it fails to convert.
@pytest.mark.filterwarnings("ignore:.*model.npz:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"self-attention"', '"rnn"', "must be 'self-attention'"),
        ('transformer-guided-alignment-layer: "last"\n', "", "transformer-guided-alignment-layer"),
    ],
)
def test_what_cannot_be_converted_is_said(exported: Bundle, tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "out" / "model.npz"
    _, arrays, text = read_archive(path)
    assert old in text
    write_archive(path, text.replace(old, new), arrays)
    with pytest.raises(BundleError) as caught:
        converted(exported, tmp_path / "out")
    message = str(caught.value)
    del caught
    gc.collect()  # of the file, while its warning is expected
    assert message.startswith(f"{path}: CTranslate2 cannot convert it: ")
    assert words in message


def test_without_ctranslate2_the_extra_is_named(
    exported: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(
        MissingExtraError, match=r"model\.npz needs the package 'ctranslate2'.*transduce\[ctranslate2\]"
    ):
        converted(exported, tmp_path / "out")
