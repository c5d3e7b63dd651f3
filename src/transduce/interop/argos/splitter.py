"""The sentence splitter of an Argos package: rules about punctuation as an ONNX network, which MiniSBD runs.

MiniSBD (github.com/LibreTranslate/MiniSBD) maps every character of a paragraph to a number and asks a network at which
characters a sentence ends. This network is a table and two convolutions:

    table: number of a character -> sets that contain the character      [batch, characters, sets]
    convolution over neighbours: the rules that hold at a character      [batch, rules, characters]
    convolution of width 1: an end, unless an exception holds as well       [batch, 3, characters]

Argos Translate downloads a splitter if a package has none.

A rule is a row of words, one for each of some adjacent characters, as in "stop* space starter". A word is the name of a
set in `list_character_sets` or a single character, a letter in either case. "!" before a set: the character is not in
the set, or there is no character, as before the start of a text. "*" marks the last character of a sentence. In doubt,
no sentence ends: translating two sentences together is less harmful than splitting one.
"""

import json
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from transduce.interop.onnx.network import Graph

_ALWAYS = {
    "cs": "bc cca dr ing mgr mudr např phdr prof resp rndr st sv tj tzv ul",
    "da": "bl ca cand dr dvs eks f.eks fr hr jf kgl ltd maks mht pga prof skt vedr",
    "de": "bspw bzw ca dipl dr evtl exkl fa fr geb gegr gest ggf hl hr hrsg ing inkl jr kath mag mio mrd nr prof sog "
    "st std tel vgl zzgl",
    "el": "αγ βλ δρ καθ",
    "en": "approx capt cf col dept dr est fr gen gov hon lt maj messrs mr mrs ms msgr mt pres prof rep rev sen sgt st "
    "supt vs viz",
    "es": "aprox av avda dr dra dña ee ej ing lic prof profa sr sra sres sras srta tel ud uds vd vds",
    "fi": "dipl esim fil huom ks mm mr ns os prof puh rva st synt toim tri ts vrt",
    "fr": "apr av bd bld cf dr drs env ex me mgr mlle mlles mm mme mmes mr p.ex prof st ste tél",
    "hi": "डॉ प्रो",
    "hu": "dr ifj ill kb ld özv prof stb szt tel ui ún",
    "it": "avv arch dott dott.ssa dr gen geom ing mons on prof sen sig sigg sigra tel",
    "nb": "bl ca cand dr dvs eks evt f.eks fr frk hr iht inkl jf kgl maks mht pga prof st tlf vedr",
    "nl": "bijv blz ca dhr dr drs excl incl ing ir jhr jl mevr mr mw prof resp st tel vgl",
    "pl": "al bp dr gen hab in inż ks lek m.in mgr np os pl płk prof śp św tel tzn tzw ul",
    "pt": "aprox av dr dra drs eng exma exmo ex prof profa sr sra srs sras srta tel",
    "ro": "dl dna dr ex ing nr prof sf st str tel",
    "ru": "акад др доц напр просп проф св см ср ул",
    "sv": "bl ca dr dvs ex forts inkl jfr obs prof resp st t.ex tel",
    "tr": "alb av bkz cad doç dr gen mah örn prof sn sok",
    "uk": "акад вул див доц ім напр просп проф св",
}

_BEFORE_NUMBERS = {
    "cs": "čl kap obr odst str tab",
    "da": "afsn art fig kap kl nr pkt tlf",
    "de": "abb abs apr art aug bd dez feb fig jan kap okt nov sept -str tab ziff",
    "el": "αρ εικ κεφ σελ τηλ",
    "en": "apr art aug ch dec eq feb fig figs jan jul jun mar no nos nov oct pp sec sep sept vol vols",
    "es": "art arts cap fig núm pág págs vol",
    "fi": "kpl kuv luku nro",
    "fr": "art chap fig no num pp vol",
    "hu": "sz",
    "it": "art artt cap fig pag pagg vol",
    "nb": "art fig kap kl nr pkt",
    "nl": "art fig hfst nr tab",
    "pl": "art godz nr pkt poz rozdz rys str tab ust",
    "pt": "art arts cap fig núm pág págs vol",
    "ro": "art cap fig pag vol",
    "ru": "гл илл рис стр табл тел",
    "sv": "fig kap kl nr sid",
    "tr": "md no sf",
    "uk": "гл мал рис стор табл тел",
}

_SAME = {"nn": "nb", "no": "nb", "pb": "pt", "gl": "es", "ca": "es", "sk": "cs", "be": "ru"}
"""Languages without their own list, each with a language whose list is suitable."""


def list_abbreviations(language: str) -> tuple[list[str], list[str]]:
    """Abbreviations that never end a sentence, and those that do not before a number; empty for unknown languages."""
    listed = _SAME.get(language, language)
    return _ALWAYS.get(listed, "").split(), _BEFORE_NUMBERS.get(listed, "").split()


UNKNOWN_BELONGS = ("character", "letter-before", "word-before", "starter")
"""The sets of an unknown character: most likely one of a script without capitals."""

