"""CTranslate2 with a model loaded, for a parity proof and as an engine, and the settings of an exported folder."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from transduce.config import SearchConfig
from transduce.errors import BundleError, ConfigError
from transduce.interop.ctranslate2.layout import count_positions
from transduce.interop.formats import (
    BATCH_TOKENS,
    MAX_ROWS,
    SECTION,
    ExportedSettings,
    check_foreign_path,
    import_optional,
)
from transduce.interop.tokenizers import SentencePieceCodec, number_pieces
from transduce.search import Constraints, Hypothesis, Sampling, length_penalty
from transduce.text import Tokenizer
from transduce.translation import batch_by_length


def compute_type(precision: str, device: str) -> str:
    """CTranslate2's name of the arithmetic for weights in `precision`; float32 where `device` supports no other.

    CTranslate2 would choose the same, with a warning on standard error.
    """
    known = import_optional("ctranslate2", "running a model in CTranslate2").get_supported_compute_types(device)
    return precision if precision in known else "float32"


CONFIG_FILE = "config.json"


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a CTranslate2 model; CTranslate2 before version 3 wrote none."""
    path = folder / CONFIG_FILE
    try:
        found: object = json.loads(path.read_bytes())
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}): give an exported folder") from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: is not JSON: {error}; use an undamaged copy") from None
    if not isinstance(found, dict):
        raise BundleError(f"{path}: is not a JSON object; use an undamaged copy")
    return found


def read_settings(folder: Path) -> ExportedSettings:
    """Read the section `transduce` of the config.json of `folder`."""
    settings = ExportedSettings.of_section(read_config(folder).get(SECTION))
    if settings is None:
        raise BundleError(
            f"{folder / CONFIG_FILE}: has no section {SECTION!r}, or an invalid one: give a folder written by "
            "transduce export --to ctranslate2"
        )
    return settings


