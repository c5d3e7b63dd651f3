"""The searches of an inspection: one sentence translated with different prefixes and heads, and a search as a tree."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import inf
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from transduce.config import SearchConfig
from transduce.errors import UserError
from transduce.inspection.attention import HeadMask, HeadMaskedNetwork
from transduce.inspection.document import MAX_BEAM, MAX_TOKENS, Head, InspectionRequest, SearchNode, SearchTree
from transduce.kernels.device import ComputePrecision, map_on_cores
from transduce.kernels.hardware import count_threads
from transduce.model import Transformer
from transduce.search import (
    Constraints,
    Hypothesis,
    LogitsProcessor,
    SearchTask,
    StepFunction,
    beam_search,
    length_penalty,
)
from transduce.search.beam import CandidateFields, SentenceSearch, search_sentences
from transduce.search.constraints import Automaton
from transduce.search.hypothesis import backtrack
from transduce.text import Tokenizer
from transduce.translation import Network, Translator
from transduce.translation.engines.engine import MAX_PROBABILITIES, make_logits_processor
from transduce.translation.engines.networks import make_network
from transduce.translation.translator import make_single_line


@dataclass(frozen=True)
class TracedToken:
    """A continuation that the search considered; `parent` is the number of the one it continues, None at the start."""

    parent: int | None
    step: int
    token: int
    log_probability: float
    sum: float
    state: Literal["kept", "pruned", "finished"] = "pruned"


class TracedSearch(SentenceSearch):
    """A `SentenceSearch` that records every continuation; its decisions are those of the search itself.

    It stops as a translation does, which needs the best hypothesis alone: a search for several goes on longer, and may
    find a better one.
    """

    def __init__(self, limit: int, *, end_id: int, beam: int, alpha: float, automaton: Automaton | None = None) -> None:
        super().__init__(limit, end_id=end_id, beam=beam, alpha=alpha, num_best=1, automaton=automaton)
        self.traced: list[TracedToken] = []
        self._of_live: list[int | None] = [None]

    def advance(self, candidates: Iterable[CandidateFields], finishing: frozenset[int] | None = None) -> None:
        before, given = self.live, list(candidates)
        super().advance(given, finishing)
        numbers: dict[tuple[int, int], int] = {}
        for _, score, place, token in given:
            # Padding of the beam has the sum -inf.
            if score > -inf and before[place].sum > -inf:
                parent = self._of_live[place]
                total = score + (0.0 if parent is None else self.traced[parent].sum)
                numbers[place, token] = len(self.traced)
                self.traced.append(TracedToken(parent, self.length, token, score, total))
        finished = {tuple(hypothesis.ids) for hypothesis in self.finished}
        for (place, token), number in numbers.items():
            if token == self._end_id and (*backtrack(before[place].last)[0], token) in finished:
                self.traced[number] = replace(self.traced[number], state="finished")
        self._of_live = [
            numbers[live.parent, live.last.id] if live.last is not None and live.sum > -inf else None
            for live in self.live
        ]
        for kept in self._of_live:
            if kept is not None:
                self.traced[kept] = replace(self.traced[kept], state="kept")

    def find_path(self, ids: Sequence[int]) -> list[int | None]:
        """For each token of a hypothesis its number in the trace; None from the point where it was not considered."""
        numbers = {(one.parent, one.token): number for number, one in enumerate(self.traced)}
        found: list[int | None] = []
        for token in ids:
            known = not found or found[-1] is not None
            found.append(numbers.get((found[-1] if found else None, token)) if known else None)
        return found


_TaskT = TypeVar("_TaskT")

MAX_SENTENCES = 32
"""Maximum number of sentences in a batch, so that a cancelled request is noticed soon after its first step begins."""


@dataclass(frozen=True)
class SentenceSearches:
    """Searches in float32, with a model in evaluation mode, as `NetworkEngine` does.

    Args:
        model: the network.
        tokenizer: the tokenizer of the model.
        config: the settings of the search.
        source: ids, `</s>` included.
        prefix: ids with which every translation begins; one that ends with `</s>` is the whole translation.
        masked_heads: heads that are masked in every search.
        check_cancelled: is called before every search and step; an exception from it ends the search.
    """

    model: Transformer
    tokenizer: Tokenizer
    config: SearchConfig
    source: Sequence[int]
    prefix: tuple[int, ...] = ()
    masked_heads: tuple[Head, ...] = ()
    check_cancelled: Callable[[], None] = lambda: None

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.source_embedding.weight.device

    def run_traced_beam_search(self) -> TracedSearch:
        """The beam search, with every continuation that it considered.

        Raises:
            UserError: the model excludes every translation that begins with the prefix.
        """
        task, network, beam = self.make_task([self.prefix]), self._make_network(1), self.config.beam
        automaton = None
        logits_processor = make_logits_processor(self.config)
        if task.constraints is not None or logits_processor is not None:
            asked = Constraints() if task.constraints is None else task.constraints[0]
            automaton = Automaton(asked, logits_processor or LogitsProcessor(), task.end_id)
        alpha = self.config.length_penalty
        search = TracedSearch(task.max_lengths[0], end_id=task.end_id, beam=beam, alpha=alpha, automaton=automaton)
        search_sentences(
            self._make_step(network), self.start(network, 1), [search], task, beam=beam, device=self.device
        )
        if search.finished[0].score == -inf:
            raise UserError("prefix: this model cannot begin a translation with these ids: choose others")
        return search

    def run_greedy_search(self, prefixes: Sequence[tuple[int, ...]]) -> list[Hypothesis]:
        """Greedy search after each of the prefixes."""

        def search(chosen: Sequence[tuple[int, ...]]) -> list[Hypothesis]:
            return self.run_beam_search(self._make_network(len(chosen)), chosen, beam=1)

        return self.run_in_batches(prefixes, search, beam=1)

    def search_without_each_head(self, heads: Sequence[Head], report: Callable[[str], None]) -> list[Hypothesis]:
        """The best translation with each of the heads pruned; `report` is told how many are finished."""
        num_done = 0

        def search(chosen: Sequence[Head]) -> list[Hypothesis]:
            nonlocal num_done
            network = HeadMaskedNetwork(self.model, self.make_head_mask([[head] for head in chosen]))
            found = self.run_beam_search(network, [self.prefix] * len(chosen), beam=self.config.beam)
            num_done += len(found)
            report(f"{num_done} of {len(heads)} heads pruned, one at a time")
            return found

        return self.run_in_batches(heads, search, beam=self.config.beam)

    def run_in_batches(
        self, tasks: Sequence[_TaskT], search: Callable[[Sequence[_TaskT]], list[Hypothesis]], *, beam: int
    ) -> list[Hypothesis]:
        """The results of `search` for all of the tasks, in batches; on a CPU, one batch per thread."""
        num_threads = count_threads() if self.device.type == "cpu" else 1
        num_fitting = max(1, MAX_PROBABILITIES // (beam * self.model.config.vocabulary))
        size = min(num_fitting, MAX_SENTENCES, -(-len(tasks) // num_threads))
        batches = [tasks[first : first + size] for first in range(0, len(tasks), size)] if tasks else []
        if num_threads == 1 or len(batches) == 1:
            found = list(map(search, batches))
        else:
            found = map_on_cores(torch.inference_mode()(search), batches, num_threads)
        return list(chain.from_iterable(found))

    def run_beam_search(
        self, network: Network[Any], prefixes: Sequence[tuple[int, ...]], *, beam: int
    ) -> list[Hypothesis]:
        """The best translation with each of the prefixes, all in one batch."""
        found = beam_search(
            self._make_step(network),
            self.start(network, len(prefixes)),
            self.make_task(prefixes),
            beam=beam,
            alpha=self.config.length_penalty,
            logits_processor=make_logits_processor(self.config),
            device=self.device,
        )
        return [hypotheses[0] for hypotheses in found]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a target, in one line."""
        return make_single_line(self.tokenizer.decode(ids))

    def start(self, network: Network[Any], rows: int) -> Any:  # noqa: ANN401 - of any network
        """The state of a network after reading the source, `rows` times."""
        self.check_cancelled()
        source_ids = self.make_source_ids(rows)
        return network.start(source_ids, torch.ones_like(source_ids, dtype=torch.bool))

    def make_source_ids(self, rows: int) -> Tensor:
        """The source, [rows, source]."""
        return torch.tensor([list(self.source)] * rows, device=self.device)

    def make_task(self, prefixes: Sequence[tuple[int, ...]]) -> SearchTask:
        """The task of searching for translations with these prefixes."""
        end_id, config = self.tokenizer.end_id, self.config
        limits, constraints = [], []
        for prefix in prefixes:
            ends = prefix[-1:] == (end_id,)
            max_length = config.compute_max_target_length(len(self.source), len(prefix))
            limits.append(len(prefix) if ends else min(max_length, self.model.max_length))
            constraints.append(Constraints(prefix=prefix[:-1] if ends else prefix))
        asked = constraints if any(prefixes) else None
        return SearchTask(self.tokenizer.pad_id, end_id, limits, config.min_length, asked)

    def has_room_after(self, prefix: tuple[int, ...]) -> bool:
        """Whether a translation with this prefix may end: a prefix of as many tokens as the limit must be whole."""
        return prefix[-1] == self.tokenizer.end_id or len(prefix) < self.make_task([prefix]).max_lengths[0]

    def make_head_mask(self, also: Sequence[Sequence[Head]]) -> HeadMask:
        """A mask for a batch: the heads that are masked in every search, and further ones for each row."""
        return HeadMask.from_masked_heads(self.model, [[*self.masked_heads, *heads] for heads in also])

    def _make_step(self, network: Network[Any]) -> StepFunction[Any]:
        def step(last_ids: Tensor, state: Any) -> tuple[Tensor, Any]:  # noqa: ANN401 - of any network
            self.check_cancelled()
            return network.step(last_ids, state)

        return step

    def _make_network(self, rows: int) -> Network[Any]:
        if self.masked_heads:
            return HeadMaskedNetwork(self.model, self.make_head_mask([[]] * rows))
        return self._network_of_all_heads

    @cached_property
    def _network_of_all_heads(self) -> Network[Any]:
        # Packs all weights, hence once for all searches.
        precision = ComputePrecision(torch.float32, is_batch_invariant=self.device.type == "cpu")
        return make_network(self.model, precision)


