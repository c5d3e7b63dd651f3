"""Languages as Argos Translate and LibreTranslate call them."""

import re

from transduce.errors import BundleError
from transduce.text import LANGUAGE_NAMES

_OWN_CODES = {"pt-br": "pb", "zh-hans": "zh", "zh-cn": "zh", "zh-hant": "zt", "zh-tw": "zt"}


def argos_code(code: str) -> str:
    """The language `code`, as in "de" or "pt-BR", as Argos writes it: in small letters; LibreTranslate finds no others.

    Raises:
        BundleError: it is no such code.
    """
    small = code.lower().replace("_", "-")
    if not re.fullmatch(r"[a-z]{2,3}(-[a-z0-9]{1,8})*", small):
        raise BundleError(
            f"the language {code!r}: an Argos package is found by its languages, each a code such as 'de'; "
            f'write them in bundle.json, as in "languages": {{"source": "en", "target": "de"}}'
        )
    return _OWN_CODES.get(small, small)


def language_name(code: str) -> str:
    """The English name of a code that `argos_code` returned, to be shown to people; the code where none is known."""
    language, _, region = code.partition("-")
    name = LANGUAGE_NAMES.get(language, language)
    return f"{name} ({region})" if region else name
