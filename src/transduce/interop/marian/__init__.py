"""Models of Marian: export with the files that `marian-decoder` needs; import of models that Marian has trained.

The program of a proof is Marian itself, or CTranslate2 with a converted model: on the CPU, on one thread.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from pydantic import ValidationError
from torch import Tensor

from transduce.bundle import Bundle, collect_model_tensors
from transduce.config import SearchConfig, describe_file_error
from transduce.errors import BundleError, ParityError, TransduceError
from transduce.interop.bundle_tensors import TokenRows
from transduce.interop.ctranslate2.layout import count_positions
from transduce.interop.ctranslate2.runtime import CTranslate2Runtime
from transduce.interop.formats import (
    ImportedModel,
    Runtime,
    find_unsupported_network_features,
    find_unsupported_pieces,
    find_unsupported_sources,
    find_unsupported_tags,
    import_optional,
    refuse_import,
    render_export_card,
)
from transduce.interop.marian.files import (
    DECODER_FILE,
    MODEL_FILE,
    NEW_MODEL_FILE,
    SENTENCEPIECE,
    Archive,
    MarianSettings,
    make_decoder_settings,
    make_model_settings,
    name_unnamed_row,
    read_archive,
    read_vocabulary,
    to_marian_order,
    write_archive,
    write_vocabulary,
)
from transduce.interop.marian.layout import (
    NEW_POSITIONS,
    OUTPUT_BIAS,
    POSITIONS,
    add_positions,
    find_unknown_arrays,
    find_unsupported_settings,
    from_arrays,
    map_to_marian_rows,
    read_config,
    select_token_matrices,
    to_arrays,
    to_new_arrays,
)
from transduce.interop.tokenizers import (
    MODELS,
    SPECIAL,
    ForeignVocabulary,
    SentencePieceCodec,
    list_pieces,
    make_tokenizer,
    number_pieces,
)
from transduce.model import as_transformer
from transduce.storage import write_files
from transduce.text import VOCABULARY, Tokenizer


def find_marian() -> Path | None:
    """Find the command `pymarian`, beside this Python or on the PATH."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("pymarian", path=places)
    return None if found is None else Path(found)


class MarianRuntime:
    """Marian as `Runtime`: started for every call, one sentence at a time, reading and writing pieces.

    Its scores have five decimals.

    Args:
        marian: the command.
        model: an .npz file of the type `transformer-new`, with a table of positions.
        vocabularies: those of source and target, as YAML.
        tokenizer: the tokenizer exported with the model, whose ids are read and returned.
    """

    def __init__(self, marian: Path, model: Path, vocabularies: tuple[Path, Path], tokenizer: Tokenizer) -> None:
        self._marian, self._model, self._vocabularies = marian, model, vocabularies
        self._tokenizer, self._ids = tokenizer, number_pieces(tokenizer)
        self._codec = SentencePieceCodec(tokenizer)
        self._num_positions = read_archive(model).settings.number("max-length")
        version = self._run(["--version"])
        self._version = (version.stdout + version.stderr).split()[0].removeprefix("v")

    @property
    def name(self) -> str:
        return f"Marian {self._version}"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self._codec.encode(texts)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return self._codec.decode(ids)

    def score_targets(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        with TemporaryDirectory() as temporary:
            texts = [Path(temporary) / side for side in ("source", "target")]
            for path, rows in zip(texts, (sources, targets), strict=True):
                self._write_pieces(path, rows)
            lines = self._run_with_model("score", "--train-sets", *map(str, texts), "--word-scores")
        return [[float(score) for score in line.partition("WordScores=")[2].split()] for line in lines]

    def translate_greedily(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in sources]
        for indices, factor in self._group_by_factor(list(map(len, sources)), max_lengths):
            with TemporaryDirectory() as temporary:
                path = Path(temporary) / "source"
                self._write_pieces(path, [sources[index] for index in indices])
                options = ["--beam-size", "1", "--max-length-factor", str(factor), "--allow-unk", "--allow-special"]
                lines = self._run_with_model("decode", "--input", str(path), *options)
            for index, line in zip(indices, lines, strict=True):
                # Greedy search does not look ahead: a smaller limit only truncates the result.
                found[index] = self._to_ids([*filter(None, line.split(" ")), "</s>"])[: max_lengths[index]]
        return found

    def _group_by_factor(self, lengths: Sequence[int], limits: Sequence[int]) -> Iterator[tuple[list[int], float]]:
        """Groups of indices of sentences, each with the largest ratio of the lengths of translation and source.

        Marian has one such factor for all that it translates, and fails where it comes to the end of its positions.
        """
        group: list[int] = []
        factor = 0.0
        for index in sorted(range(len(lengths)), key=lengths.__getitem__):
            own = (limits[index] - 0.5) / lengths[index]  # Marian rounds up the number of tokens
            if group and max(factor, own) * lengths[index] > self._num_positions:
                yield group, factor
                group, factor = [], 0.0
            group.append(index)
            factor = max(factor, own)
        if group:
            yield group, factor

    def _run_with_model(self, *arguments: str) -> list[str]:
        """The lines that Marian writes, for batches of one sentence: in larger ones it confuses masks."""
        options = ["--models" if arguments[0] == "decode" else "--model", str(self._model)]
        options += ["--vocabs", *map(str, self._vocabularies)]
        options += ["--mini-batch", "1", "--maxi-batch", "1", "--cpu-threads", "1", "--workspace", "128"]
        options += ["--log-level", "error"]
        return self._run([*arguments, *options]).stdout.split("\n")[:-1]

    def _run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(self._marian), *arguments], capture_output=True, encoding="utf-8", errors="replace", check=False
        )
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "Error" in line]
            raise TransduceError(f"{self._marian} failed: {' '.join(said or done.stderr.splitlines()[-1:])}")
        return done

    def _write_pieces(self, path: Path, rows: Sequence[Sequence[int]]) -> None:
        """Write a line of pieces for each row, without `</s>`, which Marian adds."""
        lines = [" ".join(self._tokenizer.pieces(row)[:-1]) + "\n" for row in rows]
        path.write_text("".join(lines), encoding="utf-8", newline="\n")

    def _to_ids(self, pieces: Sequence[str]) -> list[int]:
        return [self._ids.get(piece, self._tokenizer.unknown_id) for piece in pieces]


