"""`transduce doctor`."""

import json as json_format
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from pydantic import ValidationError

from transduce.cli.completion import FileName
from transduce.cli.console import open_standard_input, print_json, print_message
from transduce.cli.corpus_options import TextFlags
from transduce.config import CorpusConfig, describe_setting_error, load_run_config
from transduce.data.corpus_size import measure_training_text
from transduce.data.settings_for_size import (
    describe_expected_quality,
    describe_expected_training,
    warn_of_few_pairs,
)
from transduce.doctor import REPORT_FILE, examine_corpus, format_summary, list_lines, make_json, render_page
from transduce.errors import ConfigError, UserError
from transduce.kernels.memory import give_back_large_blocks

if TYPE_CHECKING:
    from transduce.doctor import Examination

EXIT_SERIOUS = 3
"""Exit code if there are serious findings."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TestTextFlags:
    """Test text, which no setting of a run names."""

    test_source: FileName | None = None
    """Test text, source side."""
    test_target: FileName | None = None
    """Test text, target side."""
    test_pairs: FileName | None = None
    """Instead of both: one file with both, in any of the formats of --pairs."""
    test_columns: tuple[str, str] | None = None
    """What the file of --test-pairs calls source and target, as in en de. Default: as for training text."""

    def make_corpus(self) -> CorpusConfig | None:
        """The test text; None if none is given.

        Raises:
            UserError: one side is given without the other, or both ways are, or columns of no file, or a name is no
                name of a file.
        """
        if self.test_columns is not None and self.test_pairs is None:
            raise UserError("--test-columns are those of a file with both sides: give it as --test-pairs")
        match self.test_source, self.test_target, self.test_pairs:
            case None, None, None:
                return None
            case None, None, str(pairs) if pairs != "-":
                return _make_test_corpus(pairs=pairs, columns=self.test_columns)
            case str(source), str(target), None:
                return _make_test_corpus(source=source, target=target)
            case _:
                raise UserError(
                    "--test-source and --test-target: give both of them, or a file as --test-pairs, or none"
                )


def _make_test_corpus(**values: object) -> CorpusConfig:
    try:
        return CorpusConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"--test-{describe_setting_error(error)}") from None


def doctor(
    recipe: Path | None = None,
    /,
    *,
    texts: TextFlags | None = None,
    test: TestTextFlags | None = None,
    output: Path | None = None,
    settings: Annotated[list[str] | None, Parameter(name="--set", metavar="KEY=VALUE")] = None,
    force: bool = False,
    json: bool = False,
) -> int:
    """Look for mistakes in parallel text before training on it.

    Args:
        recipe: a TOML file with settings, as of `transduce train`; without one, give --source and --target, or
            --pairs.
        texts: the text files.
        test: the test text.
        output: a page (page.html) with samples and charts, or the name of a folder for the page, the same as JSON, and
            a table of all lines that findings name; earlier reports are replaced.
        settings: change one setting, as in data.validation_pairs=valid.tsv; may be repeated.
        force: replace any existing file.
        json: print one JSON object.
    """
    corpus = (test or TestTextFlags()).make_corpus()
    config, _ = load_run_config(
        recipe,
        settings=settings or [],
        environment=os.environ,
        arguments=(texts or TextFlags()).settings,
        automatic={} if recipe is not None else {"text.vocabulary": "fitted"},
    )
    places = [] if output is None else _list_places(output)
    for place in places:
        REPORT_FILE.check(place, force=force, makes_folder=True, also_prints=True)
    give_back_large_blocks()  # of many sizes: a million pairs take a tenth less memory, and no more time
    examination = examine_corpus(
        config.data, config.text, corpus, standard_input=open_standard_input(), report=print_message
    )
    num_kept, training = examination.training_estimate.num_kept, None
    if recipe is None and num_kept:
        training = describe_expected_training(measure_training_text(config.data, config.text))
    few = warn_of_few_pairs(num_kept) if config.training.start_from is None else None
    possible = few, training, describe_expected_quality(num_kept)
    expectations = [sentence for sentence in possible if sentence is not None]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        REPORT_FILE.write(place, _render(examination, expectations, place), force=force)
    if json:
        print_json(make_json(examination, expectations))
    else:
        print(format_summary(examination, max(40, shutil.get_terminal_size().columns), expectations))
    if places:
        print_message(f"the report is in {places[0]}; open it in a browser")
    return EXIT_SERIOUS if examination.is_serious else 0


def _list_places(output: Path) -> list[Path]:
    """The files to write."""
    if output.suffix.lower() in {".html", ".htm"}:
        return [output]
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {output}: must be a page, as in page.html, or the name of a folder")
    return [output / name for name in ("report.html", "report.json", "lines.tsv")]


def _render(examination: "Examination", expectations: Sequence[str], place: Path) -> str:
    match place.suffix:
        case ".json":
            return json_format.dumps(make_json(examination, expectations), ensure_ascii=False, indent=2) + "\n"
        case ".tsv":
            return "".join(list_lines(examination))
        case _:
            return render_page(examination, expectations)
