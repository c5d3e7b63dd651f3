"""Model cards in Markdown, from the recorded facts about a model alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.bundle.manifest import BundleDescription
from transduce.text import TARGET_MODEL


def render_card(folder: Path, **values: Any) -> str:  # noqa: ANN401 - whatever the template uses
    """The model card from the template `card.md.jinja` in `folder`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only writing a model needs it

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=False,  # noqa: S701 - the result is Markdown
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"fact": format_fact, "to_json": lambda value: json.dumps(value, ensure_ascii=False)}
    return environment.get_template("card.md.jinja").render(values)


def model_card(description: BundleDescription, num_parameters: int) -> str:
    """The README.md of a bundle, with the front matter that the Hugging Face Hub reads.

    A figure that is not in `description` is said to be missing or is left out; none is estimated.
    """
    source, target = description.languages.source, description.languages.target
    training = dict(description.training)
    if isinstance(seconds := training.pop("seconds", None), int | float):
        training["time"] = f"{seconds / 60:,.1f} minutes, without validation"
    return render_card(
        Path(__file__).parent,
        about=description,
        model=description.model,
        num_parameters=num_parameters,
        title=f"Translation from {source} to {target}" if source and target else "Translation model",
        codes=list(dict.fromkeys(filter(None, (source, target)))),
        results=[score for score in description.scores if score.data],
        scored=training.get("scored_pairs"),
        validation_pairs=training.get("validation_pairs"),
        training=training,
        has_two_tokenizers=TARGET_MODEL in description.files,
    )


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
