import ast
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from transduce.bundle import Bundle, model_tensors
from transduce.config import SearchConfig
from transduce.errors import MissingExtraError, UserError
from transduce.interop.formats import ExportFormat, Runtime
from transduce.interop.huggingface.export_format import FORMAT
from transduce.interop.huggingface.import_format import FORMAT as IMPORT
from transduce.translation import ForcedDecoder, NativeEngine, score_ids

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
        assert not FORMAT.obstacles(bundle)
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
    theirs = runtime.forced_scores(sources, targets)
    pairs = zip(ours, theirs, strict=True)
    return max(abs(one - other) for rows in pairs for one, other in zip(*rows, strict=True))


@pytest.mark.parametrize("settings", EXPRESSIBLE, ids=str)
def test_it_is_the_same_model(export: Callable[..., tuple[Bundle, Path]], settings: dict[str, Any]) -> None:
    bundle, folder = export(**settings)
    runtime = FORMAT.load(folder, bundle.load_tokenizer())
    assert largest_difference(bundle, runtime) < 1e-5
    sources = [[*ids, 1] for ids in bundle.load_tokenizer().encode_all(TEXTS)]
    hypotheses = NativeEngine(bundle.load_model(), end_id=1).search(sources, SearchConfig(beam=1, max_extra_length=6))
    limits = [len(source) + 5 for source in sources]  # where our search has to end, it ends with </s>
    expected = [list(found.ids)[:limit] for (found,), limit in zip(hypotheses, limits, strict=True)]
    assert runtime.greedy(sources, limits) == expected
    assert runtime.greedy(sources, [1] * len(sources)) == [row[:1] for row in expected]


@pytest.mark.parametrize("settings", EXPRESSIBLE, ids=str)
def test_every_weight_comes_back(export: Callable[..., tuple[Bundle, Path]], settings: dict[str, Any]) -> None:
    bundle, folder = export(**settings)
    expected = dict(model_tensors(bundle.load_model()))
    if "projection.bias" in expected:  # of <pad>, whose logit is nobody's business
        expected["projection.bias"] = expected["projection.bias"].index_fill(0, torch.tensor([-1]), 0)
    imported = IMPORT.read(folder, None)
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
        ({"d_k": 4}, "d_k = 4, d_v = 8: in Transformers both are d_model / num_heads, 16 / 2"),
        (
            {"num_heads": 3, "d_k": 8, "d_v": 8},
            "d_k = 8, d_v = 8: in Transformers both are d_model / num_heads, 16 / 3",
        ),
        ({"attention_score": "additive"}, 'attention_score = "additive": '),
        ({"attention_score": "dot"}, 'attention_score = "dot": .* with d_k = 8 queries that make up for it'),
        ({"normalization": "batch"}, 'normalization = "batch": '),
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
    (obstacle,) = FORMAT.obstacles(make_bundle(**settings))
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
        runtime.forced_scores([[5] * 599 + [1]], [[1]])
    with pytest.raises(UserError, match="a sentence has 513 tokens"):
        runtime.greedy([[5, 1]], [513])


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
