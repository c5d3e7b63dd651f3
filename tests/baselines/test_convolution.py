import pytest
import torch
from torch.nn import functional as F

from transduce.baselines.convolution import gather_windows


@pytest.mark.parametrize(("kernel_width", "dilation"), [(1, 1), (3, 1), (3, 4), (5, 2)])
def test_a_product_of_windows_is_pytorchs_convolution(kernel_width: int, dilation: int) -> None:
    torch.manual_seed(0)
    inputs, weight = torch.randn(2, 20, 3), torch.randn(4, 3, kernel_width)
    expected = F.conv1d(inputs.transpose(1, 2), weight, dilation=dilation).transpose(1, 2)
    windows = gather_windows(inputs, kernel_width, dilation)
    torch.testing.assert_close(windows @ weight.transpose(1, 2).flatten(1).T, expected)


def test_a_window_reads_positions_from_the_left_to_the_right() -> None:
    inputs = torch.arange(7.0).reshape(1, 7, 1)
    assert gather_windows(inputs, 3, 2).tolist() == [[[0, 2, 4], [1, 3, 5], [2, 4, 6]]]