_ORDINALS = "be bs cs da de dsb et eu fi fo hr hsb hu is lb lv me nb nn no pl sk sl sr tr"
"""Languages that write a full stop after the number in "3. Mai"."""

_STOPS = ".!?…‽؟۔।॥።"
_STOPS_OF = {"el": ".!?…;", "hy": ".!?…։"}
_WIDE_STOPS = "。！？｡．"
_QUOTES = "'’‘‚\"“”„«»‹›"
_WIDE_CLOSING = "」』）】》〉”’］｣\"')]"
_DASHES = "-–—"
_FRONT = "#$%&*+<=@_~§€£•"
"""Signs with which a sentence may begin."""


def list_character_sets(language: str) -> dict[str, frozenset[str]]:
    """All known characters, in sets by name."""
    stops = _STOPS_OF.get(language, _STOPS)
    every = [chr(number) for number in range(0x10000)]
    # Georgian has had capitals since Unicode 11, and begins no sentence with one.
    all_letters = [one for one in every if (one.islower() or one.isupper()) and not "\u10d0" <= one <= "\u10ff"]
    digits = [one for one in every if one.isdecimal()]
    signs = set(string.punctuation + _STOPS + stops + _WIDE_STOPS + _QUOTES + _WIDE_CLOSING + _DASHES + _FRONT + "¿¡ ")
    capitals = [letter for letter in all_letters if not letter.islower()]
    sets = {
        "character": [*all_letters, *digits, *signs],
        "space": " ",
        "digit": digits,
        "letter": all_letters,
        "letter-before": [*all_letters, *digits, *"'’/@_"],  # what makes a letter part of something longer
        "word-before": [*all_letters, *digits, *"./@_"],  # and a word, as in the name of a site
        "starter": [*capitals, *digits, *_FRONT],
        "stop": stops,
        "opening": _QUOTES + "([{<¿¡",
        "closing": _QUOTES + ")]}>",
        "apart": _DASHES + "«",  # with a space after it, as in French after an opening quotation mark
        "wide-stop": _WIDE_STOPS,
        "wide-closing": _WIDE_CLOSING,
        "wide-continuing": _WIDE_STOPS + _WIDE_CLOSING + stops,
    }
    return {name: frozenset(characters) for name, characters in sets.items()}


def list_end_rules() -> list[str]:
    """The rules by which a sentence ends."""
    last = ["stop*", "stop closing*", "stop closing closing*", "stop closing closing closing*", "stop space »*"]
    next_sentence = [
        "space starter",
        "space opening starter",
        "space opening opening starter",
        "space apart space starter",
    ]
    wide = ["wide-stop*", "wide-stop wide-closing*", "wide-stop wide-closing wide-closing*"]
    return [
        *(f"{one} {other}" for one, other in product(last, next_sentence)),
        # Chinese and Japanese put no space between sentences.
        *(f"{one} !wide-continuing" for one in wide),
    ]


def list_exception_rules(language: str) -> list[str]:
    """The exceptions: rules that override the end of a sentence."""
    always, before_numbers = list_abbreviations(language)
    found = [
        "!letter-before letter .*",  # J. S. Bach, z. B., e.g.
        "!character digit .*",  # the first of a numbered list
        "!character digit digit .*",
        "wide-stop wide-closing* と",  # Japanese: 「はい。」と言った
        *(f"{_spell_rule(word)} .*" for word in always),
        *(f"{_spell_rule(word)} .* space digit" for word in before_numbers),
    ]
    # In "Nr. 3. Dann", the number belongs to the abbreviation before it.
    ordinals = ["!. space digit .*", "!. space digit digit .*"]
    return [*found, *ordinals] if language in _ORDINALS.split() else found


def _spell_rule(abbreviation: str) -> str:
    """The rule for an abbreviation; one with a leading hyphen may be the end of a longer word."""
    start, letters = ("letter", abbreviation[1:]) if abbreviation.startswith("-") else ("!word-before", abbreviation)
    return " ".join([start, *letters])


OPSET = 13
"""Version of ONNX's operators, no newer than needed: splitters are run by whatever onnxruntime is installed."""

_PAD, _UNKNOWN = "<PAD>", "<UNK>"
"""MiniSBD's names for padding, and for a character without a number of its own."""

_Array = npt.NDArray[np.float32]


