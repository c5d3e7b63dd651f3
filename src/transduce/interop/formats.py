"""The formats that bundles are exported to and imported from, and the protocols that every format implements."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Optional, Protocol, runtime_checkable

import torch
from pydantic import Field
from torch import Tensor

from transduce.bundle import Bundle, Languages, is_bundle
from transduce.bundle.manifest import render_card_template as render_template
from transduce.config import SearchConfig, Settings, TransformerConfig
from transduce.data import Batch
from transduce.errors import BundleError, ConfigError, MissingExtraError
from transduce.text import LONE_SURROGATE, Tokenizer
from transduce.translation import Engine, Network, batch_by_length


@runtime_checkable
class Runtime(Protocol):
    """A program that runs translation models, with one model loaded, on the CPU.

    Ids are those of the bundle's tokenizer. Sources and targets end with `</s>`.
    """

    @property
    def name(self) -> str:
        """The program and its version, as in "CTranslate2 4.8.5"."""

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        """Ids of each text by the exported tokenizer, `</s>` included; None if there is none."""

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str] | None:
        """The text of each row of ids by the same tokenizer; None if there is none."""

    def score_targets(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """The natural log-probability of each token of each target, `</s>` included, by forced decoding."""

    def translate_greedily(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        """Greedy translations, each until `</s>`, which is included, or of `max_lengths` tokens."""


SATURATING = "whose sums of 8-bit products saturate on this processor"
"""Part of the name of a `Runtime` that does not add up products of 8 bits exactly."""


BATCH_TOKENS = 4096
"""Tokens of a batch that another program computes, padding included."""

MAX_ROWS = 64
"""Sentences of such a batch: more need more memory, as for log-probabilities, and are no faster."""


class NetworkRuntime:
    """A network that Transduce's own search can run, as `Runtime`: targets are scored as in a search, token by token.

    Args:
        name: the program that computes the network, and its version.
        network: the network.
        engine: the engine that searches with it.
        tokenizer: the tokenizer exported with the model.
    """

    def __init__(self, name: str, network: Network[Any], engine: Engine, tokenizer: Tokenizer) -> None:
        self.name = name
        self._network, self._engine, self._tokenizer = network, engine, tokenizer

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        return list(map(self._tokenizer.as_source, self._tokenizer.encode_all(texts)))

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str] | None:
        return list(map(self._tokenizer.decode, ids))

    @torch.inference_mode()
    def score_targets(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in sources]
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        pad_id = self._tokenizer.pad_id
        for indices in batch_by_length(lengths, BATCH_TOKENS, MAX_ROWS):
            batch = Batch.from_ids([sources[index] for index in indices], [targets[index] for index in indices], pad_id)
            state = self._network.start(batch.source_ids, batch.source_mask)
            last_ids = torch.full((len(indices), 1), pad_id)
            for next_ids in batch.target_ids.T:
                log_probs, state = self._network.step(last_ids, state)
                last_ids = next_ids[:, None]
                scores = log_probs.gather(-1, last_ids[..., None]).flatten().tolist()
                for index, score in zip(indices, scores, strict=True):
                    found[index].append(score)
        return [scores[: len(target)] for scores, target in zip(found, targets, strict=True)]

    def translate_greedily(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        max_length = max(max_lengths, default=1) + 1  # at its limit, the search of Transduce ends a translation
        found = self._engine.search(sources, SearchConfig(beam=1, max_extra_length=max_length, max_length=max_length))
        return [best.ids[:limit] for (best,), limit in zip(found, max_lengths, strict=True)]


@runtime_checkable
class ExportFormat(Protocol):
    """A format that bundles can be exported to; each is an instance in a module of its own."""

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions of weights that can be written, the default first."""

    @property
    def suffix(self) -> str:
        """The ending of an exported file, as in ".argosmodel"; empty where an export is a folder."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The optional packages that write the model, or compute with it for the proof."""

    def find_unsupported_features(self, bundle: Bundle) -> list[str]:
        """The settings of the model that the format cannot express, each with the reason; empty if there are none."""

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        """Writes the model: the files into the folder `path`, which exists and is empty, or one file at `path`."""

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:
        """The other program with the exported model, loaded from `path` alone.

        Raises:
            MissingExtraError: the runtime is not installed.
        """

    def read_back(self, path: Path) -> Mapping[str, Tensor] | None:
        """The weights in `path` by their names in a bundle: bit for bit in float32, else rounded.

        None if the format does not store individual weights.
        """


