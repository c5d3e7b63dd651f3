import pytest
from pydantic import ValidationError

from transduce.config import SearchConfig
from transduce.errors import ConfigError


def test_the_longest_translation_of_a_source() -> None:
    search = SearchConfig(max_extra_length=50)
    assert search.most_tokens(10) == 60
    assert search.most_tokens(10, required=7) == 67
    short = search.changed({"max_length": 20})
    assert [short.most_tokens(source, required) for source, required in ((10, 0), (10, 7), (1, 0))] == [20, 20, 20]
    assert search.changed({"max_length": 100}).most_tokens(10) == 60


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 1}, "max_length = 1 leaves no room beside `</s>`: allow at least 2, or 0 for no limit"),
        ({"max_length": -1}, "max_length = -1: must be greater than or equal to 0"),
        ({"max_length": 5, "min_length": 6}, "min_length = 6 is above max_length = 5: change one of them"),
        ({"min_length": 308}, "min_length = 308: must be at most 307, what the longest"),
        ({"max_length": 400, "min_length": 308}, "min_length = 308: must be at most 307, what the longest"),
        ({"beam": "many"}, "beam = many: must be"),
        ({"beans": 3}, "beans is no setting of the search; it has beam, "),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SearchConfig().changed(settings)


def test_the_shortest_may_be_the_longest() -> None:
    assert SearchConfig().changed({"min_length": 307, "max_length": 307}).min_length == 307
    with pytest.raises(ValidationError, match="min_length = 3 is above max_length = 2"):
        SearchConfig(min_length=3, max_length=2)