def load_converted(model: Path, vocabularies: tuple[Path, Path], tokenizer: Tokenizer) -> CTranslate2Runtime:
    """CTranslate2 with a Marian model, through CTranslate2's own converter; see `MarianRuntime` for the arguments."""
    converters = import_optional("ctranslate2", f"running {model}").converters
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "converted"
        try:
            converters.MarianConverter(str(model), [str(path) for path in vocabularies]).convert(str(folder))
        except (ValueError, KeyError, RuntimeError) as error:
            raise BundleError(f"{model}: CTranslate2 cannot convert it: {error}") from error
        origin = ", through its converter of Marian models"
        return CTranslate2Runtime(folder, tokenizer, "float32", own=tokenizer, origin=origin)


VOCABULARY_FILE = "vocab.yml"
VOCABULARY_FILES = ("source.vocab.yml", "target.vocab.yml")
SENTENCEPIECE_FILE = "vocab.spm"


class MarianFormat:
    """The `ExportFormat` and `ImportFormat` of Marian: a folder with one model in Marian's two types of a Transformer.

    Marian 1.12 computes `transformer-new.npz` as Transduce does. Other programs read `model.npz`, of the type
    `transformer`; CTranslate2's converter computes it as Transduce does, but Marian itself has other positions there.
    """

    precisions = ("float32", "float16")
    suffix = ""

    @property
    def packages(self) -> tuple[str, ...]:
        """None for an export where Marian itself is installed, as `pymarian`."""
        return ("ctranslate2",) if find_marian() is None else ()

    def find_unsupported_features(self, bundle: Bundle) -> list[str]:
        config, tokenizer = bundle.model_config, bundle.load_tokenizer()
        found = list(find_unsupported_network_features(config, "Marian", has_head_width=False))
        if config.attention_score == "dot":
            found.append('attention_score = "dot": Marian divides by sqrt(d_k)')
        if config.activation == "gelu":
            found.append('activation = "gelu": exact in some versions of Marian, but x * sigmoid(1.702 x) in others')
        pieces = tokenizer.pieces(range(tokenizer.pad_id))
        found += [*find_unsupported_sources(tokenizer, "Marian"), *find_unsupported_pieces(pieces, "Marian")]
        if divided := next((piece for piece in pieces if set(piece) & {" ", "\n", "\r"}), None):
            found.append(f"the tokenizer has the token {divided!r}: Marian splits tokens at spaces and line ends")
        if tokenizer.is_joint:  # otherwise Marian is given pieces
            found += find_unsupported_tags(tokenizer, "Marian")
        return found

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        """Write the model to the folder `path`. With weights in float16, programs still compute in float32 on a CPU."""
        description, tokenizer = bundle.description, bundle.load_tokenizer()
        model = as_transformer(bundle.load_model(), "Marian")
        config, length = description.model, count_positions(description.model, description.search)
        with torch.no_grad():
            arrays = to_arrays(config, collect_model_tensors(model), model.positions(length))
        for name, settings, weights in (
            (MODEL_FILE, make_model_settings(config, length), arrays),
            (NEW_MODEL_FILE, make_model_settings(config, length, is_new=True), to_new_arrays(config, arrays)),
        ):
            write_archive(path / name, settings, _round_matrices(weights, getattr(torch, precision)))
        for name, pieces in _list_vocabularies(tokenizer).items():
            write_vocabulary(path / name, pieces)
        is_joint, names = tokenizer.is_joint, _vocabulary_names(tokenizer)
        files: dict[str, str | bytes] = {
            **tokenizer.files,
            DECODER_FILE: make_decoder_settings(description, [SENTENCEPIECE_FILE] * 2 if is_joint else names),
            "README.md": render_export_card(__file__, description, precision, is_joint=is_joint, tags=tokenizer.tags),
        }
        if is_joint:
            files[SENTENCEPIECE_FILE] = to_marian_order(tokenizer.model_bytes)
        write_files(path, files)

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:
        """Load Marian if the package `pymarian` is installed, otherwise CTranslate2 by its converter."""
        source, target = (path / name for name in _vocabulary_names(tokenizer))
        own = Tokenizer.load(path)
        if own.is_joint:
            own = Tokenizer.from_bytes(to_marian_order((path / SENTENCEPIECE_FILE).read_bytes()), SENTENCEPIECE_FILE)
        if (marian := find_marian()) is not None:
            return MarianRuntime(marian, path / NEW_MODEL_FILE, (source, target), own)
        return load_converted(path / MODEL_FILE, (source, target), own)

    def read_back(self, path: Path) -> Mapping[str, Tensor]:
        """The weights of `model.npz`, after a check that the other file has the same."""
        archive = read_archive(path / MODEL_FILE)
        rows = map_to_marian_rows(archive.arrays[OUTPUT_BIAS].size(1) + 1)
        matrices = select_token_matrices(archive.settings, archive.arrays, TokenRows(rows, rows))
        config = read_config(archive, matrices)
        newer = read_archive(path / NEW_MODEL_FILE).arrays
        for name, array in to_new_arrays(config, archive.arrays).items():
            # Embeddings are multiplied there, and in 16 bits rounded once more.
            rounding = 2**-10 if name.endswith("Wemb") else 0.0
            if name not in newer or not torch.allclose(newer[name], array, rtol=rounding, atol=rounding**2):
                raise ParityError(f"{path / NEW_MODEL_FILE}: {name} differs from {MODEL_FILE}")
        return from_arrays(config, archive.arrays, matrices)

    def recognises(self, path: Path) -> bool:
        return path.suffix == ARCHIVE if path.is_file() else any(path.glob(f"*{ARCHIVE}"))

    def read(self, path: Path, tokenizer: Path | None) -> ImportedModel:
        """Positions are those that Marian computes, as a table. The program to compare with is CTranslate2, by its
        converter, which is given that table, too, as otherwise it takes another. Marian itself adds 1e-6 to variances
        where all others add 1e-5: scores differ by some 1e-5 nats per token.
        """
        places = find_model_paths(path, tokenizer)
        archive = read_archive(places.model)
        try:
            refuse_import(places.model, find_unsupported_settings(archive))
            return _read_model(archive._replace(arrays=add_positions(archive.arrays)), places, tokenizer)
        except KeyError as error:
            raise BundleError(f"{places.model}: has no array {error}, which its settings require") from None
        except (IndexError, RuntimeError) as error:
            raise BundleError(f"{places.model}: its arrays do not match: {error}") from None