def make_splitter(language: str) -> bytes:
    """The file `minisbd/<language>.onnx` of a package whose source texts are in this language.

    The language is a code as in "de"; a region has no effect. Most languages have no list of abbreviations: their rules
    use punctuation, capitals, digits and single letters only.
    """
    language = re.split("[-_]", language.lower())[0]
    rules = [_Rule.read(text) for text in (*list_end_rules(), *list_exception_rules(language))]
    names = list(dict.fromkeys(name for rule in rules for name in rule.names))
    numbers, table = _number_characters(language, names)
    before, after = max(rule.last for rule in rules), max(len(rule.names) - rule.last for rule in rules) - 1
    weights = _make_rule_weights(rules, names, before, after)
    biases = np.array([1 - sum(rule.wanted) for rule in rules], dtype=np.float32)
    verdict = _make_verdict_weights(len(list_end_rules()), len(rules))
    graph = Graph("sentence ends", {}, OPSET)
    units = graph.input("units", np.int64, ["batch", "characters"])
    # MiniSBD computes it for its own models; it is not read.
    graph.input("features", np.float32, ["batch", "characters", "no features"])
    by_character = graph.operation("Gather", graph.initializer("table", table), units)
    by_set = graph.operation("Transpose", by_character, perm=[0, 2, 1])
    rule_weights = graph.initializer("rules", weights), graph.initializer("rules_bias", biases)
    holding = graph.operation("Relu", graph.operation("Conv", by_set, *rule_weights, pads=[before, after]))
    verdict_weights = graph.initializer("verdict", verdict), graph.initializer("verdict_bias", _VERDICT_BIAS)
    by_verdict = graph.operation("Conv", holding, *verdict_weights)
    output = graph.operation("Transpose", by_verdict, perm=[0, 2, 1])
    graph.output(output, "output", np.float32, ["batch", "characters", 3])
    return graph.to_bytes("", _make_metadata(language, numbers, len(table)))


@dataclass(frozen=True)
class _Rule:
    """The set of each character, whether the character has to be in it, and which character ends the sentence."""

    names: tuple[str, ...]
    wanted: tuple[bool, ...]
    last: int

    @classmethod
    def read(cls, text: str) -> "_Rule":
        """Parse a rule; "!" or "*" alone stands for that character."""
        words = text.split(" ")
        (last,) = (position for position, word in enumerate(words) if len(word) > 1 and word.endswith("*"))
        words[last] = words[last][:-1]
        wanted = tuple(len(word) == 1 or not word.startswith("!") for word in words)
        names = tuple(word if want else word[1:] for word, want in zip(words, wanted, strict=True))
        return cls(names, wanted, last)


def _number_characters(language: str, names: Sequence[str]) -> tuple[dict[str, int], _Array]:
    """The number of each known character, and for each number a row with its membership in the sets of `names`.

    Characters that no rule distinguishes share a number; 0 stands for no character, 1 for an unknown one.
    """
    sets = list_character_sets(language)
    members = [sets.get(name) or frozenset((name, name.lower(), name.upper())) for name in names]
    literals = {character for name in names if name not in sets for character in (name.lower(), name.upper())}
    common = sets["character"]

    def row(character: str) -> tuple[bool, ...]:
        unknown = character not in common
        return tuple(
            character in characters or (unknown and name in UNKNOWN_BELONGS)
            for name, characters in zip(names, members, strict=True)
        )

    rows = {(False,) * len(names): 0, row(_UNKNOWN): 1}
    numbers = {_PAD: 0, _UNKNOWN: 1}
    for character in sorted(common | literals):
        numbers[character] = rows.setdefault(row(character), len(rows))
    return numbers, np.array(list(rows), dtype=np.float32)


def _make_rule_weights(rules: Sequence[_Rule], names: Sequence[str], before: int, after: int) -> _Array:
    """[rules, sets, before + 1 + after]: with its bias, a rule gives 1 where it holds, and at most 0 elsewhere."""
    weights = np.zeros((len(rules), len(names), before + 1 + after), dtype=np.float32)
    columns = {name: column for column, name in enumerate(names)}
    for row, rule in zip(weights, rules, strict=True):
        for position, (name, want) in enumerate(zip(rule.names, rule.wanted, strict=True)):
            row[columns[name], before + position - rule.last] += 1 if want else -sum(rule.wanted)
    return weights


_VERDICT_BIAS: _Array = np.array([0.5, -1, 0], dtype=np.float32)
"""Biases of the three outputs, of which MiniSBD takes the largest: nothing ends, a word ends, a sentence ends."""


def _make_verdict_weights(num_ends: int, num_rules: int) -> _Array:
    """[3, rules, 1]: a single exception outweighs all ends together."""
    weights = np.zeros((3, num_rules, 1), dtype=np.float32)
    weights[2, :num_ends] = 1
    weights[2, num_ends:] = -num_ends
    return weights


def _make_metadata(language: str, numbers: dict[str, int], num_numbers: int) -> dict[str, str]:
    """The metadata that MiniSBD reads beside the network (minisbd/inference.py, `create_session`)."""
    some_character = {number: character for character, number in reversed(numbers.items())}
    vocabulary = {
        "lang": language,
        "idx": 0,
        "cutoff": 0,
        "lower": False,
        "_unit2id": numbers,
        "_id2unit": [some_character[number] for number in range(num_numbers)],
    }
    return {
        "lang_code": language,
        "config": json.dumps({"feat_funcs": []}),
        "vocab": json.dumps(vocabulary, ensure_ascii=False, separators=(",", ":")),
        "lexicon": "null",
    }
