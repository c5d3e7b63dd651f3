"""Every cell of a table stays where it is, in Markdown and on a terminal."""

from transduce.pages import Table, format_columns, format_table


def test_a_cell_may_contain_a_bar() -> None:
    table = Table("Names", ["name", "value"], [["a|b", "1"]])
    assert format_table(table) == "Names:\n\n| name | value |\n|---|---:|\n| a\\|b | 1 |"


def test_columns_are_aligned_on_a_terminal() -> None:
    table = Table("Scores", ["system", "BLEU"], [["a", "9.10"], ["longer", "10.20"]])
    assert format_columns(table) == "Scores\nsystem   BLEU\na        9.10\nlonger  10.20"
