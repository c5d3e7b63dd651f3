"""`transduce demo`."""

from pathlib import Path

from transduce.cli.console import ConsoleReporter, print_json
from transduce.demo import demonstrate


def demo(
    *,
    output: Path = Path("runs/demo"),
    updates: int | None = None,
    restart: bool = False,
    json: bool = False,
) -> None:
    """Make data, train a small model on it in under three minutes, and test it.

    Args:
        output: folder of the run; the generated text is in it, as data/text.tsv.
        updates: train for fewer updates than the task needs.
        restart: delete the earlier demonstration in the folder and start over.
        json: print one JSON object.
    """
    with ConsoleReporter() as reporter:
        result = demonstrate(output, reporter, updates=updates, restart=restart)
    if json:
        print_json(result.as_json())
        return
    for sample in result.samples:
        correction = "" if sample.is_right else f"   (should be {sample.reference})"
        print(f"{sample.source}\n  -> {sample.translation}{correction}")
    print(
        f"exact matches: {result.exact_match:.1%} of {result.num_tested:,} inputs never seen in training; "
        f"trained in {result.seconds:.0f} s; bundle: {result.bundle}"
    )
