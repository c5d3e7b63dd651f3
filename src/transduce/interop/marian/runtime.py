"""Marian, or CTranslate2 with a converted Marian model, loaded for a parity proof: on the CPU, on one thread."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from transduce.errors import BundleError, TransduceError
from transduce.interop.conversion import SentencePieceCodec, number_pieces
from transduce.interop.ctranslate2.runtime import CTranslate2Runtime, import_ctranslate2
from transduce.interop.marian.files import read_archive
from transduce.text import Tokenizer


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
        tokenizer: whose ids are read and returned.
        pieces: the tokenizer that travels with the model.
    """

    def __init__(
        self,
        marian: Path,
        model: Path,
        vocabularies: tuple[Path, Path],
        tokenizer: Tokenizer,
        pieces: SentencePieceCodec,
    ) -> None:
        self._marian, self._model, self._vocabularies = marian, model, vocabularies
        self._tokenizer, self._pieces = tokenizer, pieces
        self._ids = number_pieces(tokenizer)
        self._num_positions = read_archive(model).settings.number("max-length")
        version = self._run(["--version"])
        self._version = (version.stdout + version.stderr).split()[0].removeprefix("v")

    @property
    def name(self) -> str:
        return f"Marian {self._version}"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self._pieces.encode(texts)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return self._pieces.decode(ids)

    def forced_scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        with TemporaryDirectory() as temporary:
            texts = [Path(temporary) / side for side in ("source", "target")]
            for path, rows in zip(texts, (sources, targets), strict=True):
                self._write_pieces(path, rows)
            lines = self._run_with_model("score", "--train-sets", *map(str, texts), "--word-scores")
        return [[float(score) for score in line.partition("WordScores=")[2].split()] for line in lines]

    def greedy(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in sources]
        for indices, factor in self._group_by_factor(list(map(len, sources)), max_lengths):
            with TemporaryDirectory() as temporary:
                path = Path(temporary) / "source"
                self._write_pieces(path, [sources[index] for index in indices])
                options = ["--beam-size", "1", "--max-length-factor", str(factor), "--allow-unk", "--allow-special"]
                lines = self._run_with_model("decode", "--input", str(path), *options)
            for index, line in zip(indices, lines, strict=True):
                # Greedy search does not look ahead: what a smaller limit leaves is the beginning.
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


def load_converted(
    model: Path, vocabularies: tuple[Path, Path], tokenizer: Tokenizer, pieces: SentencePieceCodec
) -> CTranslate2Runtime:
    """CTranslate2 with a Marian model, through CTranslate2's own converter of such models.

    Args:
        model: an .npz file.
        vocabularies: of source and target, as YAML.
        tokenizer: whose ids are read and returned.
        pieces: the tokenizer that travels with the model.
    """
    import_ctranslate2(f"running {model}")
    from ctranslate2.converters import MarianConverter  # noqa: PLC0415 - optional

    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "converted"
        try:
            MarianConverter(str(model), [str(path) for path in vocabularies]).convert(str(folder))
        except (ValueError, KeyError, RuntimeError) as error:
            raise BundleError(f"{model}: CTranslate2 cannot convert it: {error}") from error
        origin = ", through its converter of Marian models"
        return CTranslate2Runtime(folder, tokenizer, "float32", codec=pieces, origin=origin)
