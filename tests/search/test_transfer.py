import torch

from transduce.search.transfer import to_host


def test_numbers_arrive_exactly() -> None:
    scores = torch.tensor([[-0.1, -torch.inf], [0.0, -1e-30]])
    rows = torch.tensor([[0, 1], [2**31 - 1, 16_777_217]])
    host_scores, host_rows = to_host(scores, rows)
    assert torch.equal(host_scores, scores)
    assert torch.equal(host_rows, rows)
    assert host_rows.dtype == torch.int64


def test_half_precision_becomes_float32() -> None:
    (host_scores,) = to_host(torch.tensor([-1.5], dtype=torch.bfloat16))
    assert host_scores.tolist() == [-1.5]
    assert host_scores.dtype == torch.float32