@dataclass(frozen=True)
class ImportedModel:
    """A model that was read from another format, and its program, for the proof.

    Args:
        config: the settings of the network.
        tensors: its weights, by their names in a bundle.
        tokenizer: the tokenizer of its texts.
        runtime: the program of the model, with the model loaded.
        source_language: a code as in "en"; empty if the model does not record it.
        target_language: the code of the target language.
        search: the settings of search that came with the model.
        precision: a key of `TOLERANCES`; another than float32 only where numbers were rounded on the way.
    """

    config: TransformerConfig
    tensors: Mapping[str, Tensor]
    tokenizer: Tokenizer
    runtime: Runtime
    source_language: str = ""
    target_language: str = ""
    search: SearchConfig = field(default_factory=SearchConfig)
    precision: str = "float32"


@runtime_checkable
class ImportFormat(Protocol):
    """A format that can be imported; each is an instance in a module of its own."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The optional packages that read the model, or compute with it for the proof."""

    def recognises(self, path: Path) -> bool:
        """Whether `path` looks like a model of this format."""

    def read(self, path: Path, tokenizer: Path | None) -> ImportedModel:
        """The model in `path`; `tokenizer` is a SentencePiece model where the format has none.

        Raises:
            UserError: a file is missing or damaged, or the model is of another kind; says what was found.
        """


SECTION = "transduce"
"""The section of Transduce in the config.json of an export, which other programs ignore."""


class ExportedSettings(Settings):
    """The settings of a model that an export keeps in the section `transduce` of its config.json."""

    model: TransformerConfig
    """The settings of the network."""

    search: SearchConfig
    """The default search settings."""

    languages: Languages = Field(default_factory=Languages)
    """Source and target language."""

    precision: str = "float32"
    """The precision of the weights."""

    @classmethod
    def of_section(cls, section: object) -> Optional["ExportedSettings"]:
        """Parse the section; None if there is none, or it is damaged."""
        try:
            # As JSON, in which pydantic's strict mode takes what Python's types would not let pass.
            return cls.model_validate_json(json.dumps(section))
        except (TypeError, ValueError):
            return None


_EXTRAS = {"ctranslate2": "ctranslate2", "transformers": "huggingface", "onnx": "onnx", "onnxruntime": "onnx"}
"""Optional packages, each with the extra that installs it."""


