import ast
import io
import json
import logging
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file

from transduce.bundle import Bundle, BundleDescription, collect_model_tensors, load_tensors, save_bundle
from transduce.config import SearchConfig
from transduce.errors import BundleError, MissingExtraError, UserError
from transduce.interop.formats import ExportFormat, ImportedModel, ImportFormat, Runtime, import_optional
from transduce.interop.huggingface import FORMAT, silence_transformers
from transduce.model import EXCLUDED_TOKEN_BIAS, Transformer
from transduce.translation import ForcedDecoder, PyTorchEngine, score_ids

transformers = pytest.importorskip("transformers")

# Marian's tokenizer wants to have sacremoses for a method that it does not call.
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

TEXTS = ["sun and moon", "", "  the  river , 漢字 ☃", "</s> <pad> <unk> bird", "Two\tBIRDS... \N{NO-BREAK SPACE}!"]

POST: dict[str, Any] = {"norm_order": "post"}
PRE: dict[str, Any] = {"norm_order": "pre"}
EXPRESSIBLE: list[dict[str, Any]] = [
    POST,
    PRE,
    POST | {"tied_embeddings": "two_way", "activation": "swish", "output_bias": True},
    POST | {"tied_embeddings": "none", "activation": "gelu", "attention_score": "dot", "num_heads": 4},
    PRE | {"positions": "learned", "max_positions": 40, "output_bias": True},
    PRE | {"positions": "none"},
]


@pytest.fixture
def export(make_bundle: Callable[..., Bundle], tmp_path: Path) -> Callable[..., tuple[Bundle, Path]]:
    def make(precision: str = "float32", **settings: Any) -> tuple[Bundle, Path]:
        bundle = make_bundle(**settings)
        assert not FORMAT.find_unsupported_features(bundle)
        folder = tmp_path / "exported"
        folder.mkdir()
        FORMAT.write(bundle, folder, precision)
        return bundle, folder

    return make


