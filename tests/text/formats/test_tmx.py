import gzip
import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import CorpusError
from transduce.text import open_parallel_corpus

Write = Callable[[str, bytes | str], Path]
Pairs = list[tuple[str, str]]
ReadPairs = Callable[..., Pairs]
LANGUAGES = ("en", "de")
SPACES = " \t\r\n"


def make_tmx(units: list[dict[str, str]], encoding: str = "utf-8", attribute: str = "xml:lang") -> bytes:
    """A translation memory with these units, each with texts by language."""
    root = ET.Element("tmx", version="1.4")
    ET.SubElement(root, "header", srclang="en", segtype="sentence", datatype="plaintext")
    body = ET.SubElement(root, "body")
    for texts in units:
        unit = ET.SubElement(body, "tu")
        for language, text in texts.items():
            variant = ET.SubElement(unit, "tuv", {attribute: language})
            ET.SubElement(variant, "prop", type="origin").text = "elsewhere"
            ET.SubElement(variant, "seg").text = text
    content = io.BytesIO()
    ET.ElementTree(root).write(content, encoding, xml_declaration=True)
    return content.getvalue()


def wrap(segments: str, head: str = "") -> str:
    """A translation memory whose English text is written as XML."""
    variants = f'<tuv xml:lang="en"><seg>{segments}</seg></tuv><tuv xml:lang="de"><seg>b</seg></tuv>'
    return f'{head}<tmx version="1.4"><header/><body><tu>{variants}</tu></body></tmx>'


# What XML can hold, without the carriage return, which it reads as a line feed.
TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), st.sampled_from("\n\t<&>")
    )
)


@given(
    st.lists(st.tuples(TEXTS, TEXTS)),
    st.sampled_from(["utf-8", "utf-16", "us-ascii", "iso-8859-1", "windows-1252"]),
    st.sampled_from(["xml:lang", "lang"]),
    st.booleans(),
)
def test_tmx_comes_back_as_it_was_written(
    read_pairs: ReadPairs,
    tmp_path_factory: pytest.TempPathFactory,
    pairs: Pairs,
    encoding: str,
    attribute: str,
    compress: bool,
) -> None:
    content = make_tmx([{"de": target, "en": source} for source, target in pairs], encoding, attribute)
    path = tmp_path_factory.mktemp("tmx") / ("a.tmx.gz" if compress else "a.TMX")
    path.write_bytes(gzip.compress(content) if compress else content)
    # Spaces around a text are not part of it (TMX 1.4b, <seg>).
    stripped = [(source.strip(SPACES), target.strip(SPACES)) for source, target in pairs]
    assert read_pairs(path, languages=LANGUAGES) == stripped
    assert read_pairs(path, ("DE", "EN"), LANGUAGES) == [(target, source) for source, target in stripped]


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("a &lt;b&gt; &amp; &quot;c&quot; &#228; &#x1F600;", 'a <b> & "c" ä 😀'),
        ("a <![CDATA[<b> & c]]>", "a <b> & c"),
        ("a<!-- no --> b<?no no?>", "a b"),
        ("\n   a  b\n\t", "a  b"),
        ('<bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept> text', "bold text"),
        ('a <ph x="1">{0}</ph> b <it pos="begin">&lt;i&gt;</it>c <ut>{}</ut>d', "a  b c d"),
        ("a <hi>b <hi>c</hi></hi> d", "a b c d"),
        ("a <ph>img <sub>a picture</sub> </ph><hi>b<ph>c</ph>d</hi> e", "a bd e"),
        ("<ph>a</ph>", ""),
        ("", ""),
    ],
)
def test_text_is_what_is_not_native_code(read_pairs: ReadPairs, write: Write, segment: str, text: str) -> None:
    assert read_pairs(write("a.tmx", wrap(segment)), languages=LANGUAGES) == [(text, "b")]


def test_notes_and_properties_are_no_text(read_pairs: ReadPairs, write: Write) -> None:
    content = make_tmx([{"en": "a", "de": "b"}]).decode()
    content = content.replace("<header", "<header>no<prop>no</prop></header><!-- ", 1).replace(
        "<body>", "--><body>no", 1
    )
    content = content.replace("<seg>", "no<note>no</note>\n<seg>").replace("</seg>", "</seg>no\n")
    assert read_pairs(write("a.tmx", content), languages=LANGUAGES) == [("a", "b")]


