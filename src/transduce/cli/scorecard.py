"""`transduce scorecard`."""

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from transduce.bundle import Bundle, check_scorecard, find_bundle, name_model, save_scorecard
from transduce.cli.console import print_json, print_message
from transduce.errors import UserError
from transduce.evaluation import (
    SCORECARD_PAGE,
    PageHeading,
    measure_scorecard,
    read_sentences,
    read_validation_sentences,
    render_scorecard_page,
    tabulate_behaviours,
)
from transduce.evaluation.scorecard import NUM_SENTENCES
from transduce.pages import format_columns, format_count
from transduce.translation import Translator


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ScorecardFlags:
    """The sentences that the inputs of a scorecard are made of."""

    source: Path | None = None
    """sentences of the kind that the model is for, one per line; plain, .gz, .xz or .zst. Default: the validation text
    of the run."""
    reference: Path | None = None
    """human translations of them, line for line, for the chrF that is lost on changed input."""
    sentences: int = NUM_SENTENCES
    """maximum number of sentences that inputs are made of."""
    seed: int = 1
    """seed of typing errors."""

    def check(self) -> None:
        """Check that the values are possible together.

        Raises:
            UserError: they are not.
        """
        if self.sentences < 1:
            raise UserError(f"--sentences {self.sentences}: must be at least 1")
        if self.source is None and self.reference is not None:
            raise UserError(f"--reference {self.reference}: has translations of no source; give --source, too")


_INPUTS = ScorecardFlags()


def scorecard(
    model: Path,
    /,
    *,
    inputs: ScorecardFlags = _INPUTS,
    json: bool = False,
    output: Path | None = None,
    print_only: bool = False,
    device: str = "auto",
    force: bool = False,
) -> None:
    """Test how a model behaves on unusual input, and show it in the model card.

    Args:
        model: a bundle, or the folder of a run.
        inputs: the sentences that inputs are made of.
        json: print one JSON object, with examples.
        output: also write a page with examples, as in page.html; an earlier page of this command is replaced.
        print_only: leave the bundle as it is.
        device: cpu, cuda, mps or auto.
        force: replace any existing file, and a scorecard.json that is not a Transduce scorecard.
    """
    inputs.check()
    source, reference = inputs.source, inputs.reference
    bundle = Bundle.open(find_bundle(model))
    if not print_only:
        check_scorecard(bundle, force=force)
    if output is not None:
        SCORECARD_PAGE.check(output, force=force, also_prints=True)
    found = read_validation_sentences(model, bundle) if source is None else read_sentences(source, reference)
    translator = Translator.load(bundle.folder, device=device)
    measured = measure_scorecard(translator, found, num_sentences=inputs.sentences, seed=inputs.seed)

    text = "the validation text" if source is None else source.name
    if not print_only:
        files = {side: path for side, path in (("source", source), ("reference", reference)) if path is not None}
        save_scorecard(bundle, measured.as_record(text, files), force=force)
    if output is not None:
        languages = dict(bundle.description.languages).values()
        page = render_scorecard_page(measured, PageHeading(name_model(bundle.folder), text, *languages))
        SCORECARD_PAGE.write(output, page, force=force)
    if json:
        print_json({"model": str(model), "text": text, **measured.as_json()})
    else:
        print(format_columns(tabulate_behaviours([result.figures for result in measured.results])))
    for name, reason in measured.skipped.items():
        print_message(f"{name}: not measured: {reason}")
    print_message(
        f"{format_count(measured.num_translations, 'translation')} of inputs made of "
        f"{format_count(measured.num_sentences, 'sentence')} of {text}, in {measured.seconds:.1f} s"
    )
