"""The way back from the end of a hypothesis to its beginning."""

from transduce.search.hypothesis import Hypothesis


class History:
    """For each step, what every row appended and to which row of the step before: nothing is ever copied."""

    def __init__(self) -> None:
        self._steps: list[tuple[list[int], list[int], list[float]]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def append(self, rows: list[int], ids: list[int], scores: list[float]) -> None:
        """Row i of this step continued row rows[i] of the step before by ids[i]."""
        self._steps.append((rows, ids, scores))

    def end(self, row: int, end_id: int, end_score: float, alpha: float) -> Hypothesis:
        """The hypothesis that row `row` of the last step becomes when `end_id` is appended."""
        tokens, token_scores = [end_id], [end_score]
        for rows, ids, scores in reversed(self._steps):
            tokens.append(ids[row])
            token_scores.append(scores[row])
            row = rows[row]
        return Hypothesis.from_tokens(tokens[::-1], token_scores[::-1], alpha)