def largest_difference(bundle: Bundle, runtime: Runtime) -> float:
    """Between log-probabilities of the tokens of random targets."""
    sources = [[*ids, 1] for ids in bundle.load_tokenizer().encode_all(TEXTS)]
    most = bundle.model_config.vocabulary - 1
    targets = [[*torch.randint(2, most, (number,)).tolist(), 1] for number in range(len(TEXTS))]
    ours = [
        found.token_scores for found in score_ids(ForcedDecoder.from_bundle(bundle, device="cpu"), sources, targets)
    ]
    theirs = runtime.score_targets(sources, targets)
    pairs = zip(ours, theirs, strict=True)
    return max(abs(one - other) for rows in pairs for one, other in zip(*rows, strict=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize("settings", EXPRESSIBLE, ids=str)
def test_it_is_the_same_model(export: Callable[..., tuple[Bundle, Path]], settings: dict[str, Any]) -> None:
    bundle, folder = export(**settings)
    runtime = FORMAT.load(folder, bundle.load_tokenizer())
    assert largest_difference(bundle, runtime) < 1e-5
    sources = [[*ids, 1] for ids in bundle.load_tokenizer().encode_all(TEXTS)]
    hypotheses = PyTorchEngine(bundle.load_model(), end_id=1).search(sources, SearchConfig(beam=1, max_extra_length=6))
    limits = [len(source) + 5 for source in sources]  # where our search has to end, it ends with </s>
    expected = [list(found.ids)[:limit] for (found,), limit in zip(hypotheses, limits, strict=True)]
    assert runtime.translate_greedily(sources, limits) == expected
    assert runtime.translate_greedily(sources, [1] * len(sources)) == [row[:1] for row in expected]


@pytest.mark.exhaustive
@pytest.mark.parametrize("settings", EXPRESSIBLE, ids=str)
def test_every_weight_comes_back(export: Callable[..., tuple[Bundle, Path]], settings: dict[str, Any]) -> None:
    bundle, folder = export(**settings)
    expected = dict(collect_model_tensors(bundle.load_model()))
    if "projection.bias" in expected:  # of <pad>, whose logit is nobody's business
        expected["projection.bias"] = expected["projection.bias"].index_fill(0, torch.tensor([-1]), 0)
    imported = FORMAT.read(folder, None)
    for found in (FORMAT.read_back(folder), imported.tensors):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert imported.config == bundle.model_config
    assert imported.tokenizer.files == bundle.load_tokenizer().files


@pytest.mark.parametrize(
    ("precision", "dtype", "most"), [("float16", torch.float16, 0.05), ("bfloat16", torch.bfloat16, 0.4)]
)
@pytest.mark.parametrize("settings", [POST, PRE], ids=str)
def test_half_the_bits_are_almost_the_same_model(
    export: Callable[..., tuple[Bundle, Path]],
    settings: dict[str, Any],
    precision: str,
    dtype: torch.dtype,
    most: float,
) -> None:
    bundle, folder = export(precision, **settings)
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {dtype}
    assert 0 < largest_difference(bundle, FORMAT.load(folder, bundle.load_tokenizer())) < most


def test_its_tokenizer_is_ours(export: Callable[..., tuple[Bundle, Path]], texts: list[str]) -> None:
    bundle, folder = export()
    tokenizer = bundle.load_tokenizer()
    runtime = FORMAT.load(folder, tokenizer)
    ids = [[*row, tokenizer.end_id] for row in tokenizer.encode_all([*TEXTS, *texts])]
    assert runtime.encode([*TEXTS, *texts]) == ids
    assert runtime.decode(ids) == [tokenizer.decode(row).strip() for row in ids]
    assert runtime.encode([]) == []


@pytest.mark.parametrize("settings", [POST, PRE], ids=str)
def test_the_card_can_be_followed(
    export: Callable[..., tuple[Bundle, Path]],
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, folder = export(**settings)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith('---\nlanguage:\n- "en"\n- "no"\npipeline_tag: translation\n')
    (program,) = re.findall("```python\n(.+?)```", card, re.DOTALL)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    exec(program, {})  # noqa: S102
    assert not caplog.records
    translations = ast.literal_eval(capsys.readouterr().out)
    assert len(translations) == 2
    assert any(translations)  # of random weights, one says nothing


@pytest.mark.parametrize("settings", [POST, PRE], ids=str)
def test_pad_is_never_generated(export: Callable[..., tuple[Bundle, Path]], settings: dict[str, Any]) -> None:
    bundle, folder = export(**settings)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    pad_id = bundle.model_config.vocabulary - 1
    source = torch.tensor([[5, 6, 7, 1]])
    logits = model(input_ids=source, decoder_input_ids=torch.tensor([[pad_id, 9, 9]])).logits
    assert logits.softmax(dim=-1)[..., pad_id].tolist() == [[0, 0, 0]]
    torch.manual_seed(0)
    drawn = model.generate(source, do_sample=True, num_beams=1, temperature=50.0, top_k=0, num_return_sequences=300)
    drawn = drawn[:, 1:].tolist()
    written = [token for row in drawn for token in row[: row.index(1) if 1 in row else len(row)]]
    assert set(written) == set(range(pad_id)) - {1}  # and not <pad>


@pytest.mark.parametrize(
    ("settings", "finding"),
    [
        ({"d_k": 4}, "d_k = 4, d_v = 8: Transformers requires d_model / num_heads, 16 / 2"),
        (
            {"num_heads": 3, "d_k": 8, "d_v": 8},
            "d_k = 8, d_v = 8: Transformers requires d_model / num_heads, 16 / 3",
        ),
        ({"attention_score": "additive"}, 'attention_score = "additive": '),
        ({"attention_score": "dot"}, 'attention_score = "dot": .* with d_k = 8 queries that compensate for it'),
        ({"normalization": "batch"}, 'normalization = "batch": '),
        ({"normalization": "rms"}, 'normalization = "rms": '),
        ({"feed_forward": "gated"}, 'feed_forward = "gated": '),
        ({"positions": "rotary"}, 'positions = "rotary": '),
        ({"positions": "relative"}, 'positions = "relative": '),
        ({"norm_order": "pre", "tied_embeddings": "two_way"}, 'tied_embeddings = "two_way" and norm_order = "pre": '),
        ({"norm_order": "pre", "tied_embeddings": "none"}, 'tied_embeddings = "none" and norm_order = "pre": '),
        ({"positions": "learned"}, 'positions = "learned" and norm_order = "post": '),
        ({"positions": "none"}, 'positions = "none" and norm_order = "post": '),
    ],
    ids=str,
)
def test_what_it_cannot_express_is_said(
    make_bundle: Callable[..., Bundle], settings: dict[str, Any], finding: str
) -> None:
    (obstacle,) = FORMAT.find_unsupported_features(make_bundle(**settings))
    assert re.match(finding, obstacle)


@pytest.mark.parametrize("settings", [POST, PRE | {"output_bias": True}], ids=str)
def test_what_transformers_saved_again_can_be_converted(
    export: Callable[..., tuple[Bundle, Path]],
    settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ctranslate2")
    from ctranslate2.converters.transformers import main

    from transduce.interop.ctranslate2.runtime import CTranslate2Runtime

    bundle, folder = export(**settings)
    saved, converted = str(tmp_path / "saved"), str(tmp_path / "converted")
    transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).save_pretrained(saved)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(saved)
    monkeypatch.setattr("sys.argv", ["ct2-transformers-converter", "--model", saved, "--output_dir", converted])
    main()
    assert largest_difference(bundle, CTranslate2Runtime(Path(converted), bundle.load_tokenizer())) < 1e-5


def test_a_sentence_beyond_its_positions_is_refused(export: Callable[..., tuple[Bundle, Path]]) -> None:
    bundle, folder = export()
    runtime = FORMAT.load(folder, bundle.load_tokenizer())
    with pytest.raises(UserError, match=r"a sentence has 600 tokens; Transformers .* has positions for 512"):
        runtime.score_targets([[5] * 599 + [1]], [[1]])
    with pytest.raises(UserError, match="a sentence has 513 tokens"):
        runtime.translate_greedily([[5, 1]], [513])


def test_without_transformers_it_is_written_and_not_loaded(
    export: Callable[..., tuple[Bundle, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    bundle, folder = export()
    with pytest.raises(MissingExtraError, match=r"needs the package 'transformers'.*transduce\[huggingface\]"):
        FORMAT.load(folder, bundle.load_tokenizer())


def test_the_folder_is_complete(export: Callable[..., tuple[Bundle, Path]]) -> None:
    assert isinstance(FORMAT, ExportFormat)
    _, folder = export()
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "source.spm",
        "target.spm",
        "tokenizer_config.json",
        "vocab.json",
    ]
    assert (folder / "model.safetensors").stat().st_mode == (folder / "config.json").stat().st_mode


# Marian's tokenizer wants to have sacremoses for a method that it does not call.

ENGLISH = ("a small dog runs over the meadow", "the old man reads a book", "two birds sing in the tall tree")
GERMAN = ("ein kleiner hund läuft über die wiese", "der alte mann liest ein buch", "zwei vögel singen im hohen baum")
SENTENCES = [*ENGLISH, "", "the dog  sings ☃ 漢字", "  Zwei, alte ... BOOK!"]


@cache
def sentencepiece_model(sentences: tuple[str, ...]) -> bytes:
    """With the ids that Marian's users leave as they are: `<unk>` 0, `<s>` 1, `</s>` 2."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    return model.getvalue()


def pieces_of(sentences: tuple[str, ...]) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(sentences))
    return [processor.id_to_piece(index) for index in range(3, processor.get_piece_size())]


def ids_of(pieces: Iterable[str]) -> dict[str, int]:
    """As Marian numbers them; but some ids in front of `<pad>` have no piece."""
    return {piece: index for index, piece in enumerate(["</s>", "<unk>", *dict.fromkeys(pieces)])} | {"<pad>": 99}


def vocabularies(*, separate: bool) -> dict[str, dict[str, int]]:
    """The files vocab.json and target_vocab.json."""
    source, target = pieces_of(ENGLISH), pieces_of(GERMAN)
    if separate:
        return {"vocab.json": ids_of(source), "target_vocab.json": ids_of(target)}
    return {"vocab.json": ids_of([*source, *target, ">>deu<<", ">>fra<<"])}


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """A model that Transformers itself makes and saves, with random weights, as OPUS-MT would publish it."""

    def make(*, separate: bool = False, **settings: Any) -> Path:
        path = tmp_path / "model"
        path.mkdir()
        config = transformers.MarianConfig(
            **{
                "vocab_size": 100,
                "d_model": 16,
                "encoder_layers": 2,
                "decoder_layers": 1,
                "encoder_attention_heads": 2,
                "decoder_attention_heads": 2,
                "encoder_ffn_dim": 24,
                "decoder_ffn_dim": 24,
                "max_position_embeddings": 64,
                "activation_function": "swish",
                "scale_embedding": True,
                "static_position_embeddings": True,
                "pad_token_id": 99,
                "decoder_start_token_id": 99,
                "eos_token_id": 0,
                "forced_eos_token_id": 0,
                "share_encoder_decoder_embeddings": not separate,
            }
            | settings
        )
        torch.manual_seed(0)
        model = transformers.MarianMTModel(config)
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                if "embed" not in name and "shared" not in name:
                    tensor.add_(torch.randn_like(tensor) / 3)
                else:
                    tensor.mul_(15)
            model.final_logits_bias.normal_(std=0.5)
        model.save_pretrained(path)
        (path / "source.spm").write_bytes(sentencepiece_model(ENGLISH))
        (path / "target.spm").write_bytes(sentencepiece_model(GERMAN))
        for name, ids in vocabularies(separate=separate).items():
            (path / name).write_text(json.dumps(ids), encoding="utf-8")
        tokenizer = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
        (path / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
        return path

    return make


def built(imported: ImportedModel) -> Transformer:
    model = Transformer(imported.config)
    load_tensors(model, imported.tensors, "imported")
    return model.eval()


@torch.no_grad()
def logits_of_both(imported: ImportedModel, path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Ours, and theirs by Transformers itself in the order of our tokens, for a pair of texts."""
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(path).eval()
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    source = torch.tensor([[*imported.tokenizer.encode(ENGLISH[0]), 1]])
    target = torch.tensor([[*imported.tokenizer.encode_targets([GERMAN[1]])[0], 1]])
    real = torch.ones_like(source, dtype=torch.bool), torch.ones_like(target, dtype=torch.bool)
    ours = built(imported)(source, real[0], target, real[1])[0]
    given = their_tokenizer(ENGLISH[0], text_target=GERMAN[1], return_tensors="pt")
    found = theirs(**given).logits[0]
    target_ids = their_tokenizer.target_encoder if their_tokenizer.separate_vocabs else their_tokenizer.encoder
    known = [
        (index, target_ids[piece])
        for index, piece in enumerate(imported.tokenizer.pieces(range(imported.tokenizer.pad_id)))
        if piece in target_ids
    ]
    assert len(known) == len(target_ids) - 1  # all but <pad>
    rows, columns = zip(*known, strict=True)
    return ours[:, rows], found[:, columns]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"separate": True},
        {"separate": True, "tie_word_embeddings": False, "activation_function": "gelu"},
        {"activation_function": "relu", "encoder_ffn_dim": 40},
        {"scale_embedding": False, "d_model": 24, "decoder_ffn_dim": 40},
        {"share_encoder_decoder_embeddings": False},
    ],
    ids=str,
)
def test_an_imported_model_is_the_same(folder: Callable[..., Path], settings: dict[str, Any]) -> None:
    path = folder(**settings)
    ours, theirs = logits_of_both(FORMAT.read(path, None), path)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_texts_have_the_same_ids_and_ids_the_same_text(folder: Callable[..., Path]) -> None:
    imported = FORMAT.read(folder(), None)
    tokenizer, runtime = imported.tokenizer, imported.runtime
    texts = [*SENTENCES, ">>fra<< the dog", ">>deu<<"]
    ids = [[*row, tokenizer.end_id] for row in tokenizer.encode_all(texts)]
    assert runtime.encode(texts) == ids
    assert tokenizer.pieces(ids[-1]) == [">>deu<<", "</s>"]
    targets = [[*row, tokenizer.end_id] for row in tokenizer.encode_targets(GERMAN)]
    assert runtime.decode(targets) == [tokenizer.decode(row) for row in targets] == list(GERMAN)


@pytest.mark.exhaustive
@pytest.mark.parametrize("separate", [False, True])
def test_the_runtime_speaks_our_ids(folder: Callable[..., Path], *, separate: bool) -> None:
    imported = FORMAT.read(folder(separate=separate), None)
    decoder = ForcedDecoder(built(imported), imported.tokenizer, SearchConfig(beam=1, max_extra_length=10))
    sources = [[*row, 1] for row in imported.tokenizer.encode_all(SENTENCES)]
    hypotheses = PyTorchEngine(decoder.model, end_id=1).search(sources, decoder.search)
    # Our search ends with </s> where it has to end.
    limits = [len(source) + 9 for source in sources]
    greedy = [list(found.ids)[:limit] for (found,), limit in zip(hypotheses, limits, strict=True)]
    assert imported.runtime.translate_greedily(sources, limits) == greedy
    assert imported.runtime.translate_greedily(sources, [1] * len(sources)) == [row[:1] for row in greedy]
    # With a token in each that separate vocabularies have in sources alone.
    vocabulary = imported.tokenizer.pieces(range(imported.tokenizer.vocabulary))
    english = next(vocabulary.index(piece) for piece in pieces_of(ENGLISH) if piece not in pieces_of(GERMAN))
    targets = [[*row[:2], english, *row[2:]] for row in greedy]
    ours = [found.token_scores for found in score_ids(decoder, sources, targets)]
    for found, expected in zip(imported.runtime.score_targets(sources, targets), ours, strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    assert (min(map(min, ours)) == EXCLUDED_TOKEN_BIAS) == separate


@pytest.mark.parametrize("separate", [False, True])
def test_it_can_be_exported_again(folder: Callable[..., Path], tmp_path: Path, *, separate: bool) -> None:
    imported = FORMAT.read(folder(separate=separate), None)
    description = BundleDescription(model=imported.config, search=imported.search)
    save_bundle(tmp_path / "bundle", built(imported), imported.tokenizer, description)
    bundle, exported = Bundle.open(tmp_path / "bundle"), tmp_path / "exported"
    assert not FORMAT.find_unsupported_features(bundle)
    exported.mkdir()
    FORMAT.write(bundle, exported, "float32")
    sources = [[*row, 1] for row in imported.tokenizer.encode_all(SENTENCES)]
    first, second = imported.runtime, FORMAT.load(exported, imported.tokenizer)
    assert second.encode([*SENTENCES, ">>fra<< bird"]) == first.encode([*SENTENCES, ">>fra<< bird"])
    translations = first.translate_greedily(sources, [20] * len(sources))
    assert second.translate_greedily(sources, [20] * len(sources)) == translations
    assert second.decode(translations) == first.decode(translations)
    for one, other in zip(*(each.score_targets(sources, translations) for each in (first, second)), strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    again = FORMAT.read(exported, None)
    assert again.tokenizer.files == imported.tokenizer.files
    assert again.config == imported.config
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in imported.tensors.items())


def test_languages_are_kept(folder: Callable[..., Path]) -> None:
    imported = FORMAT.read(folder(), None)
    assert (imported.source_language, imported.target_language) == ("en", "de")
    assert imported.runtime.name == f"Transformers {transformers.__version__}"


def test_weights_in_a_pickle_are_read(folder: Callable[..., Path]) -> None:
    path = folder()
    expected = FORMAT.read(path, None).tensors
    weights = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    torch.save(weights, path / "pytorch_model.bin")
    found = FORMAT.read(path, None).tensors
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


class Payload:
    """What a pickle can do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harm.txt").absolute(),)


def save_legacy(weights: object, path: Path) -> None:
    torch.save(weights, path, _use_new_zipfile_serialization=False)


def save_plain(weights: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(weights, protocol=2))


def save_in_shards(weights: object, path: Path) -> None:
    torch.save(weights, path.with_name("pytorch_model-00001-of-00001.bin"))
    index = {"metadata": {}, "weight_map": {"model.shared.weight": "pytorch_model-00001-of-00001.bin"}}
    path.with_name("pytorch_model.bin.index.json").write_text(json.dumps(index), encoding="utf-8")


@pytest.mark.parametrize("save", [torch.save, save_legacy, save_plain, save_in_shards])
def test_nothing_in_a_pickle_is_run(
    folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[[object, Path], None]
) -> None:
    path = folder()
    (path / "model.safetensors").unlink()
    monkeypatch.chdir(tmp_path)
    save({"model.shared.weight": Payload()}, path / "pytorch_model.bin")
    with pytest.raises(BundleError, match=r"model: its weights are a pickle .* was not read") as error:
        FORMAT.read(path, None)
    assert "weights_only" not in str(error.value)
    assert not (tmp_path / "harm.txt").exists()


@pytest.mark.parametrize(
    ("settings", "finding"),
    [
        ({"decoder_attention_heads": 4}, "encoder_attention_heads = 2, decoder_attention_heads = 4: must be"),
        ({"activation_function": "gelu_new"}, "activation_function = 'gelu_new': must be one of relu, gelu, swish"),
        ({"static_position_embeddings": False}, "static_position_embeddings = False: Transformers only supports"),
        ({"normalize_before": True}, "normalize_before = True: "),
        ({"normalize_embedding": True}, "normalize_embedding = True: "),
        ({"decoder_start_token_id": 5}, "decoder_start_token_id = 5: not supported: its start symbol"),
        ({"decoder_start_token_id": 100}, "decoder_start_token_id = 100: must be the id of a token, from 0 to 99"),
        ({"eos_token_id": [0, 5]}, r"eos_token_id = \[0, 5\]: must be the id of a token"),
    ],
    ids=str,
)
def test_what_ours_cannot_express_is_refused(
    folder: Callable[..., Path], settings: dict[str, Any], finding: str
) -> None:
    with pytest.raises(BundleError, match=rf"model: this model cannot be imported:\n  {finding}"):
        FORMAT.read(folder(**settings), None)


def remove_a_tensor(path: Path) -> None:
    weights = load_file(path / "model.safetensors")
    del weights["model.encoder.layers.1.fc1.bias"]
    save_file(weights, path / "model.safetensors", {"format": "pt"})


def add_a_tensor(path: Path) -> None:
    weights = load_file(path / "model.safetensors")
    save_file(
        weights | {"model.encoder.layer_norm.weight": torch.ones(16)}, path / "model.safetensors", {"format": "pt"}
    )


def change_settings(**changes: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        settings = json.loads((path / "config.json").read_bytes())
        (path / "config.json").write_text(json.dumps(settings | changes), encoding="utf-8")

    return change


def change_vocabulary(**changes: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        ids = json.loads((path / "vocab.json").read_bytes())
        (path / "vocab.json").write_text(json.dumps(ids | changes), encoding="utf-8")

    return change


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (remove_a_tensor, r"Transformers has missing keys: model\.encoder\.layers\.1\.fc1\.bias$"),
        (add_a_tensor, r"Transformers has unexpected keys: model\.encoder\.layer_norm\.weight$"),
        (lambda path: (path / "model.safetensors").write_bytes(b"no weights"), "Transformers cannot load it"),
        (lambda path: (path / "source.spm").unlink(), "Transformers cannot load it"),
        (change_settings(encoder_layers=10**9), r"config\.json: encoder_layers = 1000000000: at most 1,000"),
        (change_settings(num_hidden_layers=10**9), r"config\.json: num_hidden_layers = 1000000000: at most 1,000"),
        (change_settings(max_position_embeddings=1e9), r"max_position_embeddings = 1000000000\.0: at most"),
        (change_vocabulary(word=100), r"vocab\.json: has the id 100, but the model's ids end at 99"),
        (change_vocabulary(word="3"), r"vocab\.json: gives 'word' the id '3', but must be a whole number from 0 on"),
        (change_vocabulary(word=-1), r"vocab\.json: gives 'word' the id -1, but must be"),
        (lambda path: (path / "generation_config.json").write_text('{"num_beams": -2}'), "num_beams = -2: beam"),
        (change_vocabulary(word=3), r"vocab\.json: gives \d+ pieces \d+ ids"),
        (change_vocabulary(**{"</s>": 98}), r"the id of '</s>' is (0 and 98|98 and 0) in its files"),
    ],
)
def test_damage_is_named(folder: Callable[..., Path], damage: Callable[[Path], object], finding: str) -> None:
    path = folder()
    damage(path)
    with pytest.raises(BundleError, match=f"model.*{finding}"):
        FORMAT.read(path, None)


def test_a_language_that_is_no_code_is_none(folder: Callable[..., Path]) -> None:
    path = folder()
    settings = json.loads((path / "tokenizer_config.json").read_bytes())
    settings |= {"source_lang": 5, "target_lang": ["de"]}
    (path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    imported = FORMAT.read(path, None)
    assert (imported.source_language, imported.target_language) == ("", "")


def test_a_tokenizer_beside_its_own_is_refused(folder: Callable[..., Path], tmp_path: Path) -> None:
    path = folder()
    with pytest.raises(UserError, match=r"other\.spm: .*model has its own tokenizer"):
        FORMAT.read(path, tmp_path / "other.spm")


def test_its_folders_are_recognised(folder: Callable[..., Path], tmp_path: Path) -> None:
    assert isinstance(FORMAT, ImportFormat)
    assert FORMAT.recognises(folder())
    assert not FORMAT.recognises(tmp_path)
    for content in ("{", "[]", '{"model_type": "t5"}', '{"model_type": ["marian"]}'):
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        assert not FORMAT.recognises(tmp_path)


def test_its_noise_is_back_afterwards() -> None:
    logging = transformers.utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with silence_transformers(transformers):
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (logging.ERROR, False)
        warnings.warn("Recommended: pip install sacremoses.", stacklevel=1)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    with silence_transformers(transformers), pytest.raises(UserWarning, match="anything else"):
        warnings.warn("anything else", stacklevel=1)


def test_its_absence_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        MissingExtraError, match=r"^thinking needs the package 'transformers'.*transduce\[huggingface\]"
    ):
        import_optional("transformers", "thinking")
