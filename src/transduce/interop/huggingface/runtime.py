"""Transformers with a translation model loaded for a parity proof, on the CPU."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from transduce.errors import BundleError, MissingExtraError, UserError
from transduce.model import NEVER
from transduce.translation import batch_by_length

Foreign = Any
"""An object of Transformers, which has no types here."""


def import_transformers(purpose: str) -> ModuleType:
    """Import the optional package `transformers`; `purpose` says in the error what needs it."""
    try:
        import transformers  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingExtraError("transformers", "huggingface", purpose) from None
    package: ModuleType = transformers
    return package


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Transformers shows no progress bars and logs only errors within the block; the caller checks the rest."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # Marian's tokenizer wants to have sacremoses for a method that it does not call.
            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


BATCH_TOKENS = 4096
MOST_LOGITS = 2**26
"""Logits of a batch, padding included: a quarter of a gigabyte, and as much for their softmax."""

Rows = Sequence[Sequence[int]]


@dataclass(frozen=True)
class TokenIdMap:
    """The ids of tokens in a model of Transformers, for each id of a bundle's tokenizer.

    Args:
        sources: for each id of the bundle, the id in a source; None if sources have no such token.
        targets: for each id of the bundle, the id in a target.
    """

    sources: Sequence[int | None]
    targets: Sequence[int | None]

    @cached_property
    def ours_in_sources(self) -> dict[int | None, int]:
        """The bundle's id for each id of Transformers in a source."""
        return {theirs: ours for ours, theirs in enumerate(self.sources)}

    @cached_property
    def ours_in_targets(self) -> dict[int | None, int]:
        """The bundle's id for each id of Transformers in a target."""
        return {theirs: ours for ours, theirs in enumerate(self.targets)}


class TransformersRuntime:
    """Transformers with a model loaded, as `Runtime`.

    Args:
        model: the model of Transformers.
        tokenizer: the tokenizer of Transformers.
        ids: the numbers of its tokens; None if they are those of the bundle.
    """

    def __init__(self, model: Foreign, tokenizer: Foreign, ids: TokenIdMap | None = None) -> None:
        transformers = import_transformers("running a model in Transformers")
        self.name = f"Transformers {transformers.__version__}"
        self._model, self._tokenizer, self._config = model, tokenizer, model.config
        self._ids = ids or TokenIdMap(range(self._config.vocab_size), range(self._config.vocab_size))
        # What the folder says may ask for a beam, or force the last token.
        self._model.generation_config = transformers.GenerationConfig(
            eos_token_id=self._config.eos_token_id,
            pad_token_id=self._config.pad_token_id,
            decoder_start_token_id=self._config.decoder_start_token_id,
            suppress_tokens=[self._config.pad_token_id],
        )

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        rows = self._tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
        return [[self._ids.ours_in_sources[theirs] for theirs in row] for row in rows]

    def decode(self, ids: Rows) -> list[str] | None:
        theirs = ((self._ids.targets[ours] for ours in row) for row in ids)
        rows = [[token for token in row if token is not None] for row in theirs]
        return [self._tokenizer.decode(row, skip_special_tokens=True) for row in rows]

    def forced_scores(self, sources: Rows, targets: Rows) -> list[list[float]]:
        """Scores without `<pad>` in the softmax; a token that targets do not have scores `NEVER`, as in Transduce."""
        theirs = [[self._ids.targets[ours] for ours in target] for target in targets]
        found: list[list[float]] = [[] for _ in sources]
        for indices in self._batches([max(map(len, pair)) for pair in zip(sources, targets, strict=True)]):
            scores = self._score(self._source(sources, indices), [theirs[index] for index in indices])
            for index, row in zip(indices, scores, strict=True):
                found[index] = [
                    NEVER if token is None else score for token, score in zip(theirs[index], row, strict=True)
                ]
        return found

    def greedy(self, sources: Rows, max_lengths: Sequence[int]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in sources]
        for indices in self._batches([max(pair) for pair in zip(map(len, sources), max_lengths, strict=True)]):
            limit = max(max_lengths[index] for index in indices)
            outputs = self._model.generate(**self._source(sources, indices), max_new_tokens=limit).tolist()
            for index, output in zip(indices, outputs, strict=True):
                row = output[1:]  # without the start symbol
                end = row.index(self._config.eos_token_id) + 1 if self._config.eos_token_id in row else len(row)
                # Greedy search does not look ahead: what a smaller limit leaves is the beginning.
                found[index] = [self._ids.ours_in_targets[token] for token in row[: min(end, max_lengths[index])]]
        return found

    @torch.inference_mode()
    def _score(self, source: dict[str, Tensor], targets: Sequence[Sequence[int | None]]) -> list[list[float]]:
        """The log-probability of each token; any number for one that is None."""
        start, pad = self._config.decoder_start_token_id, self._config.pad_token_id
        read = [[pad if token is None else token for token in row] for row in targets]
        logits = self._model(**source, decoder_input_ids=self._pad([[start, *row[:-1]] for row in read])).logits
        logits = logits.float().index_fill(-1, torch.tensor([pad]), -torch.inf)
        scores = logits.log_softmax(dim=-1).gather(-1, self._pad(read)[..., None]).squeeze(-1).tolist()
        return [row[: len(target)] for row, target in zip(scores, targets, strict=True)]

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        longest, most = max(lengths, default=0), self._config.max_position_embeddings
        if longest > most:
            raise UserError(f"a sentence has {longest} tokens; {self.name} has positions for {most} of this model")
        return batch_by_length(lengths, min(BATCH_TOKENS, MOST_LOGITS // self._config.vocab_size))

    def _source(self, sources: Rows, indices: Sequence[int]) -> dict[str, Tensor]:
        ids = self._pad([[self._ids.sources[ours] for ours in sources[index]] for index in indices])
        return {"input_ids": ids, "attention_mask": (ids != self._config.pad_token_id).long()}

    def _pad(self, rows: Sequence[Sequence[int | None]]) -> Int[Tensor, "rows length"]:
        longest = max(map(len, rows))
        return torch.tensor([[*row, *[self._config.pad_token_id] * (longest - len(row))] for row in rows])


def load_folder(folder: Path, precision: str = "auto") -> tuple[Foreign, Foreign]:
    """Load the model and the tokenizer of a folder by the `Auto` classes of Transformers, for evaluation.

    Nothing outside the folder is read, and no code in it is run.

    Args:
        folder: a folder that Transformers, or an export, has written.
        precision: that of the weights, as in "float32"; "auto" is that of the file.
    """
    transformers = import_transformers(f"loading {folder}")
    place = {"pretrained_model_name_or_path": str(folder), "local_files_only": True, "trust_remote_code": False}
    try:
        with quiet(transformers):
            model, found = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                **place, dtype=precision, weights_only=True, output_loading_info=True
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(**place)
    except Exception as error:
        if "weights_only" in str(error):  # of torch, which refuses such a pickle and says how to run it all the same
            raise BundleError(
                f"{folder}: its weights are a pickle (.bin) with something else in it than numbers, which could run "
                f"any program; it was not read: get the model as model.safetensors, from whoever made it"
            ) from error
        raise BundleError(f"{folder}: Transformers cannot load it: {error}") from error
    for name in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if found[name]:
            raise BundleError(f"{folder}: Transformers has {name.replace('_', ' ')}: {sorted(map(str, found[name]))}")
    return model.eval(), tokenizer
