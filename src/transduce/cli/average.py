"""`transduce average`."""

from pathlib import Path

from transduce.cli.console import say
from transduce.training import average_run


def average(run: Path, /, *, last: int = 5, output: Path, force: bool = False) -> None:
    """Average the weights of a run's last checkpoints into one bundle (paper 6.1).

    Args:
        run: the folder of a run.
        last: how many checkpoints; the run keeps `training.keep_checkpoints` of them.
        output: folder of the new bundle.
        force: replace a model that is there; a folder with anything else in it never is.
    """
    updates = average_run(run, last, output, force=force)
    say(f"{output}: the average of the checkpoints of updates {', '.join(f'{update:,}' for update in updates)}")
