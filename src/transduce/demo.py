"""The demonstration: generated parallel text, a small model trained on it, and a test on unseen inputs.

The text is unlimited and exact, and generated without a network: numbers, years and dates, in English and German words.
Little of it is translated word by word. "Forty-three thousand" is one German word that names the three before the
forty, a century is counted in hundreds, and "on" turns "der" into "dem" and every ordinal into a dative.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from numpy.random import PCG64

from transduce.config import RunConfig, flatten, load_run_config
from transduce.errors import MissingExtraError, OutputError, RunError, TransduceError
from transduce.storage import check_writable, make_write_error, remove_if_left_empty, replace_file
from transduce.text import Pair
from transduce.training import Reporter, RunFolder, Sample, train
from transduce.translation import Translator

Draw = Callable[[int], int]
Language = Literal["en", "de"]
Form = Literal["cardinal", "ordinal", "year"]

UNSEEN_DIGEST = "17dc45029e4b8fe3d587d15f75ece15ff2769fa96e07a387ddae7ef2ac643fff"
"""SHA-256 of the unseen pairs, written as lines of source, tab and target in UTF-8."""

_NUM_UNSEEN = 1000
_UNSEEN_SEED = 2017
_FIRST_YEAR, _LAST_YEAR = 1000, 2099


def generate_pairs(num: int, seed: int, exclude: frozenset[str] = frozenset()) -> list[Pair]:
    """English sources, all different, each with its only German translation; a pure function of the arguments.

    Args:
        num: number of pairs.
        seed: other seeds give other pairs.
        exclude: sentences of either language that may not occur.

    Raises:
        MissingExtraError: num2words or Babel is not installed.
    """
    bits = PCG64(seed)

    def draw(bound: int) -> int:
        # Raw bits are the one stream that NumPy promises to keep; at 64 bits the remainder is practically uniform.
        return int(bits.random_raw()) % bound

    kinds = (
        6 * [partial(_draw_number_pair, form="cardinal")]
        + 4 * [partial(_draw_number_pair, form="ordinal")]
        + 1 * [_draw_year_pair]
        + 2 * [_draw_year_range_pair]
        + 7 * [_draw_date_pair]
    )
    pairs: dict[str, str] = {}
    while len(pairs) < num:
        source, target = kinds[draw(len(kinds))](draw)
        if source not in exclude and target not in exclude:
            pairs[source] = target
    return list(pairs.items())


def generate_test_pairs() -> list[Pair]:
    """The 1,000 pairs of the test set, always the same.

    Numbers below a hundred are excluded: "twelve" cannot be translated without having seen it.
    """
    forms: tuple[Form, ...] = ("cardinal", "ordinal")
    basic = frozenset(_small_number(number, "en", form) for number in range(100) for form in forms)
    return generate_pairs(_NUM_UNSEEN, _UNSEEN_SEED, exclude=basic)


def generate_training_pairs(num: int, seed: int) -> list[Pair]:
    """Pairs of which neither side is in the test set."""
    return generate_pairs(num, seed, exclude=frozenset(sentence for pair in generate_test_pairs() for sentence in pair))


def check_unseen_pairs() -> None:
    """Raise `TransduceError` unless the test set is the one that published results were measured on."""
    lines = "".join(f"{source}\t{target}\n" for source, target in generate_test_pairs())
    digest = hashlib.sha256(lines.encode()).hexdigest()
    if digest != UNSEEN_DIGEST:
        raise TransduceError(
            f"the unseen pairs have the digest {digest[:12]}, not {UNSEEN_DIGEST[:12]}: num2words or Babel spells "
            "differently; to compare results, install the versions in constraints.txt"
        )


def _draw_number_pair(draw: Draw, form: Form) -> Pair:
    number = draw(10 ** (1 + draw(6)))
    return _english(number, form), _german(number, form)


def _draw_year_pair(draw: Draw) -> Pair:
    year = _FIRST_YEAR + draw(_LAST_YEAR - _FIRST_YEAR + 1)
    return _small_number(year, "en", "year"), _small_number(year, "de", "year")


def _draw_year_range_pair(draw: Draw) -> Pair:
    last = _FIRST_YEAR + 1 + draw(_LAST_YEAR - _FIRST_YEAR)
    first = _FIRST_YEAR + draw(last - _FIRST_YEAR)
    return (
        f"from {_small_number(first, 'en', 'year')} to {_small_number(last, 'en', 'year')}",
        f"von {_small_number(first, 'de', 'year')} bis {_small_number(last, 'de', 'year')}",
    )


def _draw_date_pair(draw: Draw) -> Pair:
    first, last = date(_FIRST_YEAR, 1, 1).toordinal(), date(_LAST_YEAR, 12, 31).toordinal()
    day = date.fromordinal(first + draw(last - first + 1))
    on, with_weekday, with_year, day_first = draw(3) == 0, draw(3) == 0, draw(4) > 0, draw(2) == 0
    return (
        _english_date(day, on=on, with_weekday=with_weekday, with_year=with_year, day_first=day_first),
        _german_date(day, on=on, with_weekday=with_weekday, with_year=with_year),
    )


def _english_date(day: date, *, on: bool, with_weekday: bool, with_year: bool, day_first: bool) -> str:
    months, weekdays = _calendar("en")
    number, month, year = _english(day.day, "ordinal"), months[day.month], _small_number(day.year, "en", "year")
    text = f"the {number} of {month}" if day_first else f"{month} the {number}"
    if with_weekday:
        text = f"{weekdays[day.weekday()]}, {text}"
    if with_year:
        text += f" {year}" if day_first else f", {year}"
    return f"on {text}" if on else text


def _german_date(day: date, *, on: bool, with_weekday: bool, with_year: bool) -> str:
    months, weekdays = _calendar("de")
    weekday, number = weekdays[day.weekday()], _german(day.day, "ordinal")
    if on:
        text = f"am {weekday}, dem {number}n" if with_weekday else f"am {number}n"
    else:
        text = f"{weekday}, der {number}" if with_weekday else f"der {number}"
    year = f" {_small_number(day.year, 'de', 'year')}" if with_year else ""
    return f"{text} {months[day.month]}{year}"


def _english(number: int, form: Form) -> str:
    """A number below a million in English words, without the comma that num2words puts after thousands."""
    if number <= 1000:
        return _small_number(number, "en", form)
    thousands, rest = divmod(number, 1000)
    start = f"{_small_number(thousands, 'en', 'cardinal')} thousand"
    if rest == 0:
        return f"{start}th" if form == "ordinal" else start
    return f"{start}{' and ' if rest < 100 else ' '}{_small_number(rest, 'en', form)}"


def _german(number: int, form: Form) -> str:
    """A number below a million in German words: "einhunderteintausend", where num2words has "einhunderteinstausend"."""
    if number <= 1000:
        return _small_number(number, "de", form)
    thousands, rest = divmod(number, 1000)
    start = _small_number(thousands, "de", "cardinal")
    start = f"{start[:-1] if start.endswith('eins') else start}tausend"
    if rest == 0:
        return f"{start}ste" if form == "ordinal" else start
    # The hundredth is "hundertste" when it stands alone, and counts its one hundred after thousands.
    one = "ein" if rest == 100 and form == "ordinal" else ""
    return f"{start}{one}{_small_number(rest, 'de', form)}"


@cache
def _small_number(number: int, language: Language, form: Form) -> str:
    """Numbers to 1000 and years; remembered, as num2words takes a fifth of a millisecond for each."""
    try:
        from num2words import num2words  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingExtraError("num2words", "demo", "making numbers in words") from error
    return str(num2words(number, lang=language, to=form))


@cache
def _calendar(language: Language) -> tuple[dict[int, str], dict[int, str]]:
    """Names of the months from 1 and of the days of the week from Monday, 0."""
    try:
        from babel.dates import get_day_names, get_month_names  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingExtraError("babel", "demo", "making dates in words") from error
    months, weekdays = get_month_names("wide", locale=language), get_day_names("wide", locale=language)
    return {month: str(months[month]) for month in range(1, 13)}, {day: str(weekdays[day]) for day in range(7)}


NUM_TRAINING_PAIRS = 60_000

SETTINGS: dict[str, Any] = {
    "data.source_language": "en",
    "data.target_language": "de",
    "data.held_out": 200,
    "text.vocabulary": 500,
    "model.num_encoder_layers": 2,
    "model.num_decoder_layers": 2,
    "model.d_model": 64,
    "model.d_ff": 256,
    "model.num_heads": 4,
    "model.dropout": 0.0,
    "training.updates": 3500,
    "training.batch_tokens": 700,
    "training.precision": "float32",
    "training.schedule": "linear",
    "training.learning_rate": 3e-3,
    "training.warmup": 300,
    "training.log_every": 100,
    "training.validate_every": 1750,
    "training.checkpoint_every": 500,
}
"""Small batches and many updates: batches of the paper's size would leave no time to learn."""