FORMAT = MarianFormat()


def _vocabulary_names(tokenizer: Tokenizer) -> list[str]:
    return [VOCABULARY_FILE] * 2 if tokenizer.is_joint else list(VOCABULARY_FILES)


def _list_vocabularies(tokenizer: Tokenizer) -> dict[str, list[str]]:
    """The pieces of each file in Marian's order; pieces that one side never has are placeholders there."""
    pieces = tokenizer.pieces(map_to_marian_rows(tokenizer.vocabulary)[:-1])
    if tokenizer.is_joint:
        return {VOCABULARY_FILE: pieces}
    _, source_only, target_only = list_pieces(tokenizer)
    others = zip(VOCABULARY_FILES, (set(target_only), set(source_only)), strict=True)
    return {
        name: [name_unnamed_row(row) if piece in other else piece for row, piece in enumerate(pieces)]
        for name, other in others
    }


def _round_matrices(arrays: Mapping[str, Tensor], precision: torch.dtype) -> dict[str, Tensor]:
    """Matrices in `precision`; vectors and tables of positions stay in float32, being small."""

    def is_small(name: str, array: Tensor) -> bool:
        return array.ndim == 1 or len(array) == 1 or name.endswith((POSITIONS, NEW_POSITIONS))

    return {name: array if is_small(name, array) else array.to(precision) for name, array in arrays.items()}


