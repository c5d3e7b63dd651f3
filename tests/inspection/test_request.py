import pytest

from transduce.errors import ConfigError
from transduce.inspection import EVERYTHING, QUICK, Head, InspectionRequest


def test_a_head_is_written_from_one() -> None:
    head = Head(attention="encoder_decoder", layer=0, head=2)
    assert str(head) == "encoder_decoder.1.3"
    assert Head.parse(str(head)) == head


@pytest.mark.parametrize("text", ["", "encoder", "encoder.0.1", "encoder.1.0", "memory.1.1", "encoder.1.1 ", "1.1"])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be ATTENTION\.LAYER\.HEAD"):
        Head.parse(text)


def test_a_request_from_json_is_the_same() -> None:
    request = InspectionRequest(
        text="x", prefix=[3], arithmetic=[Head(attention="decoder", layer=1, head=0)], include=list(EVERYTHING)
    )
    assert InspectionRequest.model_validate_json(request.model_dump_json()) == request
    assert InspectionRequest.checked(**request.model_dump()) == request
    assert InspectionRequest(text="x").include == list(QUICK)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"beam": 17}, "beam: .* less than or equal to 16"),
        ({"beam": 0}, "beam: "),
        ({"text": "x" * 10_001}, "text: "),
        ({"include": ["pictures"]}, r"include\.0: "),
        ({"colour": "red"}, "colour: Extra inputs"),
        ({"heads_off": [{"attention": "memory", "layer": 0, "head": 0}]}, r"heads_off\.0\.attention: "),
        ({"prefix": [1] * 129}, "prefix: "),
    ],
)
def test_what_breaks_a_rule_is_named(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        InspectionRequest.checked(**{"text": "x", **values})
