"""Codes, names and scripts of languages."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

_NAMES = """\
aa Afar; ab Abkhazian; ae Avestan; af Afrikaans; ak Akan; am Amharic; an Aragonese; ar Arabic; as Assamese;
ast Asturian; av Avaric; ay Aymara; az Azerbaijani; ba Bashkir; be Belarusian; bg Bulgarian; bi Bislama; bm Bambara;
bn Bangla; bo Tibetan; br Breton; bs Bosnian; ca Catalan; ce Chechen; ch Chamorro; ckb Central Kurdish; co Corsican;
cr Cree; cs Czech; cu Church Slavic; cv Chuvash; cy Welsh; da Danish; de German; dsb Lower Sorbian; dv Divehi;
dz Dzongkha; ee Ewe; el Greek; en English; eo Esperanto; es Spanish; et Estonian; eu Basque; fa Persian; ff Fula;
fi Finnish; fil Filipino; fj Fijian; fo Faroese; fr French; fur Friulian; fy Western Frisian; ga Irish;
gd Scottish Gaelic; gl Galician; gn Guarani; gsw Swiss German; gu Gujarati; gv Manx; ha Hausa; haw Hawaiian; he Hebrew;
hi Hindi; ho Hiri Motu; hr Croatian; hsb Upper Sorbian; ht Haitian Creole; hu Hungarian; hy Armenian; hz Herero;
ia Interlingua; id Indonesian; ie Interlingue; ig Igbo; ii Sichuan Yi; ik Inupiaq; io Ido; is Icelandic; it Italian;
iu Inuktitut; ja Japanese; jv Javanese; ka Georgian; kab Kabyle; kg Kongo; ki Kikuyu; kj Kuanyama; kk Kazakh;
kl Kalaallisut; km Khmer; kn Kannada; ko Korean; kr Kanuri; ks Kashmiri; ku Kurdish; kv Komi; kw Cornish; ky Kyrgyz;
la Latin; lb Luxembourgish; lg Ganda; li Limburgish; ln Lingala; lo Lao; lt Lithuanian; lu Luba-Katanga; lv Latvian;
mg Malagasy; mh Marshallese; mi Māori; mk Macedonian; ml Malayalam; mn Mongolian; mr Marathi; ms Malay; mt Maltese;
my Burmese; na Nauru; nb Norwegian Bokmål; nd North Ndebele; nds Low German; ne Nepali; ng Ndonga; nl Dutch;
nn Norwegian Nynorsk; no Norwegian; nr South Ndebele; nv Navajo; ny Nyanja; oc Occitan; oj Ojibwa; om Oromo; or Odia;
os Ossetic; pa Punjabi; pb Portuguese (Brazil); pi Pali; pl Polish; ps Pashto; pt Portuguese; qu Quechua; rm Romansh;
rn Rundi; ro Romanian; ru Russian; rw Kinyarwanda; sa Sanskrit; sc Sardinian; scn Sicilian; sd Sindhi;
se Northern Sami; sg Sango; si Sinhala; sk Slovak; sl Slovenian; sm Samoan; sn Shona; so Somali; sq Albanian;
sr Serbian; ss Swati; st Southern Sotho; su Sundanese; sv Swedish; sw Swahili; ta Tamil; te Telugu; tg Tajik; th Thai;
ti Tigrinya; tk Turkmen; tl Tagalog; tn Tswana; to Tongan; tr Turkish; ts Tsonga; tt Tatar; tw Twi; ty Tahitian;
ug Uyghur; uk Ukrainian; ur Urdu; uz Uzbek; ve Venda; vi Vietnamese; vo Volapük; wa Walloon; wo Wolof; xh Xhosa;
yi Yiddish; yo Yoruba; yue Cantonese; za Zhuang; zh Chinese; zt Chinese (traditional); zu Zulu"""


def _split_names(names: str) -> dict[str, str]:
    return dict(entry.split(" ", 1) for entry in names.replace(";\n", "; ").split("; "))


LANGUAGE_NAMES = _split_names(_NAMES)
"""English names of the two-letter codes and some others, from Unicode's CLDR; "pb" and "zt" are Argos's own codes."""

_OWN_NAMES = """\
aa Qafar; ab Аԥсшәа; am አማርኛ; an aragonés; ar العربية; as অসমীয়া; ast asturianu; az azərbaycan;
ba башҡорт теле; be беларуская; bg български; bm bamanakan; bn বাংলা; bo བོད་སྐད་; br brezhoneg; bs bosanski;
ca català; ce нохчийн; ckb کوردیی ناوەندی; co corsu; cs čeština; cu церковнослове́нскїй; cv чӑваш; cy Cymraeg;
da dansk; de Deutsch; dsb dolnoserbšćina; dv ދިވެހިބަސް; dz རྫོང་ཁ; ee eʋegbe; el Ελληνικά; es español;
et eesti; eu euskara; fa فارسی; ff Pulaar; fi suomi; fo føroyskt; fr français; fur furlan; fy Frysk; ga Gaeilge;
gd Gàidhlig; gl galego; gn avañe’ẽ; gsw Schwiizertüütsch; gu ગુજરાતી; gv Gaelg; haw ʻŌlelo Hawaiʻi; he עברית;
hi हिन्दी; hr hrvatski; hsb hornjoserbšćina; ht Kreyòl Ayisyen; hu magyar; hy հայերեն; id Indonesia; ii ꆈꌠꉙ;
is íslenska; it italiano; iu ᐃᓄᒃᑎᑐᑦ; ja 日本語; jv Jawa; ka ქართული; kab Taqbaylit; ki Gikuyu; kk қазақ тілі;
km ខ្មែរ; kn ಕನ್ನಡ; ko 한국어; ks کٲشُر; ku kurdî (kurmancî); kw kernewek; ky кыргызча; la Latina;
lb Lëtzebuergesch; lg Luganda; ln lingála; lo ລາວ; lt lietuvių; lu Tshiluba; lv latviešu; mk македонски;
ml മലയാളം; mn монгол; mr मराठी; ms Melayu; mt Malti; my မြန်မာ; nb norsk bokmål; nd isiNdebele;
nds Neddersass’sch; ne नेपाली; nl Nederlands; nn norsk nynorsk; no norsk; nr isiNdebele; nv Diné Bizaad;
om Oromoo; or ଓଡ଼ିଆ; os ирон; pa ਪੰਜਾਬੀ; pl polski; ps پښتو; pt português; qu Runasimi; rm rumantsch;
rn Ikirundi; ro română; ru русский; rw Ikinyarwanda; sa संस्कृत भाषा; sc sardu; scn sicilianu; sd سنڌي;
se davvisámegiella; sg Sängö; si සිංහල; sk slovenčina; sl slovenščina; sn chiShona; so Soomaali; sq shqip;
sr српски; ss siSwati; st Sesotho; su Basa Sunda; sv svenska; sw Kiswahili; ta தமிழ்; te తెలుగు; tg тоҷикӣ;
th ไทย; ti ትግርኛ; tk türkmen dili; tn Setswana; to lea fakatonga; tr Türkçe; ts Xitsonga; tt татар; ug ئۇيغۇرچە;
uk українська; ur اردو; uz o‘zbek; ve Tshivenḓa; vi Tiếng Việt; wa walon; xh IsiXhosa; yi ייִדיש; yo Èdè Yorùbá;
yue 粵語; za Vahcuengh; zh 中文; zu isiZulu"""

LANGUAGE_CODES = {
    name.casefold(): code for names in (_split_names(_OWN_NAMES), LANGUAGE_NAMES) for code, name in names.items()
}
"""The codes of these languages by their English names, and by their own ones from CLDR, in lower case."""


def normalize_code(code: str) -> str:
    """A language code in lower case with hyphens, as in "pt-br" for "pt_BR"."""
    return code.replace("_", "-").casefold()


_ARGOS_CODES = {"pt-br": "pb", "zh-hans": "zh", "zh-cn": "zh", "zh-hant": "zt", "zh-tw": "zt"}


def find_argos_code(code: str) -> str | None:
    """A language code in Argos's spelling, as LibreTranslate needs it: "de" for "DE", "pb" for "pt-BR".

    None if `code` is no language code.
    """
    normalized = code.lower().replace("_", "-")
    if not re.fullmatch(r"[a-z]{2,3}(-[a-z0-9]{1,8})*", normalized):
        return None
    return _ARGOS_CODES.get(normalized, normalized)


def get_language_name(code: str) -> str:
    """The English name of a language with its region, as in "German" and "Spanish (mx)".

    It is the code itself if its name is unknown.
    """
    found = find_argos_code(code)
    if found is None:
        return code
    language, _, region = found.partition("-")
    name = LANGUAGE_NAMES.get(language, language)
    return f"{name} ({region})" if region else name


@cache
def load_language_identifier() -> Any:  # noqa: ANN401 - a library without types
    """py3langid's model, which tells the language of a text, loaded once; None if the package is not installed."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 - an optional package
    except ImportError:
        return None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


