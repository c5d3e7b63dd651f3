"""Translating without PyTorch: the same to the last bit, and everything else as ever."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from transduce.bundle import Bundle, BundleDescription, Languages, save_bundle
from transduce.bundle.manifest import record_files
from transduce.config import SearchConfig
from transduce.errors import BundleError, ConfigError
from transduce.kernels.hardware import Precision
from transduce.kernels.native.library import Library, find_library
from transduce.model import Transformer
from transduce.search import Constraints, Sampling
from transduce.text import Tokenizer
from transduce.translation import PyTorchEngine, Translator, find_pytorch_engine
from transduce.translation.engines.compiled_engine import CompiledEngine

SOURCE = Path(__file__).parents[3] / "src"
SEARCHES = [
    SearchConfig(beam=3, max_extra_length=5, batch_tokens=30),
    SearchConfig(beam=1, max_extra_length=5),
    SearchConfig(beam=4, min_length=6, max_length=9, length_penalty=0.0),
    SearchConfig(beam=3, max_extra_length=5, batch_tokens=30, no_repeat_ngram=2),
    SearchConfig(beam=1, min_length=9, no_repeat_ngram=1),
    SearchConfig(beam=4, min_length=12, no_repeat_ngram=3, length_penalty=1.5),
]
PROCESSED = [{"no_repeat_ngram": 2, "diversity": 0.1}, {"repetition_penalty": 1.2}, {"diversity": 0.5}]

pytestmark = pytest.mark.skipif(find_library() is None, reason="the library of compiled kernels is missing")

SaveModel = Callable[[Transformer, Path], Path]


@pytest.fixture(scope="module")
def save(tokenizer: Tokenizer) -> SaveModel:
    def save_model(model: Transformer, folder: Path) -> Path:
        languages = Languages(source="en", target="xx")
        search = SearchConfig(max_pieces=40, max_extra_length=8)
        save_bundle(folder, model, tokenizer, BundleDescription(model=model.config, search=search, languages=languages))
        return folder

    return save_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, copier: Transformer, save: SaveModel) -> Path:
    return save(copier, tmp_path_factory.mktemp("compiled") / "bundle")


@pytest.fixture
def sources(tokenizer: Tokenizer, make_sentences: Callable[..., list[str]]) -> list[list[int]]:
    return [tokenizer.as_source(ids) for ids in tokenizer.encode_all(make_sentences(20, seed=4))]


def load(folder: Path, precision: Precision = "float32") -> CompiledEngine:
    engine = Translator.load(folder, device="cpu", precision=precision).engine
    assert isinstance(engine, CompiledEngine)
    return engine


def load_pytorch_engine(folder: Path, precision: Precision = "float32") -> PyTorchEngine:
    return PyTorchEngine(Bundle.open(folder).load_model(), Bundle.open(folder).load_tokenizer().end_id, precision)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_plain_searches_are_the_same_to_the_last_bit(
    folder: Path, sources: list[list[int]], search: SearchConfig, precision: Precision
) -> None:
    compiled, native = load(folder, precision), load_pytorch_engine(folder, precision)
    for num_best in (1, 2 * search.beam):
        assert compiled.search(sources, search, num_best) == native.search(sources, search, num_best)
    assert compiled.search([], search) == []


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_all_else_is_passed_on_and_the_same_to_the_last_bit(
    folder: Path, sources: list[list[int]], precision: Precision
) -> None:
    compiled, native, search = load(folder, precision), load_pytorch_engine(folder, precision), SEARCHES[0]
    constraints = [Constraints(prefix=tuple(source[:1]), forbidden=((9, 10),)) for source in sources]
    assert compiled.search(sources, search, 2, constraints) == native.search(sources, search, 2, constraints)
    for settings in PROCESSED:
        processed = search.model_copy(update=settings)
        assert compiled.search(sources, processed, 2) == native.search(sources, processed, 2)
    sampled = (sources, search, 3, Sampling(temperature=0.8), 5)
    assert compiled.sample(*sampled) == native.sample(*sampled)
    assert compiled.search(sources, search, 2) == native.search(sources, search, 2)  # still


def test_the_model_is_loaded_once_when_it_is_asked_for(folder: Path, copier: Transformer, tmp_path: Path) -> None:
    """And it is the one that was loaded, whatever became of the folder."""
    place = shutil.copytree(folder, tmp_path / "bundle")
    translator = Translator.load(place, device="cpu", precision="float32")
    shutil.rmtree(place)
    engine = translator.engine
    assert isinstance(engine, CompiledEngine)
    assert find_pytorch_engine(engine) is engine.pytorch_engine is find_pytorch_engine(engine)
    model = translator.make_forced_decoder("this").model
    assert not model.training
    for name, tensor in copier.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)


def test_what_cannot_be_asked_is_refused_likewise(copier: Transformer, tmp_path: Path, save: SaveModel) -> None:
    short = save(_make_short(copier), tmp_path / "short")
    for one in (load(short), load_pytorch_engine(short)):
        with pytest.raises(ConfigError, match="min_length = 30: this model writes at most 20 tokens"):
            one.check(SearchConfig(min_length=30))


def _make_short(model: Transformer) -> Transformer:
    torch.manual_seed(1)
    settings = {"positions": "learned", "max_positions": 20}
    return Transformer(model.config.model_copy(update=settings)).eval()


@pytest.mark.parametrize(
    "settings",
    [
        {"norm_order": "pre", "positions": "learned", "max_positions": 60, "tied_embeddings": "two_way"},
        {"output_bias": True, "tied_embeddings": "none", "positions": "none", "activation": "gelu"},
        {"attention_score": "dot", "d_k": 5, "d_v": 7},
    ],
    ids=str,
)
def test_every_kind_of_network_that_the_kernels_compute(
    make_model: Callable[..., Transformer],
    save: SaveModel,
    tmp_path: Path,
    sources: list[list[int]],
    settings: dict[str, object],
) -> None:
    place = save(make_model(seed=5, **settings), tmp_path / "bundle")
    for precision in ("float32", "int8"):
        found = load(place, precision).search(sources, SEARCHES[0], 3)
        assert found == load_pytorch_engine(place, precision).search(sources, SEARCHES[0], 3)


@pytest.mark.parametrize(
    "settings",
    [
        {"attention_score": "additive"},
        {"normalization": "batch"},
        {"normalization": "rms"},
        {"feed_forward": "gated"},
        {"positions": "relative"},
        {"positions": "rotary"},
    ],
    ids=str,
)
def test_other_networks_are_computed_by_pytorch(
    make_model: Callable[..., Transformer],
    save: SaveModel,
    tmp_path: Path,
    sources: list[list[int]],
    settings: dict[str, object],
) -> None:
    place = save(make_model(**settings), tmp_path / "bundle")
    engine = Translator.load(place, device="cpu").engine
    assert isinstance(engine, PyTorchEngine)
    assert find_pytorch_engine(engine) is engine
    assert engine.search(sources, SEARCHES[0]) == load_pytorch_engine(place).search(sources, SEARCHES[0])


def test_a_bundle_of_version_1_is_read_by_pytorch(folder: Path, tmp_path: Path, sources: list[list[int]]) -> None:
    old = shutil.copytree(folder, tmp_path / "old")
    weights, description = old / "weights.safetensors", old / "bundle.json"
    tensors = {name.replace("cross_attention", "memory_attention"): one for name, one in load_file(weights).items()}
    save_file(tensors, weights)
    content = json.loads(description.read_text(encoding="utf-8"))
    records = record_files(old, list(content["files"]))
    content |= {"format_version": 1, "files": {name: record.model_dump() for name, record in records.items()}}
    description.write_text(json.dumps(content), encoding="utf-8")
    engine = Translator.load(old, device="cpu", precision="float32").engine
    assert isinstance(engine, PyTorchEngine)
    assert engine.search(sources, SEARCHES[0]) == load(folder).search(sources, SEARCHES[0])


def test_precision_device_and_kernels_decide(
    folder: Path,
    tmp_path: Path,
    save: SaveModel,
    make_model: Callable[..., Transformer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_compiled(place: Path, **options: object) -> bool:
        engine = Translator.load(place, **{"device": "cpu", **options}).engine  # type: ignore[arg-type]
        assert isinstance(engine, CompiledEngine | PyTorchEngine)
        return isinstance(engine, CompiledEngine)

    wide = save(make_model(d_model=512), tmp_path / "wide")
    library = find_library()
    assert library is not None
    assert not is_compiled(folder, precision="bfloat16")
    assert not is_compiled(folder, precision="float32", ensemble=[folder])
    for has_amx in (False, True):
        monkeypatch.setattr(library, "has_amx", has_amx)
        assert is_compiled(folder, precision="auto")
        assert is_compiled(wide, precision="auto") is not has_amx
        assert is_compiled(wide, precision="int8")
    monkeypatch.setenv("TRANSDUCE_KERNELS", "off")
    assert not is_compiled(folder, precision="float32")
    monkeypatch.setenv("TRANSDUCE_KERNELS", "wrong")
    with pytest.raises(ConfigError, match="TRANSDUCE_KERNELS"):
        is_compiled(folder, precision="float32")


def test_a_processor_without_amx_is_one_for_pytorch_too() -> None:
    """The library may find instructions that the system does not allow, but none that PyTorch finds besides."""
    library: Library | None = find_library()
    assert library is not None
    if getattr(torch.cpu, "get_capabilities", dict)().get("amx_bf16"):
        assert library.has_amx


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_threads_find_the_same(folder: Path, sources: list[list[int]]) -> None:
    engine = load(folder)
    together = engine.search(sources * 3, SEARCHES[0], 2)
    assert together == [engine.search([source], SEARCHES[0], 2)[0] for source in sources] * 3


SLOW_TO_IMPORT = ("torch", "transformers", "sacrebleu", "scipy", "jaxtyping", "rich", "jinja2", "transduce.model")
WATCH = f"""
import atexit, sys
atexit.register(lambda: print("imported", *[name for name in {SLOW_TO_IMPORT} if name in sys.modules], file=sys.stderr))
"""
PLAIN: list[list[str]] = [
    [],
    ["--precision", "int8", "--beam", "1"],
    ["--precision", "float32", "--num-best", "2", "--length-penalty", "1", "--min-length", "2", "--max-length", "9"],
    ["--document"],
    ["--no-repeat-ngram", "2"],
]
MORE = [
    ["--forbid", "sun"],
    ["--require", "lamp"],
    ["--repetition-penalty", "2"],
    ["--diversity", "0.5", "--num-best", "2"],
    ["--samples", "2"],
    ["--protect"],
    ["--precision", "bfloat16"],
]


def run_watched(program: str, text: str = "") -> tuple[str, list[str]]:
    """The output of a program, and which of `SLOW_TO_IMPORT` it has imported."""
    done = subprocess.run(
        [sys.executable, "-c", WATCH + program],
        input=text,
        check=True,
        capture_output=True,
        encoding="utf-8",
        env={"PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"},
    )
    return done.stdout, done.stderr.splitlines()[-1].split()[1:]


def translate(arguments: list[str], text: str) -> tuple[str, list[str]]:
    return run_watched(
        f"sys.argv[1:] = {['translate', *arguments]!r}; from transduce.__main__ import main; main()", text
    )


@pytest.mark.parametrize("options", [PLAIN[0], *(pytest.param(one, marks=pytest.mark.exhaustive) for one in PLAIN[1:])])
def test_the_command_line_translates_without_pytorch(
    folder: Path, make_sentences: Callable[..., list[str]], options: list[str]
) -> None:
    text = "".join(f"{line}\n" for line in make_sentences(5, seed=9))
    arguments = [str(folder), "--device", "cpu", *options]
    found, imported = translate(arguments, text)
    assert imported == []
    assert found
    # What no translation contains changes nothing, but takes the other way.
    expected, imported = translate([*arguments, "--protect"], text) if "--num-best" not in options else (found, [])
    assert found == expected
    assert imported or "--num-best" in options


@pytest.mark.parametrize("options", [MORE[0], *(pytest.param(one, marks=pytest.mark.exhaustive) for one in MORE[1:])])
def test_the_command_line_loads_pytorch_for_all_else(folder: Path, options: list[str]) -> None:
    _, imported = translate([str(folder), *options], "sun moon\n")
    assert "torch" in imported


def test_python_translates_without_pytorch_and_loads_it_on_demand(folder: Path, translator: Translator) -> None:
    program = (
        "from transduce import Translator\n"
        f"translator = Translator.load({str(folder)!r}, device='cpu', precision='float32')\n"
        "print(translator.translate(['sun moon', 'river stone bird']))\n"
    )
    found, imported = run_watched(program)
    assert imported == []
    assert found == f"{translator.translate(['sun moon', 'river stone bird'])}\n"
    _, imported = run_watched(program + "translator.with_search({'diversity': 0.5}).translate(['sun'])")
    assert "torch" in imported


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 100], ids=len)
def test_damaged_weights_are_refused_as_ever(folder: Path, tmp_path: Path, content: bytes) -> None:
    """Here the recorded digest is that of the damaged file, which then is no safetensors file."""
    place = shutil.copytree(folder, tmp_path / "damaged")
    (place / "weights.safetensors").write_bytes(content)
    with pytest.raises(BundleError, match=r"weights\.safetensors: has \d+ bytes, but bundle\.json says"):
        Translator.load(place, device="cpu")
    description = place / "bundle.json"
    found = json.loads(description.read_text(encoding="utf-8"))
    records = record_files(place, list(found["files"]))
    found["files"] = {name: record.model_dump() for name, record in records.items()}
    description.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(BundleError, match=r"weights\.safetensors: cannot be read as safetensors"):
        Translator.load(place, device="cpu")