ARCHIVE = ".npz"

_VOCABULARIES = (SENTENCEPIECE, ".yml", ".yaml", ".json")


@dataclass(frozen=True)
class ModelPaths:
    """The files of one model.

    Args:
        model: the .npz file.
        vocabularies: those of source and target, which may be one file.
        decoder: the settings in decoder.yml; empty if there is none.
    """

    model: Path
    vocabularies: tuple[Path, Path]
    decoder: MarianSettings


def find_model_paths(path: Path, tokenizer: Path | None = None) -> ModelPaths:
    """Find the files of the model at `path`, an .npz file or the folder of one.

    Vocabularies are the files beside the model that decoder.yml names, or the only one with vocab in its name; if there
    is none, the SentencePiece model `tokenizer`, whose pieces then are the rows of the embeddings.
    """
    folder = path if path.is_dir() else path.parent
    decoder = _read_decoder_settings(folder / DECODER_FILE)
    model = _find_model(folder, decoder) if path.is_dir() else path
    if not decoder.values:  # Marian's training calls it so
        decoder = _read_decoder_settings(model.with_name(f"{model.name}.{DECODER_FILE}"))
    return ModelPaths(model, _find_vocabularies(folder, decoder, tokenizer), decoder)


def _read_decoder_settings(path: Path) -> MarianSettings:
    if not path.is_file():
        return MarianSettings({}, str(path))
    try:
        return MarianSettings.parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: cannot be read: {error}") from None


def _find_model(folder: Path, decoder: MarianSettings) -> Path:
    """The model of the usual name, the one that decoder.yml names, or the only one."""
    named = [folder / MODEL_FILE, *(folder / Path(name).name for name in decoder.texts("models"))]
    if found := [path for path in named if path.is_file()]:
        return found[0]
    models = sorted(folder.glob(f"*{ARCHIVE}"))
    if len(models) != 1:
        raise BundleError(
            f"{folder}: has {len(models)} models ({', '.join(path.name for path in models)}): give the file of one"
        )
    return models[0]


def _find_vocabularies(folder: Path, decoder: MarianSettings, tokenizer: Path | None) -> tuple[Path, Path]:
    paths = [folder / Path(name).name for name in decoder.texts("vocabs")]
    if not paths:
        named = sorted(path for path in folder.glob("*vocab*") if path.suffix in _VOCABULARIES)
        # Our own exports have both, with the same pieces.
        paths = [path for path in named if path.suffix == SENTENCEPIECE] or named
        if not paths and tokenizer is not None and tokenizer.is_file():
            return tokenizer, tokenizer
        if not paths:
            raise BundleError(
                f"{folder}: has no vocabulary: add one with vocab in its name, as in vocab.yml or vocab.spm, or give a "
                "SentencePiece model with --tokenizer"
            )
        if len(paths) != 1:
            raise BundleError(
                f"{folder}: has {len(paths)} vocabularies ({', '.join(path.name for path in paths)}): name that of "
                f"the source and that of the target in {folder / DECODER_FILE}, as in vocabs: [source.yml, target.yml]"
            )
    if len(paths) > 2:
        raise BundleError(f"{decoder.name}: names {len(paths)} vocabularies, but must name those of source and target")
    return paths[0], paths[-1]


_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?")
_DEFAULTS = {
    "transformer-decoder-autoreg": "self-attention",
    "transformer-guided-alignment-layer": "last",
    "transformer-no-projection": "false",
    "transformer-postprocess-emb": "d",
}
"""Settings that older models lack and CTranslate2's converter needs."""


