"""`transduce info`: describes presets, recipes, runs and bundles."""

from transduce.cli.completion import FileName
from transduce.cli.console import print_json


def info(subject: FileName, /, *, vocabulary: int | None = None, json: bool = False) -> None:
    """Describe a preset, recipe, run or bundle: parameters, shapes, sizes, settings.

    Args:
        subject: the name of a preset, or the path of a recipe, a run or a bundle.
        vocabulary: number of token ids, for a preset or a recipe.
        json: print one JSON object.
    """
    from transduce.bundle import make_model_overview  # noqa: PLC0415 - loads torch, not needed by `config`

    found = make_model_overview(str(subject), vocabulary)
    if json:
        print_json(found.as_json())
    else:
        print(found.as_text())
