"""What the formats express. `python tests/interop/test_formats.py` writes the tables of docs/interop.md anew."""

import atexit
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from transduce.baselines import make_encoder_decoder
from transduce.bundle import Bundle, BundleDescription, Languages, collect_model_tensors, save_bundle
from transduce.config import PRESETS, SearchConfig, TransformerConfig
from transduce.errors import BundleError, ConfigError
from transduce.interop import FORMATS, TOLERANCES, export_bundle, find_export_format
from transduce.interop.formats import IMPORT_FORMATS, ImportFormat, find_import_format, refuse_import
from transduce.text import Tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "interop.md"
PROGRAMS = [name for name in FORMATS if name != "transduce"]
"""Formats of other programs; any model can be a bundle in int8."""
PAPER = [name for name in PRESETS if name == "base" or name.startswith("table3")]
NORM_ORDERS = ("post", "pre")
TIED = ("three_way", "two_way", "none")


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the sun is red", "a red moon", "the moon is a stone"] * 9, 300, "bpe")


def bundle_of(folder: Path, config: TransformerConfig) -> Bundle:
    """A bundle with a random network."""
    torch.manual_seed(1)
    model = make_encoder_decoder(config).eval()
    with torch.no_grad():
        for name, tensor in collect_model_tensors(model).items():
            tensor.add_(0.1 * torch.randn_like(tensor))
            if name in {"source_embedding.weight", "target_embedding.weight"}:
                tensor[-1] = 0
    search, languages = SearchConfig(max_pieces=12, max_extra_length=4), Languages(source="en", target="de")
    save_bundle(folder, model, tokenizer(), BundleDescription(model=config, search=search, languages=languages))
    return Bundle.open(folder)


def full(preset: str, **settings: Any) -> TransformerConfig:
    return TransformerConfig(**{"vocabulary": 37_000, **PRESETS[preset].get("model", {}), **settings})


