"""The import of another program's model as a bundle, with a parity proof."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from transduce.bundle import (
    Bundle,
    BundleDescription,
    Languages,
    check_new_bundle,
    check_tensors,
    load_tensors,
    make_empty_model,
    model_tensors,
    save_bundle,
)
from transduce.config import SearchConfig
from transduce.interop.formats import ImportedModel, find_import_format
from transduce.interop.parity import PARITY_FILE, Parity, write_parity
from transduce.interop.probe import NUM_SENTENCES, make_probe
from transduce.interop.proof import Claim, prove
from transduce.model import Transformer
from transduce.translation import ForcedDecoder


def import_model(  # noqa: PLR0913 - each is a choice of whoever imports
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
        tokenizer: a SentencePiece model, or a folder with two, where the format has none.
        source_language: a code as in "en"; the one that the model names unless given.
        target_language: the code of the target language, likewise.
        probe: a file with the sentences of the proof, one a line; unless given, they come from the vocabulary.
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
    report(f"reading {path}, a model of the format {name}")
    found = chosen.read(path, tokenizer)
    found = replace(
        found,
        source_language=found.source_language if source_language is None else source_language,
        target_language=found.target_language if target_language is None else target_language,
    )
    proofs: list[Parity] = []

    def verify(folder: Path) -> None:
        bundle = Bundle.open(folder)
        decoder = ForcedDecoder.from_bundle(bundle, device="cpu")
        sentences = make_probe(decoder, probe, num_sentences=num_sentences)
        report(f"comparing it with {found.runtime.name} on {len(sentences.texts):,} sentences, {sentences.origin}")
        proofs.append(prove(decoder, found.runtime, sentences, Claim(name, found.precision, bundle.digest)))
        write_parity(folder / PARITY_FILE, proofs[0])
        check_new_bundle(output, force=force)  # minutes have passed

    _check_shapes(found, path)
    model = make_empty_model(found.config)
    load_tensors(model, found.tensors, str(path))
    save_bundle(output, model, found.tokenizer, _describe_bundle(found, path, name), verify)
    return proofs[0]


def _check_shapes(found: ImportedModel, path: Path) -> None:
    """Check the shapes of all weights before the network is made: a damaged file may describe one of any size."""
    with torch.device("meta"):
        expected = model_tensors(Transformer(found.config))
    check_tensors(found.tensors, expected, str(path))


def _describe_bundle(found: ImportedModel, path: Path, name: str) -> BundleDescription:
    return BundleDescription(
        model=found.config,
        search=_limit_search(found),
        languages=Languages(source=found.source_language, target=found.target_language),
        training={"imported_from": path.name, "format": name, "made_for": found.runtime.name},
    )


def _limit_search(found: ImportedModel) -> SearchConfig:
    """The search settings, with sources no longer than learned positions allow."""
    if found.config.positions != "learned":
        return found.search
    most = min(found.search.max_pieces, max(8, found.config.max_positions - 1))
    return found.search.model_copy(update={"max_pieces": most})
