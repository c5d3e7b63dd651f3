"""What marks the order of the tokens, as a table."""

from transduce.inspection.arrays import exact
from transduce.inspection.network_parts import PositionTable
from transduce.model import NoPositions, Transformer


def position_table(model: Transformer, length: int) -> PositionTable:
    """The first `length` rows of what is added to the embeddings (paper 3.5)."""
    table = None if isinstance(model.positions, NoPositions) else exact(model.positions(length))
    return PositionTable(kind=model.config.positions, table=table)
