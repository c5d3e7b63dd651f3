"""What a search asks of whatever it searches."""

from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

_SelfT = TypeVar("_SelfT")  # stands for Self, which cannot be checked at run time in a single method


@runtime_checkable
class SearchState(Protocol):
    """What the step function remembers of each row, as a value: passed in, handed back, never changed in place."""

    def reorder(self: _SelfT, index: Int[Tensor, "rows"]) -> _SelfT:  # noqa: PYI019 - see above
        """Keep, repeat or drop rows: row i of the result is row index[i] of this state."""
        ...


StateT = TypeVar("StateT", bound=SearchState)


@runtime_checkable
class StepFunction(Protocol[StateT]):
    """One step of decoding: the last id of each row, and the state, to what may come next."""

    def __call__(self, last_ids: Int[Tensor, "rows"], state: StateT) -> tuple[Float[Tensor, "rows vocabulary"], StateT]:
        """Log-probabilities of the next id (-inf: forbidden), and the state that includes `last_ids`."""
        ...
