"""The sentence splitter of an Argos package: the rules of `rules` as a network in ONNX, which MiniSBD runs.

MiniSBD (github.com/LibreTranslate/MiniSBD) looks up a number for every character of a paragraph and asks a network at
which characters a sentence ends. Ours is a table and two convolutions:

    table: number of a character -> sets it is in                        [batch, characters, sets]
    convolution over neighbours: the rules that hold at a character      [batch, rules, characters]
    convolution of width 1: an end, unless an exception holds, too       [batch, 3, characters]

Argos Translate fetches a splitter from the network where a package has none.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce import __version__
from transduce.interop.argos.rules import UNKNOWN_BELONGS, character_sets, ends, exceptions
from transduce.interop.onnx.package import import_onnx

OPSET, IR_VERSION = 13, 8
"""Of ONNX: no newer than needed, as splitters are run by whatever onnxruntime is installed."""

_PAD, _UNKNOWN = "<PAD>", "<UNK>"
"""What MiniSBD calls the places behind a text, and a character without a number of its own."""

_Array = npt.NDArray[np.float32]


def splitter_model(language: str) -> bytes:
    """The file `minisbd/<language>.onnx` of a package whose source texts are in this language.

    Args:
        language: code as in "de"; a region makes no difference. Most languages have no list of abbreviations: there,
            punctuation, capitals, digits and single letters decide.

    Raises:
        MissingExtraError: the package `onnx` is not installed.
    """
    onnx = import_onnx("writing the sentence splitter of an Argos package")
    language = re.split("[-_]", language.lower())[0]
    rules = [_Rule.read(text) for text in (*ends(), *exceptions(language))]
    names = list(dict.fromkeys(name for rule in rules for name in rule.names))
    numbers, table = _characters(language, names)
    before, after = max(rule.last for rule in rules), max(len(rule.names) - rule.last for rule in rules) - 1
    weights = _rule_weights(rules, names, before, after)
    biases = np.array([1 - sum(rule.wanted) for rule in rules], dtype=np.float32)
    verdict = _verdict_weights(len(ends()), len(rules))
    arrays = {"table": table, "rules": weights, "rules_bias": biases, "verdict": verdict, "verdict_bias": _VERDICT_BIAS}
    model = onnx.helper.make_model(
        _graph(onnx, arrays, [before, after]),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="transduce",
        producer_version=__version__,
    )
    onnx.helper.set_model_props(model, _metadata(language, numbers, len(table)))
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


@dataclass(frozen=True)
class _Rule:
    """The name of the set of each character, whether it has to be in it, and which is the last of the sentence."""

    names: tuple[str, ...]
    wanted: tuple[bool, ...]
    last: int

    @classmethod
    def read(cls, text: str) -> "_Rule":
        """The rule that is written in words; "!" or "*" alone stands for that character."""
        words = text.split(" ")
        (last,) = (place for place, word in enumerate(words) if len(word) > 1 and word.endswith("*"))
        words[last] = words[last][:-1]
        wanted = tuple(len(word) == 1 or not word.startswith("!") for word in words)
        names = tuple(word if want else word[1:] for word, want in zip(words, wanted, strict=True))
        return cls(names, wanted, last)


def _characters(language: str, names: Sequence[str]) -> tuple[dict[str, int], _Array]:
    """The number of each character that is known, and for each number a row: is it in the set of this name?

    Characters that no rule distinguishes have one number; 0 is no character, 1 one that is not known.
    """
    sets = character_sets(language)
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


def _rule_weights(rules: Sequence[_Rule], names: Sequence[str], before: int, after: int) -> _Array:
    """[rules, sets, before + 1 + after]: with its bias, a rule gives 1 where it holds, and at most 0 elsewhere."""
    weights = np.zeros((len(rules), len(names), before + 1 + after), dtype=np.float32)
    places = {name: place for place, name in enumerate(names)}
    for row, rule in zip(weights, rules, strict=True):
        for place, (name, want) in enumerate(zip(rule.names, rule.wanted, strict=True)):
            row[places[name], before + place - rule.last] += 1 if want else -sum(rule.wanted)
    return weights


_VERDICT_BIAS: _Array = np.array([0.5, -1, 0], dtype=np.float32)
"""MiniSBD takes the largest of: nothing ends, a word ends, a sentence ends. Of words it makes nothing."""


def _verdict_weights(num_ends: int, num_rules: int) -> _Array:
    """[3, rules, 1]: a single exception outweighs all ends together."""
    weights = np.zeros((3, num_rules, 1), dtype=np.float32)
    weights[2, :num_ends] = 1
    weights[2, num_ends:] = -num_ends
    return weights


def _graph(onnx: ModuleType, arrays: dict[str, _Array], padding: list[int]) -> Any:  # noqa: ANN401 - without types
    """The network; `features`, which MiniSBD computes for its own models, is of width 0 and not read."""
    make = onnx.helper.make_node
    nodes = [
        make("Gather", ["table", "units"], ["by_character"]),
        make("Transpose", ["by_character"], ["by_set"], perm=[0, 2, 1]),
        make("Conv", ["by_set", "rules", "rules_bias"], ["matches"], pads=padding),
        make("Relu", ["matches"], ["holding"]),
        make("Conv", ["holding", "verdict", "verdict_bias"], ["by_verdict"]),
        make("Transpose", ["by_verdict"], ["output"], perm=[0, 2, 1]),
    ]
    kinds = onnx.TensorProto
    value = onnx.helper.make_tensor_value_info
    return onnx.helper.make_graph(
        nodes,
        "sentence ends",
        inputs=[
            value("units", kinds.INT64, ["batch", "characters"]),
            value("features", kinds.FLOAT, ["batch", "characters", "no features"]),
        ],
        outputs=[value("output", kinds.FLOAT, ["batch", "characters", 3])],
        initializer=[onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )


def _metadata(language: str, numbers: dict[str, int], num_numbers: int) -> dict[str, str]:
    """What MiniSBD reads beside the network (minisbd/inference.py, `create_session`)."""
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
