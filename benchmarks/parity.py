"""How far are exports from the model, on a test set as large as you like?

    python benchmarks/parity.py BUNDLE test.en test.de

Exports the bundle to every format and precision that is asked for, with the usual proof on the first lines of the test
set instead of the first 200, and prints what the proofs say. Last, one line of JSON.
"""

import argparse
import json
import tempfile
from pathlib import Path

from transduce.bundle import Bundle
from transduce.interop import FORMATS, find_export_format
from transduce.interop.export_import import export_bundle
from transduce.interop.parity import Parity

EXPORTS = (*(f"{name}:float32" for name in FORMATS), "ctranslate2:int8")


def main() -> None:
    """Export, prove, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("source", type=Path, help="one sentence a line")
    parser.add_argument("reference", type=Path, help="its translations")
    parser.add_argument("--lines", type=int, default=1000, help="how many of them")
    parser.add_argument("--export", nargs="+", default=EXPORTS, metavar="FORMAT:PRECISION", help="all unless given")
    arguments = parser.parse_args()
    found = {name: proof(name, arguments) for name in arguments.export}
    print(f"{'export':22}{'tokens':>9}{'largest':>10}{'mean':>10}  {'greedy':14}{'BLEU, model and export'}")
    for name, parity in found.items():
        greedy = f"{parity.identical_greedy:,}/{parity.sentences:,}"
        print(
            f"{name:22}{parity.tokens:9,}{parity.largest_difference:10.1e}{parity.mean_difference:10.1e}  {greedy:14}"
            f"{parity.bleu.ours:.2f} {parity.bleu.theirs:.2f}"
        )
    figures = ("largest_difference", "mean_difference", "identical_greedy", "sentences", "tokens", "theirs")
    print(json.dumps({name: {key: getattr(parity, key) for key in figures} for name, parity in found.items()}))


def proof(export: str, arguments: argparse.Namespace) -> Parity:
    """What the proof of one export says."""
    name, _, precision = export.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        return export_bundle(
            Bundle.open(arguments.bundle),
            name,
            Path(folder) / f"export{find_export_format(name).suffix}",
            precision=precision,
            probe=arguments.source,
            reference=arguments.reference,
            num_sentences=arguments.lines,
        )


if __name__ == "__main__":
    main()