def import_optional(package: str, purpose: str) -> ModuleType:
    """Import an optional package; `purpose` says in the error what needs it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError:
        raise MissingExtraError(package, _EXTRAS[package], purpose) from None


def check_foreign_path(path: Path, program: str) -> None:
    """Check that another program can open a file or folder: it opens only paths that are UTF-8.

    Raises:
        ConfigError: it cannot.
    """
    if LONE_SURROGATE.search(str(path)):
        raise ConfigError(f"{path}: is not UTF-8, as paths for {program} must be: choose another name")


FORMATS = {
    "ctranslate2": "transduce.interop.ctranslate2",
    "huggingface": "transduce.interop.huggingface",
    "argos": "transduce.interop.argos",
    "marian": "transduce.interop.marian",
    "onnx": "transduce.interop.onnx",
    "transduce": "transduce.interop.int8_bundle",
}
"""The module of each format, which has it as `FORMAT`."""


def find_export_format(name: str) -> ExportFormat:
    """The export format of that name.

    Raises:
        ConfigError: there is no such format.
    """
    if name not in FORMATS:
        raise ConfigError(f"format = {name!r}: must be one of {', '.join(FORMATS)}")
    found: ExportFormat = import_module(FORMATS[name]).FORMAT
    return found


IMPORT_FORMATS = ("ctranslate2", "huggingface", "argos", "marian")
"""The formats that are `ImportFormat`s, too."""


def find_import_format(path: Path) -> tuple[str, ImportFormat]:
    """Name and format of the model in `path`.

    Raises:
        BundleError: there is no model, or it has no known format.
    """
    if not path.exists():
        raise BundleError(f"{path}: there is no such file or folder; give that of a model")
    if is_bundle(path):
        raise BundleError(f"{path}: is a bundle already: use it as it is")
    for name in IMPORT_FORMATS:
        chosen: ImportFormat = import_module(FORMATS[name]).FORMAT
        if chosen.recognises(path):
            return name, chosen
    raise BundleError(
        f"{path}: is not a model that can be imported; supported are: a folder saved by Transformers (config.json with "
        f"model_type marian or pegasus), a model of Marian (.npz), a folder of CTranslate2 (model.bin) or an Argos "
        f"package (.argosmodel)"
    )


def refuse_import(place: Path, problems: Iterable[str]) -> None:
    """Refuse the model at `place` if there are problems.

    Raises:
        BundleError: there are problems; lists all of them.
    """
    lines = "\n".join(f"  {problem}" for problem in problems)
    if lines:
        raise BundleError(f"{place}: this model cannot be imported:\n{lines}")


def find_unsupported_network_features(
    config: TransformerConfig, program: str, *, has_head_width: bool
) -> Iterator[str]:
    """Messages about features of a network that `program` lacks.

    Args:
        config: the network.
        program: the name of the other program, for messages.
        has_head_width: whether `program` stores the width of a head, so that d_k = d_v may differ from
            d_model / num_heads.
    """
    if config.architecture != "transformer":
        yield f'architecture = "{config.architecture}": {program} has no such network'
        return
    if not config.has_dot_product_attention:
        yield f'attention_score = "{config.attention_score}": {program} supports dot-product scores only'
    if config.normalization != "layer":
        yield f'normalization = "{config.normalization}": {program} supports layer normalisation only'
    if config.feed_forward == "gated":
        yield f'feed_forward = "gated": {program} supports feed-forward networks of two matrices only'
    if config.has_positions_in_attention:
        yield f'positions = "{config.positions}": {program} supports only positions that are added to embeddings'
    widths = f"d_k = {config.d_k}, d_v = {config.d_v}"
    if has_head_width and config.d_k != config.d_v:
        yield f"{widths}: {program} requires keys as wide as values"
    if not has_head_width and {config.d_k, config.d_v} != {config.d_model / config.num_heads}:
        yield f"{widths}: {program} requires d_model / num_heads, {config.d_model} / {config.num_heads}"


def find_unsupported_pieces(pieces: Sequence[str], program: str) -> list[str]:
    """Find two tokens of the same name: a list of one message, or of none."""
    twice, count = Counter(pieces).most_common(1)[0]
    return [f"the tokenizer has two tokens {twice!r}: {program} identifies tokens by their names"] if count > 1 else []


def find_unsupported_sources(tokenizer: Tokenizer, program: str) -> list[str]:
    """Find that a model was trained on sources without `</s>`, which `program` always adds: one message, or none."""
    return [] if tokenizer.ends_sources else [f"sources do not end with </s>, which {program} always adds"]


def find_unsupported_tags(tokenizer: Tokenizer, program: str) -> list[str]:
    """Find tags at the beginning of texts, where `program` leaves them to SentencePiece: one message, or none."""
    if not tokenizer.tags:
        return []
    named = ", ".join(tokenizer.tags[:3]) + (", ..." if len(tokenizer.tags) > 3 else "")
    remedy = "export to ctranslate2, huggingface or onnx, where they are read"
    return [f"the tokenizer has tags ({named}), which {program} spells like words: {remedy}"]


def render_export_card(module: str, about: Any, precision: str, **values: Any) -> str:  # noqa: ANN401
    """The model card of an export, in Markdown, from the template `card.md.jinja` beside the file `module`.

    `about` is the description of the bundle, or settings with its `library_version`, `languages` and `search`.
    """
    source, target = about.languages.source, about.languages.target
    direction = f", from {source} to {target}" if source and target else ""
    folder = Path(module).parent
    return render_template(folder, about=about, precision=precision, direction=direction, **values)
