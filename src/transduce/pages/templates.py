"""The templates and style sheets that all pages share."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_FOLDER = Path(__file__).parent

MAX_CHARACTERS = 500
"""Maximum number of characters that a page shows of a sentence, so that it stays small."""


def shorten_text(text: str) -> str:
    """The text, cut after `MAX_CHARACTERS`, with three dots in place of the rest."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def make_templates(folder: Path | None = None) -> Environment:
    """Jinja's environment for the templates in `folder`, which may import the elements of `elements.html.j2`.

    What a template shows is escaped, and a name that it is not given is an error.
    """
    folders = [_FOLDER] if folder is None else [folder, _FOLDER]
    return Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )


def read_style(*names: str) -> str:
    """The style sheets with these file names, one after the other; without names, those of a whole page."""
    return "".join((_FOLDER / name).read_text(encoding="utf-8") for name in names or ("page.css", "chart.css"))
