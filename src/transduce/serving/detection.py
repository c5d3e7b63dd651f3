"""Which of some languages a text is in."""

from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple

from transduce.errors import MissingExtraError

_NUM_CHARACTERS = 2_000
"""Of a text that are read: more change nothing and take time."""


class Detected(NamedTuple):
    """A language and the probability, from 0 to 1, that a text is in it."""

    language: str
    probability: float


class Detector:
    """Detects languages by py3langid, which knows 97 of them; others are never found.

    Raises:
        MissingExtraError: py3langid is not installed.
    """

    def __init__(self) -> None:
        try:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingExtraError("py3langid", "serve", "detecting languages") from error
        self._all = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._known = frozenset(self._all.labels)
        self._among = lru_cache(maxsize=64)(self._restricted)

    def rank(self, text: str, languages: Sequence[str]) -> list[Detected]:
        """The languages, each with its probability among them, best first.

        Those that the detector does not know are at the end with probability 0; so are all for a text without letters,
        in their order.

        Args:
            text: anything; its beginning is read.
            languages: codes, as in "de" or "pt-BR".
        """
        of_base = {language.lower().partition("-")[0]: language for language in reversed(languages)}
        known = frozenset(of_base) & self._known
        beginning = text[:_NUM_CHARACTERS]
        if not known or not any(map(str.isalpha, beginning)):
            return [Detected(language, 0.0) for language in languages]
        ranked = [Detected(of_base[base], float(share)) for base, share in self._among(known).rank(beginning)]
        found = {one.language for one in ranked}
        return [*ranked, *(Detected(language, 0.0) for language in languages if language not in found)]

    def _restricted(self, bases: frozenset[str]) -> Any:  # noqa: ANN401 - of a library without types
        identifier = copy(self._all)
        identifier.set_languages(bases)
        return identifier
