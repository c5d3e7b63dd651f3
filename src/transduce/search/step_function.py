"""A step of decoding as a function, from the last ids and a state to the log-probabilities of the next ids."""

from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

_SelfT = TypeVar("_SelfT")  # stands for Self, which cannot be checked at run time in a single method


@runtime_checkable
class SearchState(Protocol):
    """The state of a step function for each sentence and each of its hypotheses, for instance a key-value cache."""

    def select(  # noqa: PYI019 - see above
        self: _SelfT, sentences: Int[Tensor, "kept"] | None, parents: Int[Tensor, "kept width"]
    ) -> _SelfT:
        """The state whose sentence i is sentence `sentences[i]` of this one (None: all of them, as they are).

        Sentences may be left out or repeated. Hypothesis j of sentence i continues hypothesis `parents[i, j]` of that
        sentence. The returned state replaces this one, which must not be used any more.
        """
        ...


StateT = TypeVar("StateT", bound=SearchState)


@runtime_checkable
class StepFunction(Protocol[StateT]):
    """One step of decoding: from the last id of each hypothesis and the state to the next log-probabilities."""

    def __call__(
        self, last_ids: Int[Tensor, "sentences width"], state: StateT
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], StateT]:
        """Log-probabilities of the next id (-inf: forbidden), and the state that includes `last_ids`.

        The search may write into the log-probabilities.
        """
        ...
