"""How large and how fast is a page of `transduce inspect`, and do its numbers agree with the model's?

    transduce inspect BUNDLE "a sentence of 60 tokens" --output page.html
    python benchmarks/page.py page.html

Opens the page in Chromium: bytes of the file; seconds until the first view is drawn; milliseconds from a click on a
head until its matrix is drawn; the largest difference between what the browser computes and what the model did, of
every head whose numbers are in the file. Last, one line of JSON.
"""

import argparse
import json
import re
import shutil
import statistics
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

DRAWN = "() => new Promise(requestAnimationFrame).then(() => performance.now())"
SWITCH = """async (id) => {
    const start = performance.now();
    document.getElementById(id).click();
    await new Promise(requestAnimationFrame);
    return performance.now() - start;
}"""
HEADS = """() => JSON.parse(document.getElementById("documents").textContent)[0].arithmetic
    .map(({ attention, layer, head }) => [attention, layer, head])"""


def main() -> None:
    """Open, click, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--runs", type=int, default=5, help="of opening the page")
    arguments = parser.parse_args()
    address = arguments.page.resolve().as_uri()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        found = {
            "megabytes": arguments.page.stat().st_size / 1e6,
            "first_view_seconds": [first_view(page, address) for _ in range(arguments.runs)],
            "switch_milliseconds": switches(page, address),
            "largest_differences": differences(page, address),
        }
        browser.close()
    times, differing = found["switch_milliseconds"], found["largest_differences"]
    print(f"file                {found['megabytes']:.2f} MB")
    print(f"first view          {statistics.median(found['first_view_seconds']):.2f} s, median of {arguments.runs}")
    print(f"switching heads     {statistics.median(times):.0f} ms, at most {max(times):.0f} ms, {len(times)} heads")
    print(f"largest difference  {max(differing):.1e}, {len(differing)} heads")
    print(json.dumps(found))


def first_view(page: Page, address: str) -> float:
    """Seconds from asking for the page until it is drawn."""
    page.goto("about:blank")
    page.goto(address, wait_until="commit")
    page.wait_for_selector("main h1")
    return page.evaluate(DRAWN) / 1000


def switches(page: Page, address: str) -> list[float]:
    """Milliseconds of a click on each head of the encoder-decoder attention."""
    page.goto("about:blank")
    page.goto(f"{address}#view=attention")
    page.wait_for_selector("main h1")
    names = page.evaluate("[...document.querySelectorAll('[id^=grid-]')].map(one => one.id)")
    heads = [name for name in names if re.fullmatch(r"grid-\d+-\d+", name)]
    return [page.evaluate(SWITCH, head) for head in heads]


def differences(page: Page, address: str) -> list[float]:
    """As the page says it, of every head that is in the file."""
    page.goto(f"{address}#view=arithmetic")
    page.wait_for_selector("main h1")
    found = []
    for attention, layer, head in page.evaluate(HEADS):
        page.goto("about:blank")
        page.goto(f"{address}#view=arithmetic&attention={attention}&layer={layer + 1}&head={head + 1}")
        found.append(float(page.get_attribute("#verdict", "data-difference") or "nan"))
    return found


if __name__ == "__main__":
    main()
