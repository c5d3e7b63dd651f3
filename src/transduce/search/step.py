"""What a search asks of whatever it searches."""

from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

_SelfT = TypeVar("_SelfT")  # stands for Self, which cannot be checked at run time in a single method


@runtime_checkable
class SearchState(Protocol):
    """What the step function remembers of each sentence and of its hypotheses, which stand side by side."""

    def select(  # noqa: PYI019 - see above
        self: _SelfT, sentences: Int[Tensor, "kept"] | None, parents: Int[Tensor, "kept width"]
    ) -> _SelfT:
        """The state whose sentence i is sentence `sentences[i]` of this one (None: all of them, as they are).

        Some of this one's may be missing, and some may be there several times.
        Hypothesis j of sentence i goes on from hypothesis `parents[i, j]` of that sentence. What is handed back takes
        the place of this state, which must not be used any more.
        """
        ...


StateT = TypeVar("StateT", bound=SearchState)


@runtime_checkable
class StepFunction(Protocol[StateT]):
    """One step of decoding: the last id of each hypothesis, and the state, to what may come next."""

    def __call__(
        self, last_ids: Int[Tensor, "sentences width"], state: StateT
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], StateT]:
        """Log-probabilities of the next id (-inf: forbidden), and the state that includes `last_ids`.

        The log-probabilities are the search's own from then on: it may write into them.
        """
        ...
