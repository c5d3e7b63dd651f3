"""Batches of token ids, padded to rectangles, and the plan of an epoch: its pairs, and their batches."""

import hashlib
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transduce.config import TextConfig
from transduce.data.preparation import PreparedData, read_pairs
from transduce.data.store import TokenStore, create_store, explain_cache_errors
from transduce.data.training_text import iterate_chunks
from transduce.errors import RunError
from transduce.text import augment_pairs
from transduce.text.letter_case import has_dotless_i

TokenIds: TypeAlias = Sequence[int] | np.ndarray

MAX_SPELLED_SAMPLING = 64
"""Characters up to which the name of an epoch's folder spells out how its text is sampled; longer ones are a digest, as
some file systems have names of at most 143 bytes."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Sources and their targets, each ending in `</s>`, padded on the right; a mask is True on real tokens."""

    source_ids: Int[Tensor, "batch source"]
    source_mask: Bool[Tensor, "batch source"]
    target_ids: Int[Tensor, "batch target"]
    target_mask: Bool[Tensor, "batch target"]

    @classmethod
    def from_ids(cls, sources: Sequence[TokenIds], targets: Sequence[TokenIds], pad_id: int) -> "Batch":
        """Row n holds `sources[n]` and `targets[n]`, which already end in `</s>`; ids become int64."""
        return cls(*_pad(sources, pad_id), *_pad(targets, pad_id))

    @property
    def num_target_tokens(self) -> int:
        """Real target tokens, `</s>` included: the terms of the loss."""
        return int(self.target_mask.sum())

    @property
    def padding_share(self) -> float:
        """Share of the positions of both sides that hold padding, from 0 to 1."""
        num_real = int(self.source_mask.sum()) + int(self.target_mask.sum())
        return 1 - num_real / (self.source_mask.numel() + self.target_mask.numel())

    def mask_loss(self) -> "Batch":
        """The same batch with no loss and no gradient: all of its target tokens are masked."""
        return replace(self, target_mask=torch.zeros_like(self.target_mask))

    def repeat(self, count: int) -> "Batch":
        """All rows in order, `count` times."""
        return self if count == 1 else Batch(**{name: part.repeat(count, 1) for name, part in vars(self).items()})

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch in the memory of `device`."""
        return Batch(**{name: part.to(device) for name, part in vars(self).items()})

    def split_by_tokens(self, max_tokens: int) -> list["Batch"]:
        """The same rows, in order, in batches of at most `max_tokens` per side, padding included, or of one row."""
        width = max(self.source_ids.size(1), self.target_ids.size(1))
        num_rows = max(1, max_tokens // width)
        if num_rows >= len(self.source_ids):
            return [self]
        return self._cut_batches(lambda side: torch.split(side, num_rows))

    def split_into(self, count: int) -> list["Batch"]:
        """The same rows, in order, in `count` batches of nearly equal size, or one batch per row."""
        num_parts = min(count, len(self.source_ids))
        return [self] if num_parts == 1 else self._cut_batches(lambda side: torch.tensor_split(side, num_parts))

    def _cut_batches(self, cut: Callable[[Tensor], Sequence[Tensor]]) -> list["Batch"]:
        """Batches of the rows that `cut` takes of each tensor."""
        sides = (self.source_ids, self.source_mask), (self.target_ids, self.target_mask)
        sources, targets = (zip(cut(ids), cut(mask), strict=True) for ids, mask in sides)
        return [
            Batch(*_trim_padding(*source), *_trim_padding(*target))
            for source, target in zip(sources, targets, strict=True)
        ]


def _trim_padding(
    ids: Int[Tensor, "batch tokens"], mask: Bool[Tensor, "batch tokens"]
) -> tuple[Int[Tensor, "batch longest"], Bool[Tensor, "batch longest"]]:
    longest = int(mask.sum(dim=1).max())
    return ids[:, :longest], mask[:, :longest]


def _pad(rows: Sequence[TokenIds], pad_id: int) -> tuple[Int[Tensor, "batch tokens"], Bool[Tensor, "batch tokens"]]:
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, pad_id, dtype=np.int64)
    # In row-major order the True positions of the mask are the tokens of all rows, one row after the other.
    ids[mask] = np.concatenate(rows)
    return torch.from_numpy(ids), torch.from_numpy(mask)


def measure_longest_sides(lengths: Int[np.ndarray, "pairs 2"]) -> Int[np.ndarray, "pairs"]:
    """Tokens of the longer side of each pair."""
    longer: np.ndarray = np.maximum(lengths[:, 0], lengths[:, 1])  # lengths.max(axis=1) takes twenty times as long
    return longer


def plan_batches(
    lengths: Int[np.ndarray, "pairs 2"],
    batch_tokens: int,
    seed: int,
    epoch: int,
    pairs: Int[np.ndarray, "seen"] | None = None,
) -> list[Int[np.ndarray, "_"]]:
    """Batches of pairs of similar length (paper 5.1), in random order.

    A pure function of its arguments, so that every process and every resumed run has the same plan. Ten million pairs
    take several seconds; memory, including lengths of two bytes each, is 28 bytes per pair.

    Args:
        lengths: tokens of the source and of the target of every pair, `</s>` included.
        batch_tokens: maximum number of tokens on either side of a batch, padding included; a longer pair is its own
            batch.
        seed: the seed of the run.
        epoch: the number of the epoch, from 0.
        pairs: indices of the pairs, each as often as the epoch has it; default: every pair once.

    Returns:
        The indices of the pairs of each batch.
    """
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    order = random.permutation(np.arange(len(lengths), dtype=np.int32) if pairs is None else pairs)
    longest = measure_longest_sides(lengths)
    # Within equal longest side, sort by source minus target length, alternating direction, so that neighbouring pairs
    # have similar lengths on both sides. Sorting is stable, so the shuffle decides between equals.
    turning = lengths[:, 0] - lengths[:, 1]
    np.negative(turning, out=turning, where=longest % 2 == 0)
    for key in (turning, longest):
        order = order[np.argsort(key[order], kind="stable")]
    batches = _form_batches(order, longest[order], batch_tokens, int(batch_tokens * random.random()))
    return [batches[index] for index in random.permutation(len(batches))]


def _form_batches(
    order: Int[np.ndarray, "pairs"], longest: Int[np.ndarray, "pairs"], batch_tokens: int, first_tokens: int
) -> list[Int[np.ndarray, "_"]]:
    """Fill one batch after the other with as many pairs as fit; `longest` ascends, so the last pair decides the width.

    The first one takes `first_tokens` only: with another number in every epoch, the boundaries between all batches
    move, so that pairs are grouped differently even in a corpus of few batches.
    """
    batches = []
    start = 0
    budget = first_tokens
    while start < len(order):
        candidates = longest[start : start + max(1, budget // int(longest[start]))]
        size = candidates * np.arange(1, len(candidates) + 1)
        num_rows = max(1, int(np.searchsorted(size, budget, side="right")))
        batches.append(order[start : start + num_rows])
        start += num_rows
        budget = batch_tokens
    return batches


MAX_REMOVALS = 3
"""Maximum attempts at creating an epoch, before a failure to read it is an error."""


def open_epoch_store(prepared: PreparedData, text: TextConfig, seed: int, epoch: int) -> TokenStore:
    """The training pairs as epoch `epoch` sees them, a pure function of the arguments.

    Without `text.sampling` that is `prepared.train`. Otherwise every pair is changed as `text.augment_...` say and
    segmented again, with the share `text.bpe_dropout` of the merges skipped at random (Provilkov et al. 2020), unless
    it would become longer than the longest of `prepared.train`, for which learned positions and memory are sized. The
    result is kept under `prepared.folder` until that of a later epoch.

    Raises:
        ConfigError, WriteError: the cache cannot be written.
    """
    if not text.sampling:
        return prepared.train
    folder = _epoch_folder(prepared, text, seed, epoch)
    # Another run that is ahead removes it, perhaps a moment after it was made here.
    for _ in range(MAX_REMOVALS):
        with suppress(RunError, FileNotFoundError):  # damaged or missing
            return _open_store(prepared, folder, text, seed, epoch)
        shutil.rmtree(folder, ignore_errors=True)
        with explain_cache_errors(prepared.folder.parent):
            _encode_sampled(prepared, folder, text, seed, epoch)
    return _open_store(prepared, folder, text, seed, epoch)


def _open_store(prepared: PreparedData, folder: Path, text: TextConfig, seed: int, epoch: int) -> TokenStore:
    store = TokenStore.open(folder, prepared.digest_cache.digest)
    prepared.digest_cache.save()
    remove_epochs(prepared, text, seed, before=epoch)
    return store


def remove_epochs(prepared: PreparedData, text: TextConfig, seed: int, *, before: int) -> None:
    """Remove the stores that `open_epoch_store` has written for epochs before `before`.

    A removed epoch is regenerated when it is needed.
    """
    for folder in (prepared.folder / "epochs").glob(_epoch_folder(prepared, text, seed, "*").name):
        number = folder.name.rpartition("-")[2]
        if number.isdigit() and int(number) < before:
            shutil.rmtree(folder, ignore_errors=True)


def _epoch_folder(prepared: PreparedData, text: TextConfig, seed: int, epoch: int | str) -> Path:
    values = [
        *text.sampling.items(),
        *((language, "case") for language in prepared.languages if has_dotless_i(language)),
    ]
    sampling = "-".join(f"{name}-{value}" for name, value in values)
    if len(sampling) > MAX_SPELLED_SAMPLING:
        sampling = hashlib.sha256(sampling.encode()).hexdigest()[:16]
    return prepared.folder / "epochs" / f"{sampling}-seed-{seed}-epoch-{epoch}"


def _encode_sampled(prepared: PreparedData, folder: Path, text: TextConfig, seed: int, epoch: int) -> None:
    tokenizer, longest, number = prepared.tokenizer, int(prepared.train.lengths.max()), 0
    with create_store(folder, tokenizer.vocabulary) as writer:
        for index, chunk in enumerate(iterate_chunks(read_pairs(prepared.folder / "kept.jsonl"))):
            state = int(np.random.SeedSequence([seed, epoch, index]).generate_state(1)[0])
            sources, targets = zip(*augment_pairs(chunk, text, state, prepared.languages), strict=True)
            if text.bpe_dropout:
                sides = [side for pair in zip(sources, targets, strict=True) for side in pair]
                ids = tokenizer.encode_sampled(sides, text.bpe_dropout, state)
                encoded = zip(ids[::2], ids[1::2], strict=True)
            else:
                encoded = zip(tokenizer.encode_all(sources), tokenizer.encode_targets(targets), strict=True)
            for source_ids, target_ids in encoded:
                pair = tokenizer.as_source(source_ids), tokenizer.as_target(target_ids)
                if max(map(len, pair)) > longest:
                    pair = tuple(side.tolist() for side in prepared.train.pair(number))
                writer.add(*pair)
                number += 1


def select_epoch_pairs(prepared: PreparedData, seed: int, epoch: int) -> Int[np.ndarray, "seen"]:
    """Choose the pairs of an epoch: indices of training pairs, each repeated by the weight of its corpus.

    The result depends on the arguments alone.

    A corpus of weight 2.5 occurs twice, plus a random half of it, redrawn each epoch.
    """
    parts = []
    start = 0
    for number, corpus in enumerate(prepared.corpora):
        size = corpus.cleaning["kept"]
        indices = np.arange(start, start + size, dtype=np.int32)
        whole, fraction = divmod(corpus.weight, 1)
        parts += [indices] * int(whole)
        if size and fraction:
            # Separate random numbers for each corpus; the plan of the epoch uses those of seed and epoch alone.
            random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch], spawn_key=(number,))))
            parts.append(random.choice(indices, max(1, round(size * fraction)), replace=False, shuffle=False))
        start += size
    return np.concatenate(parts)


def sample_pairs(costs: Int[np.ndarray, "pairs"], max_pairs: int, max_cost: int) -> Int[np.ndarray, "chosen"]:
    """Indices of pairs, evenly spread over the text: at most `max_pairs`, and with costs of about `max_cost` in all.

    All pairs if these are few and cheap enough; at least one.
    """
    count = min(len(costs), max_pairs, max(1, int(max_cost / costs.mean())))
    return np.linspace(0, len(costs), count, endpoint=False).astype(np.int32)


def count_max_repetitions(prepared: PreparedData) -> Int[np.ndarray, "pairs"] | None:
    """The largest number of times that an epoch has each training pair; None if it is 1 for all."""
    if all(corpus.weight <= 1 for corpus in prepared.corpora):
        return None
    times, sizes = zip(*((math.ceil(one.weight), one.cleaning["kept"]) for one in prepared.corpora), strict=True)
    return np.repeat(times, sizes)


def read_batches(store: TokenStore, plan: Sequence[Int[np.ndarray, "_"]], start: int, pad_id: int) -> Iterator[Batch]:
    """The batches of the plan from number `start` on."""
    for rows in plan[start:]:
        sources, targets = zip(*map(store.pair, rows.tolist()), strict=True)
        yield Batch.from_ids(sources, targets, pad_id)
