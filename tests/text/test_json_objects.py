import json

import pytest

from transduce.text.json_objects import RepeatedKeyError, make_object


def test_keys_of_different_objects_may_be_the_same() -> None:
    text = '{"a": {"a": 1, "b": 2}, "b": [{"a": 1}, {"a": 2}], "c": {}}'
    assert json.loads(text, object_pairs_hook=make_object) == json.loads(text)


@pytest.mark.parametrize("text", ['{"b": 1, "a": 1, "a": 1}', '[{"b": {"a": 1, "\\u0061": 2}}]'])
def test_a_key_that_is_there_twice_is_named(text: str) -> None:
    with pytest.raises(RepeatedKeyError, match="has the key 'a' twice"):
        json.loads(text, object_pairs_hook=make_object)
