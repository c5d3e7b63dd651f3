"""The README.md of a bundle: a model card from the recorded facts about the model alone."""

import json
from collections.abc import Mapping

from transduce.bundle.manifest import BundleDescription
from transduce.text import TARGET_MODEL

USE = """\
## Use

With Transduce, the program that trained it:

```
transduce translate path/to/this/folder < source.txt > translation.txt
```

```python
from transduce import Translator

translator = Translator.load("path/to/this/folder")
print(translator.translate(["One sentence.", "And another."]))
```

How good it is on text of your own, with translations of it by people:

```
transduce evaluate path/to/this/folder --source test.source --reference test.target
```
"""

INTENDED_USE = """\
## Intended use

Translating sentences like those of its training text. Where a wrong translation can do harm, as in medicine or law,
somebody who knows both languages has to read what it writes. It repeats the errors and prejudices of its training text;
nobody has tested it for them.
"""

SCORED_ON_VALIDATION = """\
The validation text also decides which model of a run is kept as the best: on other text of the same kind, somewhat
lower scores are to be expected.
"""

FILES = """\
## Files

`weights.safetensors` and `tokenizer.model` (SentencePiece) are the model; `bundle.json` describes it, with the size
and the SHA-256 of both, which are checked whenever the folder is opened. Nothing in it is code.
"""

FILES_OF_TWO_TOKENIZERS = """\
## Files

`weights.safetensors`, `tokenizer.model` and `target_tokenizer.model` (SentencePiece, for source and target) and
`vocabulary.json` (which id each of their pieces has) are the model; `bundle.json` describes it, with the size and the
SHA-256 of each, which are checked whenever the folder is opened. Nothing in it is code.
"""


def model_card(description: BundleDescription, num_parameters: int) -> str:
    """The card in Markdown, with the front matter that the Hugging Face Hub reads.

    A figure that is not in `description` is said to be missing or is left out; none is estimated.
    """
    parts = [
        _front_matter(description),
        f"# {_title(description)}\n",
        _description_section(description, num_parameters),
        _quality_section(description),
        INTENDED_USE,
        USE,
        _training_section(description),
        _data_section(description),
        _limits_section(description),
        FILES_OF_TWO_TOKENIZERS if TARGET_MODEL in description.files else FILES,
    ]
    return "\n".join(part for part in parts if part)


def _front_matter(description: BundleDescription) -> str:
    languages = [code for code in (description.languages.source, description.languages.target) if code]
    lines = ["---"]
    if languages:
        # Quoted, because YAML takes a bare "no" (Norwegian) for a false.
        lines += ["language:", *(f"- {json.dumps(code, ensure_ascii=False)}" for code in dict.fromkeys(languages))]
    lines += ["pipeline_tag: translation", "library_name: transduce", "tags:"]
    lines += ["- translation", "- transformer", "- transduce", *_model_index(description)]
    return "\n".join([*lines, "---", ""])


def _model_index(description: BundleDescription) -> list[str]:
    """The scores for the Hub. Texts are written as JSON, which is YAML."""
    results = [
        {
            "task": {"type": "translation", "name": "Translation"},
            "dataset": {"type": score.data, "name": score.data},
            "metrics": [
                {
                    "type": score.metric.lower(),
                    "name": score.metric,
                    "value": round(score.value, 2),
                    "args": {"signature": score.signature, "confidence_95": [score.low, score.high]},
                }
            ],
        }
        for score in description.scores
        if score.data
    ]
    if not results:
        return []
    metrics = dict.fromkeys(score.metric.lower() for score in description.scores if score.data)
    indexed = [f"  - {json.dumps(result, ensure_ascii=False)}" for result in results]
    name = json.dumps(_title(description), ensure_ascii=False)
    return [
        "metrics:",
        *(f"- {metric}" for metric in metrics),
        "model-index:",
        f"- name: {name}",
        "  results:",
        *indexed,
    ]


def _title(description: BundleDescription) -> str:
    languages = description.languages
    if languages.source and languages.target:
        return f"Translation from {languages.source} to {languages.target}"
    return "Translation model"


def _description_section(description: BundleDescription, num_parameters: int) -> str:
    model = description.model
    return (
        f'A Transformer as in "Attention Is All You Need" (Vaswani et al. 2017), saved by Transduce '
        f"{description.library_version}.\n\n"
        f"- Parameters: {num_parameters:,}\n"
        f"- Layers: {model.num_encoder_layers} in the encoder, {model.num_decoder_layers} in the decoder\n"
        f"- Widths: d_model {model.d_model}, d_ff {model.d_ff}, {model.num_heads} heads of d_k {model.d_k} and "
        f"d_v {model.d_v}\n"
        f"- Vocabulary: {model.vocabulary:,} token ids, shared by both languages\n"
    )


def _quality_section(description: BundleDescription) -> str:
    if not description.scores:
        return "## Quality\n\nNo scores were recorded for this model.\n"
    lines = ["## Quality", ""]
    for score in description.scores:
        interval = "" if score.low is None else f" (95 % confidence: {score.low:.2f} to {score.high:.2f})"
        data = f" on {score.data}" if score.data else ""
        signature = f" (`{score.signature}`)" if score.signature else ""
        lines.append(f"- {score.metric} {score.value:.2f}{interval}{data}{signature}")
    if any(score.data == "validation" for score in description.scores):
        lines += ["", SCORED_ON_VALIDATION.rstrip()]
        scored, there = (description.training.get(name) for name in ("scored_pairs", "validation_pairs"))
        if scored is not None and scored != there:
            lines += ["", f"Scored were the first {format_fact(scored)} of its {format_fact(there)} pairs."]
    return "\n".join([*lines, ""])


def _training_section(description: BundleDescription) -> str:
    facts = dict(description.training)
    if isinstance(seconds := facts.pop("seconds", None), int | float):
        facts["time"] = f"{seconds / 60:,.1f} minutes, without validation"
    lines = [f"- {name.replace('_', ' ')}: {format_fact(value)}" for name, value in facts.items()]
    return "\n".join(["## Training", "", *lines, ""]) if lines else ""


def format_fact(value: object) -> str:
    """A fact of any shape in one line, as in "1,200" or "held out 206, kept 59,794"."""
    match value:
        case Mapping():
            return ", ".join(f"{str(name).replace('_', ' ')} {_format_inner(inner)}" for name, inner in value.items())
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False)


def _format_inner(value: object) -> str:
    return f"({format_fact(value)})" if isinstance(value, Mapping) else format_fact(value)


def _data_section(description: BundleDescription) -> str:
    lines = [f"- {name}: `{digest}`" for name, digest in description.data.items()]
    return "\n".join(["## Data", "", "SHA-256 of the texts:", "", *lines, ""]) if lines else ""


def _limits_section(description: BundleDescription) -> str:
    limits = [
        "It translates sentence by sentence and knows nothing of the sentences around.",
        "Its output can read well and still be wrong; names, numbers and negations deserve a second look.",
        "Text unlike its training text is translated worse than the figures above may suggest.",
        f"A translation has at most {description.search.max_extra_length} tokens more than its source.",
    ]
    if description.model.positions == "learned":
        limits.append(f"It reads and writes at most {description.model.max_positions} tokens at a time.")
    return "\n".join(["## Limits", "", *(f"- {limit}" for limit in limits), ""])
