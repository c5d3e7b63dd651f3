"""Are protected spans and required terms kept, each exactly once, and what does that cost?

    python benchmarks/kept.py BUNDLE test.en test.de

Puts 1 to 4 addresses, placeholders, numbers (also with unit or other letters), or elements, also one within another, at
random places of each line and translates with protection; and translates each line with 1 to 4 words of its reference
required. Prints how many lines keep each of them exactly once, with tags in their order, how that was reached, and BLEU
(of spans taken out again) beside that of a plain translation of the same lines. Last, one line of JSON.
"""

import argparse
import json
import random
import re
import time
from collections import Counter
from pathlib import Path

from transduce.evaluation import score_corpus
from transduce.text import USUAL_KINDS, find_protected_spans
from transduce.translation import LineTranslator, TextConstraints, TranslationOptions, Translator

SPANS = (
    "https://example.org/{}?q=1",
    "mail{}@example.org",
    "{{name{}}}",
    "%({})s",
    "1,0{}0",
    "2024-01-0{}",
    "4{}km",
    "18{}0s",
    "elements",
)
ELEMENTS = (("<b>", "</b>"), ("<b>", "<i>", "</i>", "</b>"), ('<a href="x.html">', "<b>", "</b>", "<br/>", "</a>"))
KINDS = (*USUAL_KINDS, "number")


def main() -> None:
    """Parse, translate, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("source", type=Path, help="one sentence a line")
    parser.add_argument("reference", type=Path, help="its translations")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--terms", type=int, help="number of lines with required words; all unless given")
    arguments = parser.parse_args()
    lines, references = (
        path.read_text(encoding="utf-8").splitlines() for path in (arguments.source, arguments.reference)
    )
    translator = Translator.load(arguments.bundle, device="cpu", precision=arguments.precision)
    chance = random.Random(1)  # noqa: S311 - nothing here is secret
    plain = translator.translate(lines)
    most = len(lines) if arguments.terms is None else arguments.terms
    found = {
        "plain": {"bleu": bleu(plain, references), "bleu of lines with terms": bleu(plain[:most], references[:most])}
    }

    started = time.perf_counter()
    marked = [insert_spans(line, chance) for line in lines]
    keeper = LineTranslator(translator, TranslationOptions(protect=KINDS))
    kept = keeper.translate([text for text, _ in marked])
    texts = [line.translation.text for line in kept]
    right = sum(keeps(text, spans) for text, (_, spans) in zip(texts, marked, strict=True))
    bare = [without(text, spans) for text, (_, spans) in zip(texts, marked, strict=True)]
    found["spans"] = {
        "kept": right,
        "lines": len(lines),
        "bleu": bleu(bare, references),
        "seconds": round(time.perf_counter() - started, 1),
        **Counter(line.how or "" for line in kept),
    }

    lines, references = lines[:most], references[:most]
    started = time.perf_counter()
    wanted = [terms(reference, chance) for reference in references]
    wide = translator.with_search({"beam": 8})
    constraints = [TextConstraints(required=words) for words in wanted]
    texts = [translation.text for translation in wide.find_translations(lines, constraints=constraints)]
    right = sum(
        all(len(re.findall(rf"\b{re.escape(word)}\b", text)) == 1 for word in words)
        for text, words in zip(texts, wanted, strict=True)
    )
    found["terms"] = {
        "kept": right,
        "lines": len(lines),
        "bleu": bleu(texts, references),
        "seconds": round(time.perf_counter() - started, 1),
    }
    for name, figures in found.items():
        print(name, ", ".join(f"{key} {value}" for key, value in figures.items()))
    print(json.dumps(found))


def bleu(texts: list[str], references: list[str]) -> float:
    """BLEU as everybody reports it, to two places."""
    (score,) = score_corpus(texts, references, ("bleu",))
    return round(score.value, 2)


def insert_spans(line: str, chance: random.Random) -> tuple[str, list[str]]:
    """The line with 1 to 4 spans between its words, and what has to be kept: tags in their order."""
    words, spans = line.split(), []
    for number, span in enumerate(chance.sample(SPANS, chance.randint(1, 4)), start=1):
        if span == "elements":
            tags = chance.choice(ELEMENTS)
            places = sorted(chance.choices(range(len(words) + 1), k=len(tags)), reverse=True)
            for place, tag in zip(places, reversed(tags), strict=True):
                words.insert(place, tag)
            spans += tags
        else:
            words.insert(chance.randint(0, len(words)), span.format(number))
            spans.append(span.format(number))
    return " ".join(words), spans


def keeps(text: str, spans: list[str]) -> bool:
    """Whether all spans are there, each as often as it is listed, and tags in the same order."""
    found = [text[span.start : span.end] for span in find_protected_spans(text, KINDS)]
    tags = [[span for span in one if span.startswith("<")] for one in (found, spans)]
    return tags[0] == tags[1] and all(found.count(span) == spans.count(span) for span in spans)


def without(text: str, spans: list[str]) -> str:
    """The text with the spans taken out."""
    for span in spans:
        text = text.replace(span, " ")
    return " ".join(text.split())


def terms(reference: str, chance: random.Random) -> tuple[str, ...]:
    """1 to 4 different words of the reference that occur once, in its order."""
    words = [word for word, count in Counter(reference.split()).items() if count == 1 and word.isalpha()]
    chosen = set(chance.sample(words, min(len(words), chance.randint(1, 4))))
    return tuple(word for word in words if word in chosen)


if __name__ == "__main__":
    main()
