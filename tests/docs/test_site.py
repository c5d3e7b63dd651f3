"""The documentation as a site: it is built without a warning, and its pages work in a real browser."""

import functools
import html
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import pytest
from axe_playwright_python.sync_playwright import Axe
from filelock import FileLock
from playwright.sync_api import Browser, ViewportSize, expect

for package in ("sphinx", "furo", "myst_nb", "latex2mathml"):
    pytest.importorskip(package, reason="needs the extra docs: make docs installs it")
pytestmark = pytest.mark.exhaustive  # executing pages takes minutes the first time

PROJECT = Path(__file__).parents[2]
KINDS = ["index", "guide/own-text", "settings", "cli", "api/model", "experiments", "paper/3-2-attention"]
"""One page of each kind, in docs."""
SIZES: dict[str, ViewportSize] = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 360, "height": 740}}

TOO_WIDE = """() => {
    const content = document.querySelector(".content");
    return content.scrollWidth > content.clientWidth || document.documentElement.scrollWidth > innerWidth;
}"""
"""Whether anything reaches beyond the content of a page; the theme cuts it off there, so the page does not scroll."""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of the site, built once for all processes that run tests, with every page read anew."""
    folder = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        folder = folder.parent
    built = folder / "site" / "html"
    with FileLock(folder / "site.lock"):
        if not built.exists():
            command = [sys.executable, "-m", "sphinx", "-c", "docs", "-d", str(folder / "site" / "doctrees")]
            command += ["--fail-on-warning", "--keep-going", "--quiet", ".", str(built)]
            done = subprocess.run(command, cwd=PROJECT, capture_output=True, check=False, encoding="utf-8")
            assert done.returncode == 0, done.stderr
    return built


class PageReader(HTMLParser):
    """Collects what links of a page can lead to, the links, the pictures, and names that are described."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors.add(values.get("id") or "")
        if tag == "a" and values.get("href"):
            self.links.append(unquote(values["href"] or ""))
        elif tag in {"link", "script"} and (address := values.get("href") or values.get("src")):
            self.links.append(unquote(address.partition("?")[0]))
        elif tag == "img":
            self.pictures.append(values)


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, PageReader]:
    return {path: PageReader(path) for path in sorted(site.rglob("*.html"))}


def test_every_page_of_the_repository_is_on_the_site(pages: dict[Path, PageReader], site: Path) -> None:
    names = {path.relative_to(site).with_suffix("").as_posix() for path in pages}
    folders = ("benchmarks", "docs")
    sources = [*PROJECT.glob("*.md"), *(path for folder in folders for path in (PROJECT / folder).rglob("*.md"))]
    expected = {path.relative_to(PROJECT).with_suffix("").as_posix() for path in sources if "_build" not in path.parts}
    assert expected <= names
    assert 'url=docs/index.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_links_within_the_site_lead_somewhere(pages: dict[Path, PageReader]) -> None:
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            known = pages[target].anchors if target in pages else set()
            if not target.is_file() or (anchor and target in pages and anchor not in known):
                wrong.append((path.name, link))
    assert not wrong


def test_pictures_have_a_description(pages: dict[Path, PageReader]) -> None:
    """Without one, Sphinx takes the name of the file."""
    pictures = [(path.name, picture) for path, page in pages.items() for picture in page.pictures]
    texts = [(name, (picture.get("alt") or "").strip()) for name, picture in pictures]
    assert texts
    assert not [(name, text) for name, text in texts if len(text.split()) < 3]


@pytest.mark.parametrize("path", sorted((PROJECT / "docs" / "api").glob("*.md")), ids=lambda path: path.stem)
def test_public_names_are_described(pages: dict[Path, PageReader], site: Path, path: Path) -> None:
    page = pages[site / "docs" / "api" / f"{path.stem}.html"]
    named = {"index": "transduce"}.get(path.stem, f"transduce.{path.stem}")
    offered = getattr(import_module(named), "__all__", [])
    described = {anchor.rpartition(".")[2] for anchor in page.anchors if anchor.startswith("transduce.")}
    if path.stem == "index":
        assert not [name for name in offered if f"`{name}`" not in path.read_text(encoding="utf-8")]
    else:
        assert not set(offered) - described


def test_shapes_stand_in_signatures(site: Path) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", "", (site / "docs" / "api" / "model.html").read_text(encoding="utf-8")))
    assert "memory: Float[Tensor, 'rows source d_model'] | KeysAndValues" in text
    assert "queries: Float[Tensor, 'batch heads query d_k']" in text  # in the code, this is called Queries


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address of a server of the site; from files, browsers let no search read its pages."""

    class QuietHandler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:  # it would write every request to standard error
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(site))
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_search_finds_beam_search(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(f"{address}/docs/index.html")
    page.locator("input[name=q]").first.fill("beam search")
    page.keyboard.press("Enter")
    results = page.locator("#search-results li a")
    expect(results.filter(has_text="beam_search").first).to_be_visible(timeout=60_000)
    assert results.count() > 5
    page.close()


def test_no_page_is_wider_than_a_phone_or_needs_a_network(
    browser: Browser, address: str, pages: dict[Path, PageReader], site: Path
) -> None:
    page = browser.new_page(viewport=SIZES["phone"])
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    wide = []
    for path in pages.keys() - {site / "index.html"}:  # that leads to another one at once
        page.goto(f"{address}/{path.relative_to(site).as_posix()}")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            if page.evaluate(TOO_WIDE):
                wide.append((path.name, scheme))
    # A table that does not scroll is noticed.
    page.goto(f"{address}/docs/settings.html")
    page.add_style_tag(content=".table-wrapper { overflow: visible !important }")
    assert page.evaluate(TOO_WIDE)
    page.close()
    assert not [url for url in requested if not url.startswith((address, "data:"))]
    assert not failures
    assert not wide


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_no_kind_of_page_keeps_anybody_out(
    browser: Browser, address: str, site: Path, scheme: Literal["light", "dark"], size: str
) -> None:
    page = browser.new_page(viewport=SIZES[size], color_scheme=scheme)
    serious = []
    for name in [f"docs/{kind}.html" for kind in KINDS if (site / "docs" / f"{kind}.html").exists()] + ["search.html"]:
        page.goto(f"{address}/{name}")
        found = Axe().run(page).response["violations"]
        bad = [one for one in found if one["impact"] in {"serious", "critical"}]
        serious += [(name, one["id"], one["nodes"][0]["html"]) for one in bad]
    page.close()
    assert not serious