def test_units_without_both_languages_are_left_out_and_counted(tmp_path: Path, write: Write) -> None:
    units = [
        {"en": "a", "de": "b", "fr": "c"},
        {"en": "a", "fr": "c"},
        {"fr": "c"},
        {},
        {"de": "d", "en": ""},
    ]
    write("a.tmx", make_tmx(units))

    def open_corpus(source: str, target: str) -> object:
        return open_parallel_corpus(tmp_path, None, None, "a.tmx", None, (source, target))

    corpus = open_parallel_corpus(tmp_path, None, None, "a.tmx", None, LANGUAGES)
    assert list(corpus) == list(corpus) == [("a", "b"), ("", "d")]
    assert corpus.describe_omissions() == "3 of its 5 translation units do not have both 'en' and 'de' and are left out"
    write("b.tmx", make_tmx(units[:1]))
    assert open_parallel_corpus(tmp_path, None, None, "b.tmx", None, ("fr", "en")).describe_omissions() == ""


def test_of_several_variants_in_a_language_the_first_is_read(read_pairs: ReadPairs, write: Write) -> None:
    content = make_tmx([{"en": "a", "EN": "b", "de": "c"}])
    assert read_pairs(write("a.tmx", content), languages=LANGUAGES) == [("a", "c")]


@pytest.mark.parametrize(
    ("languages", "columns", "expected"),
    [
        (("en", "de"), None, ("a", "b")),
        (("EN-us", "de-DE"), None, ("a", "b")),
        (("pt", "de"), None, ("d", "b")),
        (("en", "de"), ("pt_PT", "fr"), ("e", "c")),
        (("", ""), ("de-de", "en_US"), ("b", "a")),
    ],
)
def test_languages_are_found_whatever_their_case_and_country(
    read_pairs: ReadPairs,
    write: Write,
    languages: tuple[str, str],
    columns: tuple[str, str] | None,
    expected: tuple[str, str],
) -> None:
    content = make_tmx([{"en-US": "a", "de-DE": "b", "FR": "c", "pt": "d", "pt-PT": "e"}])
    assert read_pairs(write("a.tmx", content), columns, languages) == [expected]


@pytest.mark.parametrize(
    ("codes", "languages", "columns", "message"),
    [
        (
            ("en", "de"),
            ("", ""),
            None,
            r"has the languages 'de', 'en', and the source is unknown: give --source-language",
        ),
        (("en", "de"), ("en", ""), None, r"data\.source_language and data\.target_language"),
        (("en", "de"), ("en", "en"), None, r"the source is unknown"),
        (("en-US", "en-GB", "de"), LANGUAGES, None, r"'en' may be any of 'en-gb', 'en-us': give .* by data\.columns"),
        (("en", "de"), ("en", "fr"), None, r"has no 'fr', but 'de', 'en': give .* by data\.columns"),
        (("eng", "de"), LANGUAGES, None, r"has no 'en', but 'de', 'eng'"),
        (("en-US", "de"), LANGUAGES, ("en", "en-us"), r"source and target are both 'en-us'"),
    ],
)
def test_languages_that_are_not_plain_are_refused_with_those_that_there_are(
    read_pairs: ReadPairs,
    write: Write,
    codes: tuple[str, ...],
    languages: tuple[str, str],
    columns: tuple[str, str] | None,
    message: str,
) -> None:
    path = write("a.tmx", make_tmx([dict.fromkeys(codes, "a")]))
    with pytest.raises(CorpusError, match=rf"a\.tmx: .*{message}"):
        read_pairs(path, columns, languages)


def test_a_memory_without_units_is_empty(tmp_path: Path, write: Write) -> None:
    for content in (make_tmx([]), make_tmx([{}])):
        write("a.tmx", content)
        with pytest.raises(CorpusError, match=r"a\.tmx: empty"):
            open_parallel_corpus(tmp_path, None, None, "a.tmx", None, LANGUAGES).check()


