"""What the options of a request may cost."""

from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.serving.limits import Limits
from transduce.serving.refusals import TooLong
from transduce.translation import TranslationOptions, make_safer_settings


def check_options(options: TranslationOptions, limits: Limits, search: SearchConfig | None = None) -> None:
    """Check that options ask for no more than a request may.

    Args:
        options: those of the request.
        limits: what a request may ask for.
        search: the model's own settings, once it is known which model translates.

    Raises:
        ConfigError: the beam, the samples or the alternatives are too many.
        TooLong: there are too many phrases and terms.
    """
    for name, value, most in (
        ("num_best", options.num_best, limits.most_alternatives + 1),
        ("beam", options.beam or 1, limits.max_beam),
        ("num_samples", options.num_samples, limits.max_beam),
    ):
        if value > most:
            raise ConfigError(f"{name} = {value}: this service allows up to {most}")
    if options.guard and search is not None and not options.num_samples:
        beam = make_safer_settings(search.changed(options.widen_beam(search).search))["beam"]
        if beam > limits.max_beam:
            raise ConfigError(
                f"guard = true: tries again with a beam of {beam}, and this service allows up to "
                f"{limits.max_beam}: ask for a smaller beam"
            )
    num_terms = len(options.require) + len(options.forbid) + len(options.glossary)
    if num_terms > limits.max_terms:
        raise TooLong(f"{num_terms} phrases and terms: this service allows up to {limits.max_terms}")


def count_characters(options: TranslationOptions) -> int:
    """The characters of prefix, phrases and glossary."""
    phrases = [options.prefix, *options.require, *options.forbid, *options.glossary, *options.glossary.values()]
    return sum(map(len, phrases))
