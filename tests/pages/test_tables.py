"""Every cell of a table stays where it is, in Markdown and on a terminal."""

import pytest

from transduce.pages import Table, format_columns, format_count, format_table


def test_a_cell_may_contain_a_bar() -> None:
    table = Table("Names", ["name", "value"], [["a|b", "1"]])
    assert format_table(table) == "Names:\n\n| name | value |\n|---|---:|\n| a\\|b | 1 |"


def test_columns_are_aligned_on_a_terminal() -> None:
    table = Table("Scores", ["system", "BLEU"], [["a", "9.10"], ["longer", "10.20"]])
    assert format_columns(table) == "Scores\nsystem   BLEU\na        9.10\nlonger  10.20"


@pytest.mark.parametrize(("number", "words"), [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (1000, "1,000 lines")])
def test_one_is_no_plural(number: int, words: str) -> None:
    assert format_count(number, "line") == words