def small(config: TransformerConfig) -> TransformerConfig:
    """The same structure in little."""
    sizes = {"d_model": config.d_model // 16, "d_ff": config.d_ff // 64, "vocabulary": tokenizer().vocabulary}
    layers = {name: min(2, getattr(config, name)) for name in ("num_encoder_layers", "num_decoder_layers")}
    widths = {name: max(1, getattr(config, name) // 16) for name in ("d_k", "d_v")}
    return TransformerConfig(**{**config.model_dump(), **sizes, **layers, **widths, "max_positions": 40})


@cache
def any_bundle() -> Bundle:
    """One whose description is replaced by that of larger models; no format looks at the weights for obstacles."""
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    return bundle_of(Path(folder.name) / "bundle", small(full("base")))


@cache
def obstacles(preset: str, norm_order: str, tied: str) -> tuple[tuple[str, ...], ...]:
    """Of the model in its full size, for each format."""
    description = any_bundle().description
    config = full(preset, norm_order=norm_order, tied_embeddings=tied)
    bundle = replace(any_bundle(), description=description.model_copy(update={"model": config}))
    return tuple(tuple(find_export_format(name).find_unsupported_features(bundle)) for name in PROGRAMS)


def rows(preset: str) -> Iterator[tuple[str, str, tuple[tuple[str, ...], ...]]]:
    """Norm order, tied embeddings, and the obstacles; settings that make no difference are "any"."""
    of_norm = {}
    for norm_order in NORM_ORDERS:
        found = {tied: obstacles(preset, norm_order, tied) for tied in TIED}
        of_norm[norm_order] = {"any": found["none"]} if len(set(found.values())) == 1 else found
    if of_norm["post"] == of_norm["pre"]:
        of_norm = {"any": of_norm["post"]}
    for norm_order, found in of_norm.items():
        for tied, reasons in found.items():
            yield norm_order, tied, reasons


def table_of_formats() -> str:
    """Models that do not differ in this have one row together."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for preset in PAPER:
        alike.setdefault(tuple(rows(preset)), []).append(preset)
    numbers: dict[str, int] = {}
    names = ["models", "norm_order", "tied_embeddings", *PROGRAMS]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    for found, presets in alike.items():
        for norm_order, tied, reasons in found:
            cells = [
                ", ".join(f"[{numbers.setdefault(reason, len(numbers) + 1)}]" for reason in of_format) or "exact"
                for of_format in reasons
            ]
            lines.append(f"| {' | '.join([', '.join(presets), norm_order, tied, *cells])} |")
    return "\n".join([*lines, "", *(f"{number}. {reason}" for reason, number in numbers.items())])


def table_of_tolerances() -> str:
    lines = ["| weights in | any token, nats | on average |", "|---|---|---|"]
    lines += [f"| {name} | {found.largest:.2g} | {found.mean:.2g} |" for name, found in TOLERANCES.items()]
    return "\n".join(lines)


def page() -> str:
    """The page with its tables as they are now."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("tolerances", table_of_tolerances()), ("formats", table_of_formats())):
        text, count = re.subn(
            rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end -->)", rf"\1\n{table}\n\n\2", text, count=1, flags=re.DOTALL
        )
        assert count == 1
    return text


def test_the_page_tells_what_the_formats_express() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tests/interop/test_formats.py writes it anew"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    ("preset", "settings"),
    [
        ("table3-A-4", {"tied_embeddings": "none"}),
        ("table3-B-1", {"norm_order": "pre"}),
        ("table3-E", {"norm_order": "pre", "tied_embeddings": "two_way"}),
    ],
)
def test_what_is_called_exact_is_exact_and_what_is_not_is_refused(
    tmp_path: Path, name: str, preset: str, settings: dict[str, str]
) -> None:
    config = full(preset, **settings)
    output = tmp_path / f"out{find_export_format(name).suffix}"
    bundle = bundle_of(tmp_path / "bundle", small(config))
    reasons = obstacles(preset, config.norm_order, config.tied_embeddings)[PROGRAMS.index(name)]
    if reasons:
        with pytest.raises(ConfigError, match="cannot be expressed"):
            export_bundle(bundle, name, output)
        assert not output.exists()
    else:
        parity = export_bundle(bundle, name, output, num_sentences=3)
        assert parity.identical_greedy == 3
        assert parity.largest_difference < 2e-5


SINCE_THE_PAPER: list[dict[str, Any]] = [
    {"normalization": "rms"},
    {"feed_forward": "gated", "activation": "swish"},
    {"positions": "relative"},
    {"positions": "rotary"},
    {"normalization": "rms", "norm_order": "pre", "feed_forward": "gated", "positions": "rotary"},
]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("architecture", ["recurrent", "convs2s", "bytenet"])
def test_other_networks_are_refused_by_name(tmp_path: Path, name: str, architecture: str) -> None:
    bundle = bundle_of(tmp_path / "bundle", small(full("base", architecture=architecture)))
    output = tmp_path / f"out{find_export_format(name).suffix}"
    if name == "transduce":  # a bundle in int8 is one of our own
        export_bundle(bundle, name, output, num_sentences=3)
        return
    with pytest.raises(ConfigError, match=f'architecture = "{architecture}": '):
        export_bundle(bundle, name, output)
    assert not output.exists()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("settings", SINCE_THE_PAPER, ids=str)
def test_what_later_models_changed_is_refused_by_name_or_proven(
    tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    bundle = bundle_of(tmp_path / "bundle", small(full("base", **settings)))
    output = tmp_path / f"out{find_export_format(name).suffix}"
    is_expressed = name == "transduce" or (name == "onnx" and settings.get("positions") != "relative")
    if is_expressed:
        parity = export_bundle(bundle, name, output, num_sentences=3)
        if name == "onnx":
            assert parity.identical_greedy == 3
            assert parity.largest_difference < 2e-5
        return
    with pytest.raises(ConfigError, match="cannot be expressed") as error:
        export_bundle(bundle, name, output)
    changed = settings.keys() - {"norm_order", "activation"}
    assert all(f'{key} = "{settings[key]}"' in str(error.value) for key in changed)
    assert not output.exists()


def test_a_format_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"format = 'pdf': must be one of ctranslate2, huggingface"):
        find_export_format("pdf")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    sys.stdout.write(f"{PAGE} written\n")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("model.bin", b"", "ctranslate2"),
        ("config.json", b'{"model_type": "marian"}', "huggingface"),
    ],
)
def test_a_folder_is_known_by_its_files(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    found, chosen = find_import_format(tmp_path)
    assert (found, isinstance(chosen, ImportFormat)) == (expected, True)


def test_all_formats_are_there() -> None:
    assert all(isinstance(find_export_format(name), ImportFormat) for name in IMPORT_FORMATS)


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.json", b'{"model_type": "bert"}'), ("config.json", b"{"), ("anything", b""), ("model.argosmodel", b"")],
)
def test_what_nobody_knows_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BundleError, match="is not a model that can be imported; supported are: "):
        find_import_format(tmp_path)


def test_bundles_and_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no such file or folder"):
        find_import_format(tmp_path / "nothing")
    (tmp_path / "bundle.json").write_text("{}", "utf-8")
    with pytest.raises(BundleError, match="is a bundle already"):
        find_import_format(tmp_path)


def test_all_problems_are_said_at_once_and_none_is_no_refusal() -> None:
    refuse_import(Path("model"), iter([]))
    with pytest.raises(BundleError) as error:
        refuse_import(Path("model"), (f"{name}: is odd" for name in ("first", "second")))
    assert str(error.value) == "model: this model cannot be imported:\n  first: is odd\n  second: is odd"


@pytest.mark.parametrize("name", ["huggingface", "marian", "onnx"])
def test_programs_that_end_every_source_refuse_models_that_do_not(
    make_bundle: Callable[..., Bundle], tmp_path: Path, name: str
) -> None:
    bundle = make_bundle()
    joint = bundle.load_tokenizer()
    model, pieces = joint.model_bytes, joint.pieces(range(joint.pad_id))
    own = Tokenizer.with_vocabulary(model, model, pieces, "test", ends_sources=False)
    save_bundle(tmp_path / "endless", bundle.load_model(), own, bundle.description)
    assert find_export_format(name).find_unsupported_features(bundle) == []
    (obstacle,) = find_export_format(name).find_unsupported_features(Bundle.open(tmp_path / "endless"))
    assert obstacle.startswith("sources do not end with </s>")
