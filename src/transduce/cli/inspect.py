"""`transduce inspect`."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from transduce.bundle import Bundle, find_bundle, name_model
from transduce.cli.console import print_message
from transduce.inspection import EVERYTHING, QUICK, Head, InspectedModel, InspectionRequest, inspect_text
from transduce.serving.page import STANDALONE_PAGE, render_standalone_page
from transduce.translation import Confidence, Translator


@Parameter(name="*")
@dataclass(frozen=True)
class InspectionFlags:
    """What the page shows.

    Args:
        reference: a human translation, which the model scores token by token.
        beam: hypotheses kept in the search, at most 16. Default: the model's setting.
        head: ATTENTION.LAYER.HEAD, from 1, as in encoder_decoder.1.3: a head whose complete arithmetic is included in
            the page; may be given several times. Further heads are included as space permits.
        quick: leave out the slow parts: translation with each head pruned, and with words replaced.
    """

    reference: str | None = None
    beam: int | None = None
    head: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    quick: bool = False

    def make_request(self, sentence: str) -> InspectionRequest:
        """The request to inspect the translation of `sentence`."""
        return InspectionRequest.parse(
            text=sentence,
            reference=self.reference,
            beam=self.beam,
            arithmetic=[Head.parse(text) for text in self.head],
            include=[*QUICK, "arithmetic"] if self.quick else list(EVERYTHING),
        )


def inspect(
    model: Path,
    sentence: str,
    /,
    *,
    output: Path,
    compare: Annotated[tuple[Path, ...], Parameter(negative=())] = (),
    flags: InspectionFlags | None = None,
    device: str = "auto",
    force: bool = False,
) -> None:
    """Write a page that shows how a sentence is translated.

    Args:
        model: a bundle, or the folder of a run.
        sentence: the source text.
        output: the page to write, as in page.html, or a pipe or device; an earlier page of this command is replaced.
        compare: another model or checkpoint, shown beside the first; may be given several times.
        flags: what the page shows.
        device: cpu, cuda, mps or auto.
        force: replace any existing file.
    """
    started = time.monotonic()
    request = (flags or InspectionFlags()).make_request(sentence)
    STANDALONE_PAGE.check(output, force=force)
    documents = [_make_document(path, request, device) for path in (model, *compare)]
    num_bytes = STANDALONE_PAGE.write(output, render_standalone_page(documents), force=force)
    print_message(
        f"{output} written in {time.monotonic() - started:.1f} s: {num_bytes / 1e6:.1f} MB; open it in a browser"
    )


def _make_document(path: Path, request: InspectionRequest, device: str) -> dict[str, Any]:
    bundle = Bundle.open(find_bundle(path))
    name = name_model(bundle.folder)
    translator = Translator.load(bundle.folder, device=device, precision="float32")
    about = InspectedModel(name, bundle.digest, Confidence.load(bundle))
    return inspect_text(translator, request, about, report=lambda text: print_message(f"{name}: {text}"))
