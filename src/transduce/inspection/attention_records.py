"""What goes into every attention of a forward pass, and what is made of it."""

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from transduce.inspection.head_switches import HeadSwitches
from transduce.inspection.passes import Place
from transduce.model import KeysAndValues, MultiHeadAttention, attention_weights
from transduce.model.attention import Attended, Mask, Queries, Scores


@dataclass(frozen=True)
class AttentionRecord:
    """One attention of one sentence, which is a batch.

    Args:
        attention: of the model.
        queries: of all heads.
        keys_and_values: likewise.
        mask: True where a query may look at a key.
        on: for each head 1, or 0 if it is switched off.
    """

    attention: MultiHeadAttention
    queries: Queries
    keys_and_values: KeysAndValues
    mask: Mask
    on: Float[Tensor, " heads"]

    @property
    def weights(self) -> Scores:
        """softmax(score(Q, K)) (paper eq. 1), [1, heads, query, key]."""
        return attention_weights(self.attention.score, self.queries, self.keys_and_values.keys, self.mask)

    @property
    def attended(self) -> Attended:
        """Weights times values, [1, heads, query, d_v]."""
        attended: Tensor = self.weights @ self.keys_and_values.values
        return attended

    @property
    def outputs(self) -> Float[Tensor, "heads d_v d_model"]:
        """The rows of W^O that belong to each head (paper 3.2.2); zeros for a head that is off."""
        weight = self.attention.output.weight
        rows = weight.T.reshape(self.attention.num_heads, self.attention.d_v, weight.size(0))
        return rows * self.on[:, None, None]

    @property
    def added_norms(self) -> Float[Tensor, "1 heads query key"]:
        """|| weight * value W^O ||: the length of what a key adds to a query by a head (Kobayashi et al. 2020, eq. 4).

        The weight is a number from 0 to 1, so that it is the weight times the length of value W^O.
        """
        lengths = (self.keys_and_values.values @ self.outputs).norm(dim=-1)
        norms: Tensor = self.weights * lengths[:, :, None]
        return norms


@dataclass(frozen=True)
class Recorder:
    """Attends as the switches say, and keeps what went in; of one sentence."""

    switches: HeadSwitches
    records: dict[Place, AttentionRecord] = field(default_factory=dict)

    def __call__(
        self,
        place: Place,
        attention: MultiHeadAttention,
        queries: Queries,
        keys_and_values: KeysAndValues,
        mask: Mask,
    ) -> Float[Tensor, "batch query d_model"]:
        """See `passes.Attend`."""
        on = self.switches.on[place.attention][0, place.layer]
        self.records[place] = AttentionRecord(attention, queries, keys_and_values, mask, on)
        return self.switches(place, attention, queries, keys_and_values, mask)
