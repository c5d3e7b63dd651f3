import pytest

from transduce.text.formats.columns import SideSelection, choose_columns, is_header


@pytest.mark.parametrize("languages", [("", ""), ("en", "sw")])
@pytest.mark.parametrize(
    "row",
    [
        ("source", "target"),
        ("Target", "SOURCE"),
        ("src", "tgt"),
        ("source_text", "translation"),
        ("en", "sw"),
        ("sw", "en"),
        ("English", "Swahili"),
        ("English", "Kiswahili"),
        ("kiswahili text", "ENGLISH"),
        ("English sentence", "Swahili translation"),
        ("eng_Latn", "swh_Latn"),
        ("en-GB", "sw_KE"),
        ("original", "Swahili"),
        (' "English"', '"Swahili" '),
    ],
)
def test_names_of_columns_and_languages_are_a_header(row: tuple[str, str], languages: tuple[str, str]) -> None:
    assert is_header(*row, languages)


@pytest.mark.parametrize("languages", [("", ""), ("en", "sw"), ("de", "es")])
@pytest.mark.parametrize(
    "row",
    [
        ("A dog.", "Mbwa."),
        ("English", "Kiingereza"),
        ("Swahili", "Swahili"),
        ("Swahili", "Kiswahili"),
        ("English", "Zungumza Kiswahili"),
        ("no", "no"),
        ("source", "chanzo"),
        ("source", "source"),
        ("the source", "target"),
        ("Translation", "Tafsiri"),
        ("English is spoken", "Swahili"),
        ("", "target"),
        ("", ""),
        ("text", "sentence"),
        ("to-do", "A dog."),
    ],
)
def test_a_pair_is_no_header(row: tuple[str, str], languages: tuple[str, str]) -> None:
    assert not is_header(*row, languages)


def test_words_that_happen_to_be_codes_are_a_pair_where_the_languages_are_others() -> None:
    assert not is_header("is", "es", ("en", "de"))
    assert is_header("is", "es", ("is", "es"))


@pytest.mark.parametrize("languages", [("", ""), ("en", "fr")])
def test_own_names_of_languages_choose_their_columns(languages: tuple[str, str]) -> None:
    assert is_header("English", "Français", languages)
    assert choose_columns(["English", "Français"], SideSelection(languages=languages), "h.tsv") == (0, 1)
    assert choose_columns(["Français", "English"], SideSelection(languages=("en", "fr")), "h.tsv") == (1, 0)
