"""A table is written in Markdown so that every cell stays where it is."""

from transduce.pages import Table, format_table


def test_a_cell_may_contain_a_bar() -> None:
    table = Table("Names", ["name", "value"], [["a|b", "1"]])
    assert format_table(table) == "Names:\n\n| name | value |\n|---|---:|\n| a\\|b | 1 |"
