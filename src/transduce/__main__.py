"""`python -m transduce` is `transduce`."""

from transduce.cli import main

if __name__ == "__main__":
    main()
