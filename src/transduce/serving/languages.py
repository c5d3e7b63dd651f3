"""The languages of the loaded models, as clients write and read them."""

from collections.abc import Iterable, Sequence

from transduce.errors import BundleError
from transduce.interop.argos.package import argos_code, language_name
from transduce.serving.answers import LanguagePair


class Languages:
    """Codes, names, and what is translated into what.

    Args:
        pairs: of the loaded models.
    """

    def __init__(self, pairs: Sequence[LanguagePair]) -> None:
        self._targets: dict[str, list[str]] = {}
        for pair in pairs:
            self._targets.setdefault(pair.source, []).append(pair.target)

    @property
    def sources(self) -> tuple[str, ...]:
        """Codes of what is translated, in the order of the models."""
        return tuple(self._targets)

    @property
    def targets(self) -> tuple[str, ...]:
        """Codes of what it is translated into."""
        return tuple(dict.fromkeys(target for targets in self._targets.values() for target in targets))

    @property
    def all(self) -> tuple[str, ...]:
        """Codes of both."""
        return tuple(dict.fromkeys((*self.sources, *self.targets)))

    def targets_of(self, source: str) -> tuple[str, ...]:
        """What a language is translated into; nothing for one that is not."""
        return tuple(self._targets.get(source, ()))

    def sources_of(self, target: str) -> tuple[str, ...]:
        """What is translated into a language."""
        return tuple(source for source, targets in self._targets.items() if target in targets)


def find_language(code: str, codes: Iterable[str]) -> str | None:
    """Which of `codes` a client means: "DE" is "de", "en-US" is "en" where there is no other English, and "en" "en-GB".

    Args:
        code: as the client writes it.
        codes: as the models call them.
    """
    known = {_plain(one): one for one in reversed(list(codes))}
    wanted = _plain(code)
    base = wanted.partition("-")[0]
    regions = {one.partition("-")[0]: name for one, name in known.items() if "-" in one}
    return known.get(wanted) or known.get(base) or (regions.get(base) if wanted == base else None)


def name_of(code: str) -> str:
    """The English name of a language, as in "German"; its code where none is known."""
    try:
        return language_name(argos_code(code))
    except BundleError:
        return code


def _plain(code: str) -> str:
    """The code as the Argos package of that language has it, whoever wrote it."""
    try:
        return argos_code(code.strip())
    except BundleError:
        return code.strip().lower()
