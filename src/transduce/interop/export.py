"""A bundle in the format of another program, with the proof that this program computes the same."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from transduce.bundle import Bundle, is_bundle, locked, written_folder
from transduce.errors import BundleError, ConfigError, TransduceError
from transduce.interop.formats import find_format
from transduce.interop.parity import PARITY_FILE, Parity, read_parity, record_export, write_parity
from transduce.interop.probe import NUM_SENTENCES, Probe, make_probe
from transduce.interop.proof import Claim, prove
from transduce.interop.runtime import ExportFormat
from transduce.translation import ForcedDecoder


def export_bundle(
    bundle: Bundle,
    target: str,
    output: Path,
    *,
    precision: str | None = None,
    probe: Path | None = None,
    reference: Path | None = None,
    num_sentences: int = NUM_SENTENCES,
    say: Callable[[str], None] = lambda _: None,
) -> Parity:
    """Write `bundle` to `output` in the format `target`, if the other program proves to compute the same.

    The proof lies in the folder as `parity.json`, or beside a single file as `<name>.parity.json`. An older export in
    the same place is replaced; anything else there is not, and a failure leaves it as it was.

    Args:
        bundle: the model.
        target: a name in `FORMATS`.
        output: the folder or file to write.
        precision: of the weights, one that the format has; its default unless given.
        probe: a file with sentences to prove it by, one a line; unless given, they are made of the vocabulary.
        reference: a file with their translations.
        num_sentences: at most so many.
        say: is told what is being done.

    Raises:
        ConfigError: there is no such format or precision, the format cannot express the model, or `output` is wrong.
        BundleError: the bundle is damaged, or something else than an export is in the place of `output`.
        BusyError: another process is writing there.
        CorpusError: the probe cannot be read.
        MissingExtraError: the other program is not installed.
        ParityError: it does not compute the same.
        TransduceError: writing failed.
    """
    chosen = find_format(target)
    precision = check_exportable(bundle, target, precision)
    _check_replaceable(output, _proof_of(output, chosen))
    if chosen.suffix and not output.name.endswith(chosen.suffix):
        raise ConfigError(f"output = {str(output)!r}: a file for {target} is called NAME{chosen.suffix}")
    if reference is not None and probe is None:
        raise ConfigError(f"reference = {str(reference)!r}: translates the sentences of a probe: give that, too")
    decoder = ForcedDecoder.of(bundle, device="cpu")
    sentences = make_probe(decoder, probe, reference, num_sentences)
    say(f"probe: {len(sentences.texts):,} sentences, {sentences.origin}")
    with _written(output, chosen) as (place, proof):
        say(f"writing {target}, weights in {precision}")
        chosen.write(bundle, place, precision)
        say("comparing it with the model")
        parity = proven(decoder, chosen, place, sentences, Claim(target, precision, bundle.digest))
        parity = record_export(parity, place.parent if chosen.suffix else place)
        write_parity(proof, parity)
    return parity


def check_exportable(bundle: Bundle, target: str, precision: str | None = None) -> str:
    """The precision in which it would be written.

    Raises:
        ConfigError: the format has no such precision, or cannot express the model; lists the settings.
    """
    chosen = find_format(target)
    if precision is not None and precision not in chosen.precisions:
        raise ConfigError(f"precision = {precision!r}: {target} has {', '.join(chosen.precisions)}")
    if obstacles := chosen.obstacles(bundle):
        listed = "\n".join(f"  {obstacle}" for obstacle in obstacles)
        raise ConfigError(f"{bundle.folder} cannot be expressed in the format {target}:\n{listed}")
    return precision or chosen.precisions[0]


def proven(decoder: ForcedDecoder, chosen: ExportFormat, place: Path, probe: Probe, claim: Claim) -> Parity:
    """The proof of what was written to `place`; see `prove`."""
    runtime = chosen.load(place, decoder.tokenizer)
    return prove(decoder, runtime, probe, replace(claim, weights=chosen.read_back(place)))


@contextmanager
def _written(output: Path, chosen: ExportFormat) -> Iterator[tuple[Path, Path]]:
    """Where to write the model and the proof: beside their places, which they take when the block ends well."""
    proof = _proof_of(output, chosen)
    if not chosen.suffix:
        with written_folder(output, marker=PARITY_FILE) as folder:
            yield folder, folder / PARITY_FILE
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with (
            locked(output, output.with_name(f".{output.name}.lock")),
            TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as folder,
        ):
            written = Path(folder) / output.name, Path(folder) / proof.name
            yield written
            _check_replaceable(output, proof)  # minutes have passed
            # A model without its proof may be left by a power cut, but never with another's.
            proof.unlink(missing_ok=True)
            written[0].replace(output)
            written[1].replace(proof)
    except OSError as error:
        raise TransduceError(f"{output}: could not be written: {error}") from error


def _proof_of(output: Path, chosen: ExportFormat) -> Path:
    return output.with_name(f"{output.name}.{PARITY_FILE}") if chosen.suffix else output / PARITY_FILE


def _check_replaceable(output: Path, proof: Path) -> None:
    """That nothing is in the place of `output`, or an empty folder, or an older export.

    Raises:
        BundleError: something else is.
    """
    is_file = proof.parent != output
    if not output.exists() or (output.is_dir() and not is_file and not any(output.iterdir())):
        return
    if output.is_dir() == is_file or is_bundle(output):
        kind = "a folder" if output.is_dir() else "a file"
        raise BundleError(f"{output}: is {kind}, and no export; it is not replaced: choose another name")
    try:
        known = read_parity(proof).files
    except BundleError as error:
        raise BundleError(f"{output}: is no export and not replaced, choose another name: {error}") from None
    if is_file:
        return
    for path in sorted(output.rglob("*")):
        if path.is_file() and path != proof and path.relative_to(output).as_posix() not in known:
            raise BundleError(f"{path}: is not from an export, and would be lost: move it, or choose another --output")
