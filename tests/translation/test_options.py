import re

import pytest

from transduce.errors import CorpusError
from transduce.translation import AskedLine, TextConstraints


def test_a_line_says_what_is_asked_of_it() -> None:
    line = '{"text": "A dog.", "require": ["Hund"], "forbid": ["an", "."], "prefix": "Ein"}'
    asked = AskedLine.read(line, 1, "input")
    assert asked.text == "A dog."
    assert asked.constraints == TextConstraints("Ein", ("Hund",), forbidden=("an", "."))
    assert AskedLine.read('{"text": ""}', 1, "input").constraints is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("A dog.", "input, line 7: Invalid JSON"),
        ("", "input, line 7: Invalid JSON"),
        ("[]", "input, line 7: Input should be an object"),
        ("{}", "input, line 7: text: Field required"),
        ('{"text": 5}', "input, line 7: text: Input should be a valid string"),
        ('{"text": "a", "requires": []}', "input, line 7: requires: Extra inputs are not permitted"),
        ('{"text": "a", "require": "b"}', "input, line 7: require: Input should be a valid array"),
        ('{"text": "a", "require": ["b", 1]}', "input, line 7: require.1: Input should be a valid string"),
        ('{"text": "a", "forbid": [""]}', "input, line 7: forbid '': must show something"),
        ('{"text": "a\\nb"}', "input, line 7: text: must be without line ends"),
        ('{"text": "a", "require": ["b\\nc"]}', "input, line 7: require 'b\\nc': must be without line ends"),
        ('{"text": "\\ud800"}', "input, line 7: Invalid JSON"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_with_its_number(line: str, message: str) -> None:
    with pytest.raises(CorpusError, match=re.escape(message)):
        AskedLine.read(line, 7, "input")
