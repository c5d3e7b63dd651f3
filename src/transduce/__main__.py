"""`python -m transduce` is `transduce`: Ctrl-C ends it without a traceback, also while Python reads its modules."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run `cli.main`; Ctrl-C ends it without a traceback, also while its modules are being imported."""
    try:
        from transduce.cli import main as run  # noqa: PLC0415 - it takes a while
    except KeyboardInterrupt:
        sys.stderr.write("transduce: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
