"""`transduce distill`: a small student learns from a teacher, and both are compared."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.bundle import Bundle, find_bundle
from transduce.cli.console import ConsoleReporter, print_message
from transduce.cli.texts import TextOptions
from transduce.cli.train import choose_automatic_settings, get_text_settings
from transduce.config import load_run_config
from transduce.errors import UserError
from transduce.evaluation import TestSet, compare_systems, translate_test_set
from transduce.evaluation.scorecard.sentences import read_validation_sentences
from transduce.pages import Table, format_columns
from transduce.training import train
from transduce.translation import Translator

SHALLOW = "shallow"
"""The student that has the teacher's network with one decoder layer."""

MAX_COMPARED = 1000
"""Maximum number of validation sentences that teacher and student translate to be compared."""


def distill(
    teacher: Path,
    /,
    *,
    texts: TextOptions | None = None,
    student: str = SHALLOW,
    output: str,
    time: Annotated[str | None, Parameter(metavar="DURATION")] = None,
    settings: Annotated[list[str] | None, Parameter(name="--set", metavar="KEY=VALUE")] = None,
    restart: bool = False,
) -> None:
    """Train a student on a teacher's translations of the training text, and compare both.

    Args:
        teacher: a bundle, or the folder of a run.
        texts: the text files; the best are those that the teacher was trained on.
        student: a preset, as in `transduce info tiny`, or shallow: the teacher's network with one decoder layer.
        output: folder of the student's run.
        time: time budget of the student's training, as in 30m or 2h.
        settings: change one setting of the student's run, as in model.d_ff=256; may be repeated.
        restart: delete the earlier run in the folder and start over.
    """
    bundle = Bundle.open(find_bundle(teacher))
    network, languages = bundle.description.model, bundle.description.languages
    given = {"data.source_language": languages.source, "data.target_language": languages.target}
    given = {name: code for name, code in given.items() if code} | get_text_settings(texts, output, time)
    if given.get("data.pairs") == "-":
        raise UserError("--pairs -: the text is read several times; give a file")
    given |= {"data.teacher": str(teacher), "text.tokenizer": str(bundle.tokenizer_path)}
    automatic = choose_automatic_settings(given, settings or [], time, restart=restart)
    if student == SHALLOW:
        own = {f"model.{name}": value for name, value in network.own_settings().items() if value is not None}
        automatic |= {name: value for name, value in own.items() if name not in {"model.vocabulary", "model.dropout"}}
        automatic["model.num_decoder_layers"] = 1
    else:
        automatic["preset"] = student
    config, _ = load_run_config(
        None, settings=settings or [], environment=os.environ, arguments=given, automatic=automatic
    )
    with ConsoleReporter() as reporter:
        result = train(config, reporter, restart=restart)
    print_message(f"the student is in {result.folder / 'best'}; translating the validation text with both")
    print(format_columns(_compare(teacher, result.folder)))


def _compare(teacher: Path, student: Path) -> Table:
    """Size, speed and scores of both on the student's validation text, translated with beam 4 by one thread each."""
    sentences = read_validation_sentences(student, Bundle.open(find_bundle(student)))[:MAX_COMPARED]
    references = [sentence.reference or "" for sentence in sentences]
    test_set = TestSet("validation", [sentence.source for sentence in sentences], [references])
    outputs = []
    for model in (teacher, student):
        translator = Translator.load(model)
        translator.translate(test_set.sources[:4])  # what is done once, such as packing weights
        outputs.append(translate_test_set(translator, str(model), test_set))
    comparison = compare_systems(test_set, outputs, report=print_message)
    rows = []
    for system, model in zip(comparison.systems, (teacher, student), strict=True):
        bleu, chrf = (score.value for score in system.scores[:2])
        seconds = system.output.seconds or 0.0
        parameters = Bundle.open(find_bundle(model)).load_model().num_parameters
        rows.append(
            [
                system.output.system,
                f"{parameters:,}",
                f"{len(sentences) / seconds:,.0f}",
                f"{bleu:.2f}",
                f"{chrf:.2f}",
                system.verdict if system.differences else "",
            ]
        )
    heads = ["model", "parameters", "sentences/s", "BLEU", "chrF", "against the teacher"]
    return Table("", heads, rows)
