"""A few validation sentences and what the model made of them over time: one sees it learn."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from html import escape

from transduce.training.curves import Line, of_kind, spread

MOST_SENTENCES, MOST_OUTPUTS = 6, 10
MOST_CHARACTERS = 400
"""Of a text; a longer one is cut, so that a page of anybody's text stays small."""


def samples(lines: Sequence[Line], source_language: str, target_language: str) -> str:
    """Source, reference and, by update, every output that differs from the one before it."""
    outputs: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for line in of_kind(lines, "validation"):
        update = f"{line['update']:,}"
        for sample in line.get("samples", []):
            runs = outputs.setdefault((sample["source"], sample["reference"]), [])
            if runs and runs[-1][2] == sample["translation"]:
                runs[-1] = (runs[-1][0], update, sample["translation"])
            else:
                runs.append((update, update, sample["translation"]))
    if not outputs:
        return "<p>The first validation will bring them.</p>"
    languages = _language(source_language), _language(target_language)
    # The last ones: an earlier sitting may have shown other sentences.
    return "".join(_sentence(*pair, outputs[pair], *languages) for pair in list(outputs)[-MOST_SENTENCES:])


def _sentence(
    source: str, reference: str, runs: Sequence[tuple[str, str, str]], source_lang: str, target_lang: str
) -> str:
    rows = "".join(
        f'<tr><th scope="row" class="number">{first if first == last else f"{first} to {last}"}</th>'
        f'<td dir="auto"{target_lang}>{_marked(_cut(translation), _cut(reference))}</td></tr>'
        for first, last, translation in spread(runs, MOST_OUTPUTS)
    )
    return (
        f'<article><dl class="sample"><dt>source</dt><dd dir="auto"{source_lang}>{escape(_cut(source))}</dd>'
        f'<dt>reference</dt><dd dir="auto"{target_lang}>{escape(_cut(reference))}</dd></dl><table class="outputs">'
        f'<thead><tr><th scope="col" class="number">update</th><th scope="col">output</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></article>"
    )


def _marked(translation: str, reference: str) -> str:
    """`translation` as HTML, in which everything stands out that the reference has, too, in the same order."""
    pieces, wanted = _pieces(translation, reference), _pieces(reference, reference)
    parts, behind = [], 0
    for block in SequenceMatcher(None, pieces, wanted, autojunk=False).get_matching_blocks():
        parts.append(escape("".join(pieces[behind : block.a])))
        same = escape("".join(pieces[block.a : block.a + block.size]))
        parts.append(f"<b>{same}</b>" if same.strip() else same)
        behind = block.a + block.size
    return "".join(parts)


def _pieces(text: str, reference: str) -> list[str]:
    """Words, and what is between them; single characters where the reference has no spaces."""
    return re.findall(r"\w+|\W", text) if " " in reference else list(text)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _language(code: str) -> str:
    return f' lang="{escape(code)}"' if code else ""