def make_searches(
    translator: Translator, model: Transformer, request: InspectionRequest, check_cancelled: Callable[[], None]
) -> SentenceSearches:
    """The searches for a request.

    Raises:
        UserError: the text is blank or too long, the prefix has ids outside the vocabulary, or the model's own beam is
            above `MAX_BEAM`.
    """
    tokenizer = translator.tokenizer
    given = translator if request.beam is None else translator.with_search({"beam": request.beam})
    if given.search.beam > MAX_BEAM:
        raise UserError(
            f"beam: this model's own is {given.search.beam}, but at most {MAX_BEAM} hypotheses can be inspected: give "
            f"a beam from 1 to {MAX_BEAM}"
        )
    ids = tokenizer.encode(request.text)
    if not request.text.strip() or not ids:
        raise UserError("text: is blank; give a sentence")
    if len(ids) > given.search.max_pieces:
        raise UserError(
            f"text: has {len(ids)} pieces, but this model reads at most {given.search.max_pieces} at once: give one "
            "sentence"
        )
    source, prefix = tokenizer.as_source(ids), tuple(request.prefix)
    check_length("text", len(source), MAX_TOKENS)
    if any(not 0 <= token < tokenizer.pad_id for token in prefix):
        raise UserError(f"prefix: {list(prefix)} must be ids of this model's tokens, from 0 to {tokenizer.pad_id - 1}")
    if tokenizer.end_id in prefix[:-1]:
        raise UserError(f"prefix: {list(prefix)} has tokens after {tokenizer.end_id}, </s>: remove them")
    check_length("prefix", len(prefix), model.max_length)
    masked_heads = tuple(request.masked_heads)
    return SentenceSearches(model, tokenizer, given.search, source, prefix, masked_heads, check_cancelled)


