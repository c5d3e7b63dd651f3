"""The README's pictures, from a run of your own: python scripts/pictures.py RUN; needs Chromium."""

import argparse
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from transduce.bundle import Bundle, find_bundle
from transduce.inspection import QUICK, InspectedModel, InspectionRequest, inspect_text
from transduce.serving.page import render_standalone_page
from transduce.training import RunFolder, draw_learning_curve
from transduce.translation import Confidence, Translator

DOCS = Path(__file__).parents[1] / "docs"
SENTENCE = "A man in an orange hat starring at something."
VIEWS = ("attention", "arithmetic", "beam")


def main() -> None:
    """Draw the learning curve, compute one page, and take the pictures of its views."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    run = parser.parse_args().run
    curve = draw_learning_curve(RunFolder(run).metrics.read())
    (DOCS / "multi30k-en-de.svg").write_text(curve, encoding="utf-8", newline="\n")
    bundle = Bundle.open(find_bundle(run))
    translator = Translator.load(bundle.folder, precision="float32")
    request = InspectionRequest.parse(text=SENTENCE, beam=4, include=[*QUICK, "arithmetic"])
    document = inspect_text(
        translator, request, InspectedModel("multi30k-en-de", bundle.digest, Confidence.load(bundle))
    )
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "page.html"
        path.write_text(render_standalone_page([document]), encoding="utf-8")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 860}, color_scheme="light")
        for name in VIEWS:
            page.goto(f"{path.as_uri()}#view={name}")
            page.reload()
            page.wait_for_selector("main h1")
            page.screenshot(path=DOCS / "pictures" / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