def _read_model(archive: Archive, places: ModelPaths, given: Path | None) -> ImportedModel:
    theirs = _read_tokens(archive, places)
    if given is None and (places.model.parent / VOCABULARY).is_file():
        tokenizer = _load_exported_tokenizer(theirs, places)
        rows = TokenRows(map_to_marian_rows(tokenizer.vocabulary), map_to_marian_rows(tokenizer.vocabulary))
    else:
        tokenizer = _make_tokenizer(theirs, places, given)
        rows = theirs.rows(tokenizer)
    matrices = select_token_matrices(archive.settings, archive.arrays, rows)
    config = read_config(archive, matrices)
    if unknown := find_unknown_arrays(config, archive.arrays):
        raise BundleError(f"{places.model}: unsupported arrays: {', '.join(unknown[:5])}")
    return ImportedModel(
        config=config,
        tensors=from_arrays(config, archive.arrays, matrices),
        tokenizer=tokenizer,
        runtime=_load_runtime(archive, theirs, tokenizer),
        search=_read_search(places.decoder),
    )


def _read_tokens(archive: Archive, places: ModelPaths) -> ForeignVocabulary:
    names = (name if name in archive.arrays else "Wemb" for name in ("encoder_Wemb", "decoder_Wemb"))
    num_rows = [len(archive.arrays[name]) for name in names]
    sources, targets = (read_vocabulary(path, num) for path, num in zip(places.vocabularies, num_rows, strict=True))
    return ForeignVocabulary(sources, targets)


def _load_exported_tokenizer(tokens: ForeignVocabulary, places: ModelPaths) -> Tokenizer:
    """The tokenizer beside an exported model, with a SentencePiece model for each language."""
    folder = places.model.parent
    tokenizer = Tokenizer.load(folder)
    ours = tokenizer.pieces(map_to_marian_rows(tokenizer.vocabulary)[:-1])
    theirs = zip(tokens.sources, tokens.targets, strict=False)
    if len(ours) != len(tokens.sources) or not all(piece in both for piece, both in zip(ours, theirs, strict=False)):
        raise BundleError(f"{folder / VOCABULARY}: does not have the pieces of {places.vocabularies[0].name}")
    return tokenizer


def _make_tokenizer(tokens: ForeignVocabulary, places: ModelPaths, given: Path | None) -> Tokenizer:
    """A tokenizer from SentencePiece models that are given, lie beside the model, or are the vocabularies."""
    folder = places.model.parent
    lies_there = any(all((folder / name).is_file() for name in names) for names in MODELS)
    if given is not None or lies_there or places.vocabularies[0].suffix != SENTENCEPIECE:
        sources, targets = (
            [*SPECIAL, *(one for one in side if one not in SPECIAL)] for side in (tokens.sources, tokens.targets)
        )
        return make_tokenizer(ForeignVocabulary(sources, targets), folder, given)
    source, target = places.vocabularies
    return tokens.make_tokenizer((source.read_bytes(), target.read_bytes()), str(folder))


def _load_runtime(archive: Archive, tokens: ForeignVocabulary, tokenizer: Tokenizer) -> CTranslate2Runtime:
    lacking = {name: value for name, value in _DEFAULTS.items() if name not in archive.settings.values}
    text = archive.text.rstrip() + "".join(f"\n{name}: {value}" for name, value in lacking.items()) + "\n"
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_archive(folder / "model.npz", text, archive.arrays)
        vocabularies = folder / "source.yml", folder / "target.yml"
        for path, side in zip(vocabularies, (tokens.sources, tokens.targets), strict=True):
            write_vocabulary(path, side)
        return load_converted(folder / "model.npz", vocabularies, tokenizer)


def _read_search(decoder: MarianSettings) -> SearchConfig:
    """The search in decoder.yml; Marian's exponent of the length is kept, though its base is a little larger."""
    names = {"beam-size": "beam", "normalize": "length_penalty"}
    given = {ours: decoder.text(theirs) for theirs, ours in names.items() if theirs in decoder.values}
    values = [f'"{name}": {text if _NUMBER.fullmatch(text) else json.dumps(text)}' for name, text in given.items()]
    try:
        return SearchConfig.model_validate_json(f"{{{', '.join(values)}}}")
    except ValidationError as error:
        raise BundleError(f"{decoder.name}: {describe_file_error(error)}") from None
