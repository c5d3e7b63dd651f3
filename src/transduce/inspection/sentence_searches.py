"""The searches for the translation of one sentence, and what they are asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Any, TypeVar

import torch
from torch import Tensor

from transduce.config import SearchConfig
from transduce.errors import UserError
from transduce.inspection.head_switches import HeadSwitches
from transduce.inspection.network_parts import Head
from transduce.inspection.search_trace import TracedSearch
from transduce.inspection.switched_network import SwitchedNetwork
from transduce.kernels.precision import ComputePrecision
from transduce.kernels.threads import Workers
from transduce.model import Transformer
from transduce.search import Constraints, Hypothesis, LogitsProcessor, SearchTask, StepFunction, beam_search
from transduce.search.beam import search_sentences
from transduce.search.constraints import Automaton
from transduce.text import Tokenizer
from transduce.translation import Network
from transduce.translation.engines.engine import MOST_PROBABILITIES, make_logits_processor
from transduce.translation.engines.inference_model import make_network
from transduce.translation.translator import make_single_line

_TaskT = TypeVar("_TaskT")

MOST_SENTENCES = 32
"""Of a batch: with more, its first step, which reads all sources, would take long between two checkpoints."""

_WORKERS = Workers()


@dataclass(frozen=True)
class SentenceSearches:
    """Searches in float32, with a model in evaluation mode, as `NetworkEngine` does.

    Args:
        model: the network.
        tokenizer: its own.
        config: how translations are looked for.
        source: ids, `</s>` included.
        prefix: ids with which every translation begins; one with `</s>` at its end is the translation.
        off: heads that are switched off, all of them at once.
        checkpoint: is called before every search and step; what it raises ends the search.
    """

    model: Transformer
    tokenizer: Tokenizer
    config: SearchConfig
    source: Sequence[int]
    prefix: tuple[int, ...] = ()
    off: tuple[Head, ...] = ()
    checkpoint: Callable[[], None] = lambda: None

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        return self.model.source_embedding.weight.device

    def traced(self) -> TracedSearch:
        """The beam search, with everything that it has looked at.

        Raises:
            UserError: the model rules out every translation that begins with the prefix.
        """
        task, network, beam = self.task([self.prefix]), self._network(1), self.config.beam
        automaton = None
        logits_processor = make_logits_processor(self.config)
        if task.constraints is not None or logits_processor is not None:
            asked = Constraints() if task.constraints is None else task.constraints[0]
            automaton = Automaton(asked, logits_processor or LogitsProcessor(), task.end_id)
        alpha = self.config.length_penalty
        search = TracedSearch(task.max_lengths[0], end_id=task.end_id, beam=beam, alpha=alpha, automaton=automaton)
        search_sentences(self._step(network), self.start(network, 1), [search], task, beam=beam, device=self.device)
        if search.finished[0].score == -inf:
            raise UserError("prefix: this model never begins a translation with these ids: choose others")
        return search

    def greedy(self, prefixes: Sequence[tuple[int, ...]]) -> list[Hypothesis]:
        """Behind each of the prefixes the most probable token, again and again."""

        def search(chosen: Sequence[tuple[int, ...]]) -> list[Hypothesis]:
            return self.best(self._network(len(chosen)), chosen, beam=1)

        return self.in_batches(prefixes, search, beam=1)

    def without_each(self, heads: Sequence[Head], done: Callable[[int], None]) -> list[Hypothesis]:
        """The best translation without each of the heads; `done` is told how many more are known."""

        def search(chosen: Sequence[Head]) -> list[Hypothesis]:
            network = SwitchedNetwork(self.model, self.switches([[head] for head in chosen]))
            found = self.best(network, [self.prefix] * len(chosen), beam=self.config.beam)
            done(len(found))
            return found

        return self.in_batches(heads, search, beam=self.config.beam)

    def in_batches(
        self, tasks: Sequence[_TaskT], search: Callable[[Sequence[_TaskT]], list[Hypothesis]], *, beam: int
    ) -> list[Hypothesis]:
        """What `search` finds for all of the tasks; on a processor, a batch on each of its threads."""
        num_threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        most = max(1, MOST_PROBABILITIES // (beam * self.model.config.vocabulary))
        size = min(most, MOST_SENTENCES, -(-len(tasks) // num_threads))
        batches = [tasks[first : first + size] for first in range(0, len(tasks), size)] if tasks else []
        if num_threads == 1 or len(batches) == 1:
            found = list(map(search, batches))
        else:
            found = _WORKERS.map(torch.inference_mode()(search), batches, num_threads)
        return list(chain.from_iterable(found))

    def best(self, network: Network[Any], prefixes: Sequence[tuple[int, ...]], *, beam: int) -> list[Hypothesis]:
        """The best translation with each of the prefixes, all in one batch."""
        found = beam_search(
            self._step(network),
            self.start(network, len(prefixes)),
            self.task(prefixes),
            beam=beam,
            alpha=self.config.length_penalty,
            logits_processor=make_logits_processor(self.config),
            device=self.device,
        )
        return [hypotheses[0] for hypotheses in found]

    def text(self, ids: Sequence[int]) -> str:
        """What a target says, in one line."""
        return make_single_line(self.tokenizer.decode(ids))

    def start(self, network: Network[Any], rows: int) -> Any:  # noqa: ANN401 - of any network
        """The state of a network that has read the source, so many times."""
        self.checkpoint()
        source_ids = self.source_ids(rows)
        return network.start(source_ids, torch.ones_like(source_ids, dtype=torch.bool))

    def source_ids(self, rows: int) -> Tensor:
        """The source, [rows, source]."""
        return torch.tensor([list(self.source)] * rows, device=self.device)

    def task(self, prefixes: Sequence[tuple[int, ...]]) -> SearchTask:
        """What is asked of translations with these prefixes."""
        end_id, config = self.tokenizer.end_id, self.config
        limits, constraints = [], []
        for prefix in prefixes:
            ends = prefix[-1:] == (end_id,)
            most = config.most_tokens(len(self.source), len(prefix))
            limits.append(len(prefix) if ends else min(most, self.model.longest))
            constraints.append(Constraints(prefix=prefix[:-1] if ends else prefix))
        asked = constraints if any(prefixes) else None
        return SearchTask(self.tokenizer.pad_id, end_id, limits, config.min_length, asked)

    def switches(self, also: Sequence[Sequence[Head]]) -> HeadSwitches:
        """For each of some rows the heads that are off anyway, and others `also`."""
        return HeadSwitches.off(self.model.config, [[*self.off, *heads] for heads in also], self.device)

    def _step(self, network: Network[Any]) -> StepFunction[Any]:
        def step(last_ids: Tensor, state: Any) -> tuple[Tensor, Any]:  # noqa: ANN401 - of any network
            self.checkpoint()
            return network.step(last_ids, state)

        return step

    def _network(self, rows: int) -> Network[Any]:
        if self.off:
            return SwitchedNetwork(self.model, self.switches([[]] * rows))
        on_cpu = next(self.model.parameters()).device.type == "cpu"
        return make_network(self.model, ComputePrecision(torch.float32, is_batch_invariant=on_cpu))
