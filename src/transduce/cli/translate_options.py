"""What `transduce translate` can be asked, as groups of options."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from transduce.search import Sampling
from transduce.text import USUAL_KINDS, Glossary, Kind
from transduce.translation import SETTINGS_OF_A_WISH, LineOptions, TextConstraints

Words = Annotated[tuple[str, ...], Parameter(negative=())]


@Parameter(name="*")
@dataclass(frozen=True)
class Search:
    """How translations are looked for.

    Args:
        num_best: alternatives for each line; above 1, what is printed is line number, tab, score, tab, translation; the
            score is a log-probability by length penalty, with --mbr the mean chrF.
        beam: hypotheses kept for each sentence; 1 is greedy. This and the next six: the model's own unless given.
        length_penalty: alpha in ((5 + n) / 6)^alpha, by which a hypothesis of n tokens is divided.
        min_length: fewest tokens of a translation, the end included.
        max_length: most tokens of a translation, the end included; 0 is no limit but that of the source's length.
        no_repeat_ngram: no sequence of so many tokens comes twice in a translation; 0 allows it.
        repetition_penalty: what the log-probability of a token that is there already is multiplied by; 1 is none.
        diversity: nats that a continuation loses for each better one of the same hypothesis, so that alternatives
            differ more.
        prefix: how every translation begins.
        require: a word or phrase that every translation contains exactly once; may be given several times.
        forbid: a word or phrase that no translation contains; may be given several times.
        samples: instead of searching, draw so many translations of each line at random; --num-best says how many of
            them are printed.
        temperature: of the distribution that samples are drawn from; 1, the default, is the model's, less is nearer to
            what is most probable.
        top_k: draw from so many of the most probable tokens; 0, the default, is all.
        top_p: draw from the most probable tokens whose probabilities add up to this; 1 is the default.
        seed: of what is drawn; 1 is the default.
        mbr: rank the samples by their mean chrF against each other (minimum Bayes risk).
        ensemble: another bundle with the same tokenizer, whose probabilities are averaged with the model's; may be
            given several times.
    """

    num_best: int = 1
    beam: int | None = None
    length_penalty: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    no_repeat_ngram: int | None = None
    repetition_penalty: float | None = None
    diversity: float | None = None
    prefix: str = ""
    require: Words = ()
    forbid: Words = ()
    samples: int = 0
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    mbr: bool = False
    ensemble: Annotated[tuple[Path, ...], Parameter(negative=())] = ()

    def settings(self) -> dict[str, Any]:
        """Those of the search that are given, by their names in its configuration."""
        return self._given(*SETTINGS_OF_A_WISH)

    def sampling(self) -> Sampling | None:
        """What samples are drawn from, if anything is said of it."""
        given = self._given("temperature", "top_k", "top_p")
        return Sampling(**given) if given else None

    def _given(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@Parameter(name="*")
@dataclass(frozen=True)
class Kept:
    """What of the source is kept.

    Args:
        protect: keep web addresses, e-mail addresses, @handles, #hashtags, XML and HTML tags and {placeholders} as they
            are, each as often as it is there.
        protect_numbers: keep numbers as they are, too, with what is glued to them, as in 5km, 20%, 2nd and 2½.
        glossary: a file with two columns, term and translation, tab between: terms that must be translated so.
    """

    protect: bool = False
    protect_numbers: bool = False
    glossary: Path | None = None

    def kinds(self) -> tuple[Kind, ...] | None:
        """Of spans that are kept; None if there are none."""
        numbers: tuple[Kind, ...] = ("number",) if self.protect_numbers else ()
        return (*(USUAL_KINDS if self.protect else ()), *numbers) or None

    def asked(self) -> dict[str, bool]:
        """Which of the options are given."""
        return {f"--{name.replace('_', '-')}": bool(value) for name, value in asdict(self).items()}


def line_options(search: Search, kept: Kept, *, guard: bool) -> LineOptions:
    """All of them, for every line.

    Raises:
        ConfigError: some of them exclude each other, or a value is not possible.
        CorpusError: the glossary cannot be read.
    """
    return LineOptions(
        num_best=search.num_best,
        constraints=TextConstraints.if_any(search.prefix, search.require, search.forbid),
        protected=kept.kinds(),
        glossary=None if kept.glossary is None else Glossary.read(kept.glossary),
        num_samples=search.samples,
        sampling=search.sampling(),
        seed=search.seed,
        minimum_bayes_risk=search.mbr,
        guard=guard,
        search=search.settings(),
    )
