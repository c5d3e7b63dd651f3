from dataclasses import fields

import pytest

from transduce.errors import ConfigError
from transduce.serving.limits import Limits

MAY_BE_NOTHING = {"max_delay_milliseconds", "max_alternatives"}


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_no_limit_is_below_what_it_may_be(name: str) -> None:
    kind = type(getattr(Limits(), name))
    with pytest.raises(ConfigError, match=f"{name} = -1.*: must be"):
        Limits(**{name: kind(-1)})
    if name in MAY_BE_NOTHING:
        assert getattr(Limits(**{name: kind(0)}), name) == 0
    else:
        with pytest.raises(ConfigError, match=f"{name} = 0.*: must be above 0"):
            Limits(**{name: kind(0)})


def test_the_longest_request_fits_into_an_empty_queue_and_its_body() -> None:
    limits = Limits()
    assert limits.max_characters / 4 <= limits.max_queue_tokens / 2
    assert limits.max_body_bytes >= 4 * limits.max_characters