_TAGS_OF_OWN_CODES = {"pb": "pt-BR", "zt": "zh-Hant"}


def get_base_code(code: str) -> str:
    """The language of a code, in lower case, without script and region: "pt" for "pt_BR", and for Argos's "pb"."""
    return normalize_code(make_language_tag(code)).partition("-")[0]


_CODES_OF_LABELS = """\
af afr; am amh; an arg; ar ara arb; as asm; az aze azj; be bel; bg bul; bn ben; br bre; bs bos; ca cat; cs ces cze;
cy cym wel; da dan; de deu ger; dz dzo; el ell gre; en eng; eo epo; es spa; et est ekk; eu eus baq; fa fas per pes;
fi fin; fo fao; fr fra fre; fy fry; ga gle; gd gla; gl glg; gu guj; ha hau; he heb; hi hin; hr hrv; ht hat; hu hun;
hy hye arm; id ind; ig ibo; is isl ice; it ita; ja jpn; jv jav; ka kat geo; kik ki; kk kaz; km khm; kn kan; ko kor;
ku kur kmr; ky kir; la lat; lb ltz; lg lug; ln lin; lo lao; lt lit; lv lav lvs; mg mlg plt; mk mkd mac; ml mal;
mn mon khk; mr mar; ms msa may zsm; mt mlt; my mya bur; ne nep npi; nl nld dut; nn nno; no nor; oc oci; om orm gaz;
or ori ory; pa pan; pl pol; ps pus pbt; pt por; qu que quy; ro ron rum; ru rus; rw kin; sa san; se sme; si sin;
sk slk slo; sl slv; sn sna; so som; sq sqi alb als; sr srp; st sot; sv swe; sw swa swh; ta tam; te tel; tg tgk; th tha;
tk tuk; tl tgl; tr tur; tt tat; ug uig; uk ukr; ur urd; uz uzb uzn; vi vie; wa wln; xh xho; yo yor; zh zho chi cmn;
zu zul"""

