"""Export to another program's format, and import from one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copymode

from transduce.bundle import Bundle, BundleDescription, Languages, check_new_bundle, is_bundle, save_bundle
from transduce.bundle.bundle import DESCRIPTION, check_no_foreign_files
from transduce.bundle.manifest import read_description, record_files, serialize_description
from transduce.bundle.weights import check_tensors, make_empty_tensors, make_model
from transduce.errors import BundleError, ConfigError, OutputError
from transduce.interop.formats import (
    SATURATING,
    ExportFormat,
    check_foreign_path,
    find_export_format,
    find_import_format,
    import_optional,
)
from transduce.interop.parity import EXACT, PARITY_FILE, Claim, Parity, prove, record_export
from transduce.interop.probe_sentences import NUM_SENTENCES, Probe, make_probe
from transduce.storage import (
    FORCE_ADVICE,
    check_output_file,
    check_writable,
    flush_to_disk,
    is_stream,
    make_folder_beside,
    replace_folder,
)
from transduce.text.corpus import escape_surrogates
from transduce.translation import ForcedDecoder

_PROGRAMS = {"ctranslate2": "CTranslate2", "huggingface": "Transformers", "onnx": "ONNX Runtime"}
"""The programs that open an exported folder themselves, by format."""


def export_bundle(  # noqa: PLR0913 - each is an option of the export
    bundle: Bundle,
    target: str,
    output: Path,
    *,
    precision: str | None = None,
    probe: Path | None = None,
    reference: Path | None = None,
    num_sentences: int = NUM_SENTENCES,
    force: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Parity:
    """Export `bundle` to `output` in the format `target`, with a proof that the other program computes the same.

    The proof is the file `parity.json` in the folder, or `<name>.parity.json` beside a single file. An earlier export
    in the same place is replaced, other files are not, and a failure changes nothing.

    Args:
        bundle: the model.
        target: a name in `FORMATS`.
        output: the folder or file to write.
        precision: that of the weights; default: that of the format.
        probe: a file with the sentences of the proof, one per line; default: generated from the vocabulary.
        reference: a file with the translations of the probe.
        num_sentences: the largest number of sentences.
        force: replace a file or a bundle at `output` that is no export, or an export that was changed; never `bundle`.
        report: receives messages about progress.

    Raises:
        ConfigError: there is no such format or precision, the format cannot express the model, or `output` is wrong.
        BundleError: the bundle is damaged.
        BusyError: another process is writing there.
        CorpusError: the probe cannot be read.
        MissingExtraError: the other program is not installed.
        ParityError: it does not compute the same.
        OutputError: `output` is not an export, or cannot be written.
        WriteError: writing failed, as on a full disk.
    """
    chosen = find_export_format(target)
    precision = _choose_precision(bundle, target, chosen, precision)
    if chosen.suffix and not output.name.endswith(chosen.suffix):
        raise ConfigError(f"output = {str(output)!r}: the name of a file for {target} must end in {chosen.suffix}")
    if output.resolve() == bundle.folder.resolve():
        raise OutputError(f"{output}: is the model to export, which would be lost: choose another name")
    _check_output(output, chosen, force=force)
    if target in _PROGRAMS:
        check_foreign_path(output.absolute(), _PROGRAMS[target])
    for package in chosen.packages:
        import_optional(package, f"exporting to {target}")
    if reference is not None and probe is None:
        raise ConfigError(f"reference = {str(reference)!r}: needs a probe, whose translations it contains: give both")
    decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
    sentences = make_probe(decoder, probe, reference, num_sentences)
    report(f"probe: {len(sentences.texts):,} sentences, {sentences.origin}")
    with _open_output(output, chosen, force=force) as (place, proof):
        report(f"writing {target}, weights in {precision}")
        chosen.write(bundle, place, precision)
        report("comparing it with the model")
        parity = prove_export(decoder, chosen, place, sentences, Claim(target, precision, bundle.digest))
        parity = record_export(parity, place.parent if chosen.suffix else place)
        proof.write_bytes(serialize_description(parity))
    return parity


def _choose_precision(bundle: Bundle, target: str, chosen: ExportFormat, precision: str | None) -> str:
    """The precision of the weights in the format `target`, after a check that it can express the model."""
    if precision is not None and precision not in chosen.precisions:
        raise ConfigError(f"precision = {precision!r}: {target} has {', '.join(chosen.precisions)}")
    if obstacles := chosen.find_unsupported_features(bundle):
        listed = "\n".join(f"  {obstacle}" for obstacle in obstacles)
        raise ConfigError(f"{bundle.folder} cannot be expressed in the format {target}:\n{listed}")
    return precision or chosen.precisions[0]


def prove_export(decoder: ForcedDecoder, chosen: ExportFormat, place: Path, probe: Probe, claim: Claim) -> Parity:
    """Prove that the export at `place` computes what the model of `decoder` computes."""
    runtime = chosen.load(place, decoder.tokenizer)
    is_rounded = claim.precision != EXACT and EXACT in chosen.precisions
    remedy = f"--precision {EXACT} avoids rounding" if is_rounded else ""
    if SATURATING in runtime.name:
        remedy += ", or set CT2_USE_MKL=1 (docs/interop.md)"
    return prove(decoder, runtime, probe, replace(claim, weights=chosen.read_back(place), remedy=remedy))


@contextmanager
def _open_output(output: Path, chosen: ExportFormat, *, force: bool) -> Iterator[tuple[Path, Path]]:
    """Temporary paths for the model and the proof, which take their final places when the block succeeds."""
    if not chosen.suffix:
        with replace_folder(output, marker=DESCRIPTION if is_bundle(output) else PARITY_FILE) as folder:
            yield folder, folder / PARITY_FILE
            _check_output(output, chosen, force=force)  # minutes have passed
        return
    output = output.resolve()  # a symbolic link stays
    proof = _proof_path(output)
    with make_folder_beside(output) as folder:
        written = folder / output.name, folder / proof.name
        yield written
        _check_output(output, chosen, force=force)
        for path in written:
            if output.exists():
                copymode(output, path)
            flush_to_disk(path)
        # A power cut may leave a model without a proof, but never one with another model's proof.
        proof.unlink(missing_ok=True)
        written[0].replace(output)
        written[1].replace(proof)


def _proof_path(file: Path) -> Path:
    return file.with_name(f"{file.name}.{PARITY_FILE}")


def _check_output(output: Path, chosen: ExportFormat, *, force: bool) -> None:
    """Check that `output` is free, an older export, or something that `force` allows to replace."""
    if not chosen.suffix:
        _check_output_folder(output, force=force)
        return
    if is_stream(output):
        raise OutputError(
            f"{output}: is a pipe or a device; an export needs a file, next to its proof: give the name of a file"
        )
    check_output_file(output, _is_exported_file, "export", force=force, makes_folder=True)
    proof = _proof_path(output.resolve())
    check_output_file(
        proof, lambda path: _read_proof(path) is not None, "proof of an export", force=force, makes_folder=True
    )


def _check_output_folder(output: Path, *, force: bool) -> None:
    if output.exists() and not output.is_dir():
        raise OutputError(
            f"{output}: is neither a folder nor an export, and is not replaced: give the name of a folder"
        )
    if is_bundle(output) and (force or not _is_exported_bundle(output)):
        if not force:
            raise OutputError(f"{output}: contains a model that is not an export: {FORCE_ADVICE}")
        check_no_foreign_files(output)
    elif output.is_dir() and any(output.iterdir()):
        _check_older_export(output, force=force)
    check_writable(output)


def _is_exported_bundle(folder: Path) -> bool:
    """Whether a bundle is an export itself; an imported one has a proof, too, which names no files."""
    proof = _read_proof(folder / PARITY_FILE)
    return proof is not None and proof.target == "transduce"


def _check_older_export(folder: Path, *, force: bool) -> None:
    """Check that a folder is an export, to which nothing was added; with `force`, its files may have been changed."""
    if not (folder / PARITY_FILE).exists():
        found = min(path.name for path in folder.iterdir())
        raise OutputError(f"{folder}: contains {found} and is not an export; it is not replaced: choose another name")
    try:
        known = read_description(folder / PARITY_FILE, Parity).files
    except BundleError as error:
        raise OutputError(f"{folder}: is not an export and is not replaced; choose another name: {error}") from None
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name == PARITY_FILE:
            continue
        if name not in known:
            raise OutputError(f"{path}: is not from an export, and would be lost: move it, or choose another name")
        if not force and record_files(folder, [name])[name] != known[name]:
            raise OutputError(f"{path}: was changed after the export: {FORCE_ADVICE}")


def _is_exported_file(path: Path) -> bool:
    proof = _read_proof(_proof_path(path.resolve()))
    return proof is not None and record_files(path.parent, [path.name])[path.name] in proof.files.values()


def _read_proof(path: Path) -> Parity | None:
    try:
        return read_description(path, Parity)
    except BundleError:
        return None


def import_model(  # noqa: PLR0913 - each is an option of the import
    path: Path,
    output: Path,
    *,
    tokenizer: Path | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    probe: Path | None = None,
    num_sentences: int = NUM_SENTENCES,
    force: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Parity:
    """Import the model in `path` as the bundle `output`, with a proof that both compute the same.

    The proof is the file `parity.json` in the bundle. A failure changes nothing.

    Args:
        path: the model; its format is detected.
        output: the folder of the bundle.
        tokenizer: a SentencePiece model, or a folder with two, if the format has none.
        source_language: a code as in "en"; default: the one recorded in the model.
        target_language: a code as in "de"; default: the one recorded in the model.
        probe: a file with the sentences of the proof, one per line; default: generated from the vocabulary.
        num_sentences: the largest number of sentences.
        force: replace a bundle at `output`.
        report: receives messages about progress.

    Raises:
        BundleError: the model has no known format, is damaged, or cannot be expressed as a bundle.
        CorpusError: the probe cannot be read.
        MissingExtraError: the program that the model was made for is not installed.
        ParityError: it does not compute the same.
        OutputError: `output` exists and is not replaced, or cannot be written.
        WriteError: writing failed, as on a full disk.
    """
    check_new_bundle(output, force=force)
    name, chosen = find_import_format(path)
    for package in chosen.packages:
        import_optional(package, f"importing from {name}")
    report(f"reading {path}, a model of the format {name}")
    found = chosen.read(path, tokenizer)
    config, search = found.config, found.search
    if config.positions == "learned":  # a source is no longer than they allow
        search = search.model_copy(update={"max_pieces": min(search.max_pieces, max(8, config.max_positions - 1))})
    description = BundleDescription(
        model=config,
        search=search,
        languages=Languages(
            source=found.source_language if source_language is None else source_language,
            target=found.target_language if target_language is None else target_language,
        ),
        training={"imported_from": escape_surrogates(path.name), "format": name, "made_for": found.runtime.name},
    )
    proofs: list[Parity] = []

    def verify(folder: Path) -> None:
        bundle = Bundle.open(folder)
        decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
        sentences = make_probe(decoder, probe, num_sentences=num_sentences)
        report(f"comparing it with {found.runtime.name} on {len(sentences.texts):,} sentences, {sentences.origin}")
        proofs.append(prove(decoder, found.runtime, sentences, Claim(name, found.precision, bundle.digest)))
        (folder / PARITY_FILE).write_bytes(serialize_description(proofs[0]))
        check_new_bundle(output, force=force)  # minutes have passed

    # Before the network is made: a damaged file may describe one of any size.
    check_tensors(found.tensors, make_empty_tensors(config), str(path))
    model = make_model(config, found.tensors, str(path))
    save_bundle(output, model, found.tokenizer, description, verify)
    return proofs[0]