@dataclass(frozen=True)
class DemonstrationResult:
    """The test of the trained model on unseen inputs."""

    exact_match: float
    """Share of unseen inputs translated right to the letter."""
    num_tested: int
    seconds: float
    """Seconds of training."""
    bundle: Path
    """The trained model."""
    samples: tuple[Sample, ...]
    """Some of the unseen inputs."""
    wrong: tuple[Sample, ...]
    """All unseen inputs that were translated wrong."""

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {**asdict(self), "bundle": str(self.bundle), "seconds": round(self.seconds, 1)}


def demonstrate(
    output: Path, reporter: Reporter, *, updates: int | None = None, restart: bool = False
) -> DemonstrationResult:
    """Train a small Transformer to translate English numbers, years and dates into German, and test it.

    Args:
        output: folder of the run; the text lies in it as data/text.tsv.
        reporter: receives the progress of training.
        updates: number of updates; the default suffices to learn the task.
        restart: delete an earlier demonstration and start over.

    Raises:
        MissingExtraError: the packages that make the data are not installed.
        OutputError: `output` cannot be written, or contains a different text under the name of this one.
        RunError: `output` contains something other than a demonstration.
    """
    check_unseen_pairs()
    unseen = generate_test_pairs()
    text = output / "data" / "text.tsv"
    config = _config(text, output, updates)
    _check_holds_no_other_run(RunFolder(output), restart=restart)
    RunFolder(output).check(config, restart=restart)
    check_writable(text)
    reporter.report(f"making {NUM_TRAINING_PAIRS:,} pairs of English and German numbers, years and dates")
    _write_pairs(text, generate_training_pairs(NUM_TRAINING_PAIRS, seed=1))
    result = train(config, reporter, restart=restart)
    bundle = result.folder / "best"
    reporter.report(f"translating {len(unseen):,} unseen inputs")
    sources, references = zip(*unseen, strict=True)
    translations = Translator.load(bundle).translate(sources, beam=1)
    tested = [Sample(*triple) for triple in zip(sources, translations, references, strict=True)]
    wrong = tuple(sample for sample in tested if not sample.is_right)
    return DemonstrationResult(
        exact_match=1 - len(wrong) / len(tested),
        num_tested=len(tested),
        seconds=result.seconds,
        bundle=bundle,
        samples=tuple(tested[:: len(tested) // 8][:8]),
        wrong=wrong,
    )


def _config(text: Path, output: Path, updates: int | None) -> RunConfig:
    length = {} if updates is None else {"training.updates": updates, "training.warmup": max(1, updates // 20)}
    arguments = {**SETTINGS, **length, "data.pairs": text.name, "data.folder": str(text.parent), "output": str(output)}
    return load_run_config(None, arguments=arguments)[0]


def _check_holds_no_other_run(folder: RunFolder, *, restart: bool) -> None:
    """Check that the run in the folder, if there is one, is a demonstration; `restart` would delete it."""
    saved = folder.load_config()
    if saved is None:  # missing or damaged: the run is resumed if its checkpoints are those of a demonstration
        is_other = restart and folder.config_file.exists()
    else:
        values = flatten(saved.model_dump())
        kept = [key for key in SETTINGS if key.startswith(("data.", "text.", "model."))]
        is_text = (saved.data.pairs or "").endswith("text.tsv")  # as earlier versions named it, too
        is_other = not is_text or any(values[key] != SETTINGS[key] for key in kept)
    if is_other:
        raise RunError(f"{folder.path}: its config.toml is not that of a demonstration: choose another output")


def _write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Write the text, unless it is there already; no other text is replaced by it."""
    content = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    if path.is_file() and path.read_bytes() == content:
        return
    if path.exists():
        raise OutputError(f"{path}: differs from the text of this demonstration: remove it, or choose another output")
    try:
        with remove_if_left_empty(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as beside:
                beside.write_bytes(content)
    except OSError as error:
        raise make_write_error(path, error) from error