def check_length(name: str, length: int, max_length: int) -> None:
    """Check that a side has no more tokens than can be shown and the model can read."""
    if length > min(MAX_TOKENS, max_length):
        raise UserError(
            f"{name}: has {length} tokens, </s> included, but at most {min(MAX_TOKENS, max_length)} can be inspected: "
            "give a shorter sentence"
        )


def make_search_tree(traced: TracedSearch, greedy: Hypothesis, searches: SentenceSearches) -> SearchTree:
    """A beam search as a tree (paper 6.1), and the path of greedy search through it."""
    alpha = searches.config.length_penalty
    pieces = searches.tokenizer.pieces([one.token for one in traced.traced])
    nodes = [
        SearchNode(
            id=number,
            parent=one.parent,
            step=one.step,
            token=one.token,
            piece=piece,
            log_probability=round(one.log_probability, 6),
            sum=round(one.sum, 6),
            score=round(one.sum / length_penalty(one.step, alpha), 6),
            state=one.state,
        )
        for number, (one, piece) in enumerate(zip(traced.traced, pieces, strict=True))
    ]
    ends = [traced.find_path(hypothesis.ids)[-1] for hypothesis in traced.finished]
    return SearchTree(
        beam=searches.config.beam,
        length_penalty=alpha,
        nodes=nodes,
        ranking=[end for end in ends if end is not None],
        greedy=traced.find_path(greedy.ids),
    )