LAUGHS = "".join(f'<!ENTITY a{number} "{f"&a{number - 1};" * 10 if number else "ha"}">' for number in range(10))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (wrap("&a9;", f"<!DOCTYPE tmx [{LAUGHS}]>"), r"1: declares the entity 'a0', which is refused"),
        (wrap("&x;", '<!DOCTYPE tmx [<!ENTITY x SYSTEM "secret">]>'), r"1: declares the entity 'x'"),
        (wrap("a", '<!DOCTYPE tmx [<!ENTITY % x SYSTEM "secret"> %x;]>'), r"1: declares the entity 'x'"),
        (wrap("a&nbsp;b", '<!DOCTYPE tmx SYSTEM "secret">'), r"1: the entity 'nbsp' is not one of XML's own"),
        (wrap("a&nbsp;b"), r"1: is not XML \(undefined entity\)"),
        (wrap("<i>" * 200 + "</i>" * 200), r"1: more than 100 elements are within each other"),
        ("<tmx>" * 200, r"1: more than 100 elements are within each other"),
        ("<html><body/></html>", r"1: is not TMX: its root element is <html>"),
        ("plain text", r"1: is not XML \(syntax error\)"),
        ("", r"1: is not XML \(no element found\)"),
        (wrap("a")[:-20], r"1: is not XML \((no element found|unclosed token)\): download or create the file again"),
        (wrap("a\n</hi>"), r"2: is not XML \(mismatched tag\)"),
        (wrap("a") + "b", r"1: is not XML \(junk after document element\)"),
        (wrap("a\n\n\x07"), r"3: is not XML \(not well-formed \(invalid token\)\)"),
        (wrap("&#xD800;"), r"1: is not XML \(reference to invalid character number\)"),
        (wrap("ä", '<?xml version="1.0"?>').encode("latin-1"), r"1: is not XML \(not well-formed"),
        (wrap("a", '<?xml version="1.0" encoding="none"?>'), r"1: is not XML \(unknown encoding: none\)"),
        (wrap("a", '<?xml version="1.0" encoding="shift_jis"?>'), r"1: is not XML \(multi-byte encodings are not supp"),
    ],
)
def test_a_wrong_or_hostile_file_is_an_error(
    read_pairs: ReadPairs, write: Write, content: str | bytes, message: str
) -> None:
    write("secret", "<!ENTITY nbsp 'secret'>")
    with pytest.raises(CorpusError, match=rf"a\.tmx, line {message}"):
        read_pairs(write("a.tmx", content), languages=LANGUAGES)


def test_a_document_type_is_not_fetched(read_pairs: ReadPairs, write: Write) -> None:
    for kind in ('SYSTEM "tmx14.dtd"', 'PUBLIC "-//LISA" "https://transduce.invalid/tmx14.dtd"'):
        assert read_pairs(write("a.tmx", wrap("a &amp; b", f"<!DOCTYPE tmx {kind}>")), languages=LANGUAGES) == [
            ("a & b", "b")
        ]


@pytest.mark.parametrize(
    "content",
    [
        wrap("a" * 5_000_000),
        wrap(f"<ph x='{'a' * 5_000_000}'/>"),
        wrap(f"<!-- {'a' * 5_000_000} -->"),
        "<tmx><body>" + "<note/>" * 800_000,
    ],
    ids=["a text", "an attribute", "a comment", "no units"],
)
def test_what_cannot_be_text_is_refused_before_it_fills_the_memory(
    read_pairs: ReadPairs, write: Write, content: str
) -> None:
    with pytest.raises(CorpusError, match=r"a\.tmx\.gz, line 1: no unit ends in more than 4 MiB"):
        read_pairs(write("a.tmx.gz", gzip.compress(content.encode(), 1)), languages=LANGUAGES)


def test_more_languages_than_there_can_be_are_refused(read_pairs: ReadPairs, write: Write) -> None:
    content = make_tmx([{f"x-{number}": "a"} for number in range(1_200)])
    with pytest.raises(CorpusError, match=r"a\.tmx: has more than 1,000 languages"):
        read_pairs(write("a.tmx", content), languages=LANGUAGES)


def test_a_compressed_file_that_is_cut_off_is_an_error(read_pairs: ReadPairs, write: Write) -> None:
    content = gzip.compress(make_tmx([{"en": f"a {number}", "de": f"b {number}"} for number in range(5_000)]))
    with pytest.raises(CorpusError, match=r"a\.tmx\.gz: damaged or truncated after [\d,]+ bytes"):
        read_pairs(write("a.tmx.gz", content[: len(content) // 2]), languages=LANGUAGES)


def test_memory_does_not_grow_with_the_file(tmp_path: Path, write: Write) -> None:
    text = "a sentence of some forty characters, as it were"
    content = make_tmx([{"en": f"{text} {number}", "de": text} for number in range(8_000)])
    write("a.tmx", content)
    tracemalloc.start()
    assert open_parallel_corpus(tmp_path, None, None, "a.tmx", None, LANGUAGES).check() == 8_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000 < len(content) / 2
