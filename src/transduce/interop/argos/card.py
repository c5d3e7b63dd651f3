"""The README.md of an Argos package: what the model is and what is known about it."""

from transduce.bundle import BundleDescription
from transduce.interop.argos.languages import language_name

_CARD = """\
# {source} to {target}

A translation model for Argos Translate and LibreTranslate, exported by Transduce {version}, weights in {precision}.
{scores}
It was made for sentences of at most {max_pieces} pieces: of a longer one, it may leave something out.

`minisbd/` divides text into sentences, for Argos Translate without a network. It goes by punctuation, capital letters,
digits and common abbreviations; nothing in it was trained.
"""


def argos_card(description: BundleDescription, codes: tuple[str, str], precision: str) -> str:
    """The card in Markdown; `codes` are the languages as Argos writes them."""
    scores = [f"{score.metric} {score.value:.2f} on {score.data} ({score.signature})" for score in description.scores]
    source, target = map(language_name, codes)
    return _CARD.format(
        source=source,
        target=target,
        version=description.library_version,
        precision=precision,
        scores="".join(f"\n- {score}" for score in scores) + "\n" if scores else "",
        max_pieces=description.search.max_pieces,
    )
