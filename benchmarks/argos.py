"""Does Argos Translate say what we say? Exports a model as a package, installs it there, and compares line by line.

    python benchmarks/argos.py BUNDLE test.en --python ENVIRONMENT/bin/python

Argos Translate runs in an environment of its own, with empty folders and no network: refused, and where the system lets
us (`unshare`), not there at all. Its sentence splitter divides the lines; the other programs translate the same
sentences. Without --python, an environment is made in a folder that is removed in the end: a large download.

Prints how many lines are identical to those of Argos Translate, how many it divided and how often it asked for the
network; last, one line of JSON.

Beams: Argos divides the log-probability of n tokens by n^0.2, we by ((5 + n) / 6)^a; "nearest" is the a with which both
change alike for n tokens, the mean length of the translations.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from transduce.bundle import Bundle
from transduce.interop.argos import FORMAT, convert_to_argos_code, unpack
from transduce.text import Tokenizer
from transduce.translation import PyTorchEngine

HERE = Path(__file__).parent
BEAM, PENALTY = 4, 0.2
"""What Argos Translate searches with unless told otherwise; it can be told another beam."""

Search = Callable[[list[list[int]]], list[list[int]]]


def main() -> None:
    """Export, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("source", type=Path, help="one sentence a line")
    parser.add_argument("--lines", type=int, default=100, help="how many of them")
    parser.add_argument("--python", type=Path, help="of an environment that has argostranslate")
    parser.add_argument("--precision", choices=FORMAT.precisions, default="float32", help="of the package")
    arguments = parser.parse_args()
    lines = arguments.source.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    bundle = Bundle.open(arguments.bundle)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        package = folder / f"package{FORMAT.suffix}"
        FORMAT.write(bundle, package, arguments.precision)
        python = arguments.python or made_environment(folder / "environment")
        runs = {
            (beam, arithmetic): run_argos(python, bundle, package, lines, beam, arithmetic)
            for beam, arithmetic in ((1, "default"), (BEAM, "default"), (BEAM, "auto"))
        }
        unpack(package, folder)
        report(bundle, folder, lines, runs, arguments.precision)


def made_environment(folder: Path) -> Path:
    """The Python of a new environment with Argos Translate and the versions of constraints.txt."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    constraints = HERE.parent / "constraints.txt"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "-c", str(constraints), "argostranslate"], check=True)
    return python


def run_argos(
    python: Path, bundle: Bundle, package: Path, lines: list[str], beam: int, arithmetic: str
) -> dict[str, list]:
    """What argos_worker.py says."""
    languages = bundle.description.languages
    task = {
        "package": str(package),
        "lines": lines,
        "from": convert_to_argos_code(languages.source),
        "to": convert_to_argos_code(languages.target),
    }
    with tempfile.TemporaryDirectory() as home:
        settings = {
            "HOME": home,
            "ARGOS_PACKAGES_DIR": str(Path(home) / "packages"),
            "ARGOS_BEAM_SIZE": str(beam),
            "ARGOS_COMPUTE_TYPE": arithmetic,
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARGOS_", "XDG_", "PYTHON"))}
        found = subprocess.run(
            [*without_network(), str(python), str(HERE / "argos_worker.py")],
            input=json.dumps(task),
            env=kept | settings,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    return json.loads(found.stdout)


def without_network() -> list[str]:
    """What a command starts with to have no network; nothing where the system does not let us."""
    prefix = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
        return prefix
    return []


def native(bundle: Bundle, **settings: float) -> Search:
    """Our own engine in float32."""
    engine = PyTorchEngine(bundle.load_model(), bundle.load_tokenizer().end_id, precision="float32")
    config = bundle.description.search.model_copy(update=settings)
    return lambda sources: [found[0].ids[:-1] for found in engine.search(sources, config)]


def direct(model: Path, tokenizer: Tokenizer, beam: int, arithmetic: str) -> Search:
    """CTranslate2 with the settings of Argos Translate."""
    import ctranslate2

    translator = ctranslate2.Translator(str(model), compute_type=arithmetic, intra_threads=1)
    ids = {piece: index for index, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}

    def search(sources: list[list[int]]) -> list[list[int]]:
        pieces = [tokenizer.pieces(source)[:-1] for source in sources]
        results = translator.translate_batch(pieces, beam_size=beam, length_penalty=PENALTY)
        return [[ids[piece] for piece in result.hypotheses[0]] for result in results]

    return search


def translated(search: Search, tokenizer: Tokenizer, sentences: list[list[str]]) -> tuple[list[str], float]:
    """Every line as Argos does it, which puts it together from the tokens of its sentences; the mean tokens of one."""
    found = [search([[*ids, tokenizer.end_id] for ids in tokenizer.encode_all(line)]) for line in sentences]
    texts = [tokenizer.decode([token for target in line for token in target]).replace("_", " ") for line in found]
    return texts, sum(len(target) for line in found for target in line) / sum(map(len, found))


def report(
    bundle: Bundle, package: Path, lines: list[str], runs: dict[tuple[int, str], dict[str, list]], precision: str
) -> None:
    """The table, and the same as JSON."""
    tokenizer = Tokenizer.load(package / "sentencepiece.model")
    sentences = runs[1, "default"]["sentences"]
    divided = sum(len(line) > 1 for line in sentences)
    asked = sum(len(run["connections"]) for run in runs.values())
    greedy, length = translated(native(bundle, beam=1), tokenizer, sentences)
    nearest = round(PENALTY * (5 + length) / length, 3)
    ours = {
        1: {"ours": greedy},
        BEAM: {
            f"ours, a = {alpha}": translated(native(bundle, beam=BEAM, length_penalty=alpha), tokenizer, sentences)[0]
            for alpha in (nearest, bundle.description.search.length_penalty)
        },
    }
    same: dict[str, int] = {}
    for (beam, arithmetic), run in runs.items():
        search = direct(package / "model", tokenizer, beam, arithmetic)
        others = {"CTranslate2": translated(search, tokenizer, sentences)[0], **ours[beam]}
        for name, texts in others.items():
            count = sum(map(str.__eq__, texts, run["translations"]))
            same[f"beam {beam}, {arithmetic}: {name}"] = count
    version = runs[1, "default"]["version"]
    print(f"Argos Translate {version}, package in {precision}, {len(lines)} lines, {divided} of them divided")
    print(f"connections asked for: {asked}; network: {'none' if without_network() else 'refused'}")
    print(f"{'beam, arithmetic of Argos: beside':44} {'identical':>9}")
    for name, count in same.items():
        print(f"{name:44} {count:9}")
    print(json.dumps({"version": version, "lines": len(lines), "divided": divided, "asked": asked, "identical": same}))


if __name__ == "__main__":
    main()