SHORT_CODES = {
    code: label for label, *codes in (entry.split() for entry in _CODES_OF_LABELS.split(";")) for code in codes
}
"""py3langid's labels by the other codes of their languages in ISO 639, those of single languages of a group included,
as in "arb", "pes" and "cmn": data sets have such codes."""


def simplify_code(code: str) -> str:
    """The code of a language without region and script, as py3langid has it: "en" for "en_US", "ru" for "rus_Cyrl"."""
    base = get_base_code(code)
    return SHORT_CODES.get(base, base)


def make_language_tag(code: str) -> str:
    """A code as the standard for web pages has it (BCP 47): "pt-BR" for "pt_BR", and for Argos's "pb"."""
    return _TAGS_OF_OWN_CODES.get(code.casefold(), code.replace("_", "-"))


# Languages that are mostly written from right to left, and scripts that always are.
_RIGHT_TO_LEFT = frozenset(
    "acm aeb apc ar ara arb arc ars ary arz azb bal ckb div dv fa fas he heb iw ji kas ks nqo pbt per pes "  # noqa: SIM905
    "pnb prs ps pus sd skr snd syr ug uig ur urd yi yid".split()
)
_SCRIPTS_RIGHT_TO_LEFT = frozenset("adlm arab aran hebr mand nkoo rohg samr syrc thaa".split())  # noqa: SIM905


def is_right_to_left(code: str) -> bool:
    """Whether a language is written from right to left, by its script if the code has one: "ar", "az-Arab"."""
    base, *further = normalize_code(code).split("-")
    script = next((one for one in further if len(one) == 4 and one.isalpha()), None)
    return base in _RIGHT_TO_LEFT if script is None else script in _SCRIPTS_RIGHT_TO_LEFT


def get_language_code(language: str) -> str:
    """The normalised code of a language, given as a code, in English or in the language: "de", "German", "Deutsch"."""
    return LANGUAGE_CODES.get(language.casefold(), normalize_code(language))


def find_codes(code: str, available: Iterable[str]) -> list[str]:
    """Those of the `available` codes that `code` means: itself, or else that language in a country or a script.

    "en" means "en", and where there is none, "en-US" and "en-GB". Upper and lower case are the same, and "-" and "_".
    """
    wanted, normalized = normalize_code(code), [(normalize_code(one), one) for one in available]
    same = [one for found, one in normalized if found == wanted]
    return same or [one for found, one in normalized if found.startswith(f"{wanted}-")]


WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff]"
)
"""A character of a script without spaces between words (Thai, Lao, Tibetan, Burmese, Khmer, Chinese, Japanese): every
one of them may be where a word begins."""

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]")
_LETTER = re.compile(r"[^\W\d_]")


def choose_tokenization(references: Sequence[str]) -> str:
    """Choose the tokenisation by the script of the references.

    That is sacreBLEU's default for BLEU, "13a", for scripts with spaces between words. In one without, a whole clause
    would be one word: "zh" for Chinese, and "char" for Japanese, Thai, Lao, Tibetan, Burmese and Khmer, whose words
    sacreBLEU finds by further packages or not at all. The script of more than half of the letters decides.
    """
    text = "\n".join(references)
    without_spaces, han, letters = (len(pattern.findall(text)) for pattern in (WITHOUT_SPACES, _HAN, _LETTER))
    if 2 * without_spaces <= letters:
        return "13a"
    # At most half of a Japanese text is Han characters; a Chinese one has punctuation, and may quote a Japanese name.
    return "zh" if 3 * han > 2 * without_spaces else "char"
