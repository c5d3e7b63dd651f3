import pytest

from transduce.cli.corpus_options import TextFlags
from transduce.errors import UserError


@pytest.mark.parametrize("code", ["en", "xx", "swh", "pt-BR", "pt_br", "zh-Hans", "swh_Latn", "zh-Hant-TW", "es-419"])
def test_codes_of_languages_are_accepted(code: str) -> None:
    assert TextFlags(source_language=code).settings == {"data.source_language": code}


@pytest.mark.parametrize(
    ("language", "remedy"),
    [("Swahili", "give its code, sw"), ("north ndebele", "its code, nd"), ("../x y", "as in en"), ("e", "as in en")],
)
def test_what_is_no_code_of_a_language_is_refused(language: str, remedy: str) -> None:
    with pytest.raises(UserError, match=rf"^--target-language .*: is no language code: .*{remedy}"):
        _ = TextFlags(target_language=language).settings
