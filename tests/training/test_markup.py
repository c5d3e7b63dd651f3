import math

import pytest

from transduce.training.markup import figure_text, finite, folded, table


def test_a_table_names_its_rows_and_columns_and_escapes_them() -> None:
    found = table("<c>", ["<h>", "n"], [["<r>", "1"]])
    assert "<caption>&lt;c&gt;</caption>" in found
    assert '<th scope="col">&lt;h&gt;</th><th scope="col" class="number">n</th>' in found
    assert '<tr><th scope="row">&lt;r&gt;</th><td class="number">1</td></tr>' in found
    assert folded("<s>", "<p></p>") == "<details><summary>&lt;s&gt;</summary><p></p></details>"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e31, None, "1", True])
def test_what_is_no_figure(value: object) -> None:
    assert finite(value) is None


def test_figures() -> None:
    assert (finite(3), finite(-0.5)) == (3.0, -0.5)
    assert [figure_text(value, ".2f") for value in (1.234, math.nan, None, "x", True)] == ["1.23", "nan", "", "", ""]
