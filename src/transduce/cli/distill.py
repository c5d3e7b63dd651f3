"""`transduce distill`: a small student learns from a teacher, and both are compared."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from transduce.bundle import Bundle, find_bundle
from transduce.cli.completion import FileName
from transduce.cli.console import ConsoleReporter, print_message
from transduce.cli.corpus_options import TextFlags
from transduce.cli.run_settings import choose_automatic_settings, get_text_settings
from transduce.config import PRESETS, TransformerConfig, load_run_config
from transduce.errors import UserError
from transduce.pages import format_columns
from transduce.training import tabulate_differences, tabulate_models, train

SHALLOW = "shallow"
"""The student that has the teacher's network with at most `SHALLOW_LAYERS` decoder layers, and begins with its
weights."""

SAME = "same"
"""The student that has the teacher's network, and begins with random weights."""

SHALLOW_LAYERS = 2
"""Its decoder layers: with one, translations are a little faster, and worse (docs/experiments.md)."""

SHALLOW_DROPOUT = 0.1
"""Its dropout, lower than that of a model trained on text: translations by a model vary less than those by people."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudentFlags:
    """The student's network, and what it learns from."""

    ensemble: Annotated[tuple[Path, ...], Parameter(negative=())] = ()
    """Another model with the teacher's tokenizer, as of a run with another training.seed, which translates together
    with the teacher; may be given several times."""
    keep_targets: Annotated[bool, Parameter(negative=())] = False
    """Train on the pairs of the text, too, and not on the teacher's translations alone."""
    student: str = SHALLOW
    """A preset, as in `transduce info tiny`; or shallow: the teacher's network with two decoder layers, which begins
    with the teacher's weights; or same: the teacher's network, which begins with random weights."""


def distill(
    teacher: Path,
    /,
    *,
    texts: TextFlags | None = None,
    flags: StudentFlags | None = None,
    output: FileName,
    time: Annotated[str | None, Parameter(metavar="DURATION")] = None,
    settings: Annotated[list[str] | None, Parameter(name="--set", metavar="KEY=VALUE")] = None,
    restart: bool = False,
) -> None:
    """Train a small, fast student from a model's translations.

    Args:
        teacher: a bundle, or the folder of a run.
        texts: the text files; the best are those that the teacher was trained on.
        flags: the student's network, and what it learns from.
        output: folder of the student's run.
        time: time budget of the student's training, as in 30m or 2h.
        settings: change one setting of the student's run, as in model.d_ff=256; may be repeated.
        restart: delete the earlier run in the folder and start over.
    """
    flags = flags or StudentFlags()
    student = flags.student
    if student not in {SHALLOW, SAME, *PRESETS}:
        raise UserError(f"--student {student}: must be {SHALLOW}, {SAME}, or a preset: {', '.join(PRESETS)}")
    bundle = Bundle.open(find_bundle(teacher))
    models = [bundle.folder.resolve(), *(find_bundle(other).resolve() for other in flags.ensemble)]
    if twice := next((model for number, model in enumerate(models) if model in models[:number]), None):
        raise UserError(f"--ensemble: {twice} is given twice, as TEACHER or as another: give each model once")
    network, languages = bundle.description.model, bundle.description.languages
    known = {"data.source_language": languages.source, "data.target_language": languages.target}
    given: dict[str, Any] = {name: code for name, code in known.items() if code}
    given |= get_text_settings(texts, output, time)
    if given.get("data.pairs") == "-":
        raise UserError("--pairs -: the text is read several times; give a file")
    given |= {"data.teacher": str(teacher), "data.teacher_ensemble": [str(other) for other in flags.ensemble]}
    given["text.tokenizer"] = str(bundle.tokenizer_path)
    if flags.keep_targets:
        given["data.keep_targets"] = True
    shallow: dict[str, Any] = {
        "model.num_decoder_layers": min(SHALLOW_LAYERS, network.num_decoder_layers),
        "model.dropout": SHALLOW_DROPOUT,
    }
    starts = student == SHALLOW and _has_same_layers(network, settings or [])
    if starts:
        known_settings = [f"training.start_from={teacher}"]
    else:
        known_settings = [] if student in {SHALLOW, SAME} else [f"preset={student}"]
    automatic = choose_automatic_settings(given, [*known_settings, *(settings or [])], time, restart=restart)
    if starts:
        # All other settings of the network are those of the teacher's bundle.
        automatic = {name: value for name, value in automatic.items() if not name.startswith("model.")}
        given |= {"training.start_from": str(teacher), "training.start_layers": "spread", **shallow}
    elif student in {SHALLOW, SAME}:
        own = {f"model.{name}": value for name, value in network.select_own_settings().items() if value is not None}
        automatic |= {name: value for name, value in own.items() if name != "model.vocabulary"}
        automatic |= shallow if student == SHALLOW else {}
    config, _ = load_run_config(
        None, settings=settings or [], environment=os.environ, arguments=given, automatic=automatic
    )
    with ConsoleReporter() as reporter:
        result = train(config, reporter, restart=restart)
    print_message(f"the student is in {result.folder / 'best'}, the report in {result.folder / 'report.html'}")
    if result.comparison is not None:
        print(format_columns(tabulate_models(result.comparison)) + "\n")
        print(format_columns(tabulate_differences(result.comparison)))


def _has_same_layers(network: TransformerConfig, settings: Sequence[str]) -> bool:
    """Whether a shallow student can have layers of the teacher: a Transformer, none of whose sizes the user changes."""
    may_differ = tuple(f"model.{name}=" for name in ("dropout", "num_encoder_layers", "num_decoder_layers"))
    changed = [one for one in settings if one.lstrip().startswith("model.") and not one.lstrip().startswith(may_differ)]
    return network.architecture == "transformer" and not changed
