import torch

from transduce.interop.token_rows import numbered


def test_rows_are_taken_and_what_is_missing_is_said() -> None:
    matrix, vector = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([5.0, 6.0])
    assert numbered(matrix, [1, -1, 0]).tolist() == [[3, 4], [0, 0], [1, 2]]
    assert numbered(vector, [-1, 0, 0, 1], -9.0).tolist() == [-9, 5, 5, 6]