class _Translator:
    """A translator of CTranslate2, which reads and writes pieces, and the tokenizer whose ids stand for them."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, **options: Any) -> None:  # noqa: ANN401 - CTranslate2's
        ctranslate2 = import_optional("ctranslate2", "running a model in CTranslate2")
        self.name = f"CTranslate2 {ctranslate2.__version__}"
        check_foreign_path(folder, "CTranslate2")
        self._translator: Any = ctranslate2.Translator(str(folder), intra_threads=1, **options)
        self._tokenizer, self._ids = tokenizer, number_pieces(tokenizer)
        config = read_config(folder) if (folder / CONFIG_FILE).exists() else {}
        self._adds_source_end = bool(config.get("add_source_eos", False))

    def _source_pieces(self, sources: Iterable[Sequence[int]]) -> list[list[str]]:
        """Pieces of each source, without `</s>` where CTranslate2 appends it."""
        end = -1 if self._adds_source_end else None
        return [self._tokenizer.pieces(source)[:end] for source in sources]


class CTranslate2Runtime(_Translator):
    """CTranslate2 with a model loaded, as `Runtime`: on the CPU, on one thread.

    Args:
        folder: a CTranslate2 model, exported by Transduce or not.
        tokenizer: whose ids are read and returned; its pieces are the model's vocabulary.
        compute_type: CTranslate2's name of the arithmetic; "default" is that of the weights in the folder.
        own: the tokenizer exported with the model, if any.
        origin: suffix of the name of the program, after "CTranslate2 4.8.5".
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        compute_type: str = "default",
        *,
        own: Tokenizer | None = None,
        origin: str = "",
    ) -> None:
        super().__init__(folder, tokenizer, device="cpu", compute_type=compute_type, inter_threads=1)
        self.name += origin
        self._codec = None if own is None else SentencePieceCodec(own)

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        return None if self._codec is None else self._codec.encode(texts)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str] | None:
        return None if self._codec is None else self._codec.decode(ids)

    def score_targets(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        results = self._translator.score_batch(
            self._source_pieces(sources),
            [self._tokenizer.pieces(target)[:-1] for target in targets],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    def translate_greedily(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        results = self._translator.translate_batch(
            self._source_pieces(sources),
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max(max_lengths, default=1),
            min_decoding_length=0,
            return_end_token=True,
        )
        # Greedy search does not look ahead: a smaller limit only truncates the result.
        found = zip(results, max_lengths, strict=True)
        return [self._to_ids(result.hypotheses[0])[:limit] for result, limit in found]

    def _to_ids(self, pieces: Sequence[str]) -> list[int]:
        return [self._ids.get(piece, self._tokenizer.unknown_id) for piece in pieces]


Ids = list[list[int]]

_REMEDY = "use the engine native"
_NO_SAMPLES = f"--samples {{}}: the engine ctranslate2 does not support reproducible sampling; {_REMEDY}"


class CTranslate2Engine(_Translator):
    """CTranslate2 as a `translation.Engine`: several translators, each on one thread, as in the native engine.

    CTranslate2 has no length penalty but length^alpha. It searches without one, and the hypotheses are ranked by the
    length penalty of Transduce.

    Args:
        folder: a folder written by `transduce export --to ctranslate2`.
        device: cpu, cuda or auto.
    """

    def __init__(self, folder: Path, device: str = "auto") -> None:
        ctranslate2 = import_optional("ctranslate2", "the engine ctranslate2")
        settings, tokenizer = read_settings(folder), Tokenizer.load(folder)
        if device == "auto":
            device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
        try:
            kind, num_threads = compute_type(settings.precision, device), torch.get_num_threads()
            super().__init__(folder, tokenizer, device=device, compute_type=kind, inter_threads=num_threads)
        except ValueError as error:
            raise ConfigError(
                f"device = {device!r}: CTranslate2 supports cpu, cuda and auto, and reports: {error}"
            ) from None
        except RuntimeError as error:
            raise BundleError(f"{folder}: CTranslate2 cannot read it: {error}; use an undamaged copy") from None
        self._max_length = count_positions(settings.model, settings.search)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        for asked in constraints or (None,):
            self.check(config, asked)
        lengths = [len(source) for source in sources]
        limits = [min(config.compute_max_target_length(length), self._max_length) for length in lengths]
        batches = list(batch_by_length(lengths, config.batch_tokens, MAX_ROWS))
        found: list[Ids] = [[] for _ in sources]
        self._search_batches(sources, batches, limits, config, found)
        # The limit of a batch is its longest source's: a result longer than its own limit is searched again,
        # separately.
        shorter = (index for batch in batches for index in batch if limits[index] < limits[batch[0]])
        cut = [[index] for index in shorter if any(len(row) == limits[index] for row in found[index])]
        self._search_batches(sources, cut, limits, config, found)
        for index, rows in enumerate(found):
            if all(len(row) < limits[index] for row in rows):  # none was truncated, so all scores are correct
                found[index] = rows[:num_best]
        scored = self._score(sources, found, config.length_penalty)
        return [sorted(hypotheses, key=lambda one: -one.score)[:num_best] for hypotheses in scored]

    def sample(
        self,
        sources: Sequence[Sequence[int]],  # noqa: ARG002 - as `Engine` has them
        config: SearchConfig,  # noqa: ARG002
        num_samples: int,
        sampling: Sampling,  # noqa: ARG002
        seed: int,  # noqa: ARG002
    ) -> list[list[Hypothesis]]:
        """Refuse to sample: CTranslate2 has one sequence of random numbers, so that a sample depends on its batch."""
        raise ConfigError(_NO_SAMPLES.format(num_samples))

    def check(self, config: SearchConfig, constraints: Constraints | None = None, *, num_samples: int = 0) -> None:
        if num_samples:
            raise ConfigError(_NO_SAMPLES.format(num_samples))
        given = constraints or Constraints()
        asked = {
            "a prefix (--prefix)": bool(given.prefix),
            "required words (--require)": bool(given.required),
            "forbidden words (--forbid)": bool(given.forbidden),
            "Transduce's repetition penalty (--repetition-penalty)": config.repetition_penalty != 1.0,
            "diversity (--diversity)": config.diversity > 0,
        }
        missing = [name for name, is_asked in asked.items() if is_asked]
        if missing:
            raise ConfigError(f"the engine ctranslate2 does not support {' and '.join(missing)}; {_REMEDY}")

    def _search_batches(
        self,
        sources: Sequence[Sequence[int]],
        batches: Sequence[Sequence[int]],
        limits: Sequence[int],
        config: SearchConfig,
        found: list[Ids],
    ) -> None:
        """Search the batches, and put all hypotheses of their sources, best first, into `found`."""
        # All batches are started before waiting for the first.
        under_way = [
            self._begin_search([sources[index] for index in batch], limits[batch[0]], config) for batch in batches
        ]
        for batch, results in zip(batches, under_way, strict=True):
            for index, result in zip(batch, results, strict=True):
                found[index] = self._rank(result.result(), limits[index], config.length_penalty)

    def _begin_search(self, sources: Sequence[Sequence[int]], limit: int, config: SearchConfig) -> list[Any]:
        found: list[Any] = self._translator.translate_batch(
            self._source_pieces(sources),
            beam_size=config.beam,
            num_hypotheses=config.beam,
            length_penalty=0,
            no_repeat_ngram_size=config.no_repeat_ngram,
            max_input_length=0,
            # CTranslate2 does not count `</s>` in either length.
            max_decoding_length=limit - 1,
            min_decoding_length=min(config.min_length, limit) - 1,
            return_scores=True,
            asynchronous=True,
        )
        return found

    def _rank(self, result: Any, limit: int, alpha: float) -> Ids:  # noqa: ANN401 - of an optional package
        """Ids of all hypotheses, best first; one that does not end within the limit is cut there."""
        pairs = zip(result.hypotheses, result.scores, strict=True)
        ranking = sorted(pairs, key=lambda pair: -pair[1] / length_penalty(len(pair[0]) + 1, alpha))
        rows = [[*(self._ids[piece] for piece in pieces[: limit - 1]), self._tokenizer.end_id] for pieces, _ in ranking]
        # Hypotheses that differ only behind the limit are equal after they are cut, and are kept once.
        return [list(row) for row in dict.fromkeys(map(tuple, rows))]

    def _score(self, sources: Sequence[Sequence[int]], found: Sequence[Ids], alpha: float) -> list[list[Hypothesis]]:
        """The hypotheses with the log-probability of every token, which CTranslate2's search does not return."""
        results = self._translator.score_batch(
            self._source_pieces(source for source, rows in zip(sources, found, strict=True) for _ in rows),
            [self._tokenizer.pieces(row)[:-1] for rows in found for row in rows],
            max_batch_size=MAX_ROWS,
            max_input_length=0,
        )
        scores = (result.log_probs for result in results)
        return [[Hypothesis.from_tokens(row, next(scores), alpha) for row in rows] for rows in found]
