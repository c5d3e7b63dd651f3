"""The page that translates in a real browser, used as a person would."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from transduce.serving.scheduling import Limits
from transduce.translation import Translator

KEY = "a-key-of-sixteen-letters"
PHONE = {"width": 360, "height": 740}
GERMAN = "Die Sonne und der Mond scheinen heute auf den Fluss."


@pytest.fixture(scope="module")
def bundles(make_bundle: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    # Seeds of models whose translations are not blank.
    pairs = (("en", "de", 3), ("de", "en", 1), ("en", "he", 4))
    return {
        f"{source}-{target}": make_bundle(folder / f"{source}-{target}", seed, source, target)
        for source, target, seed in pairs
    }


@pytest.fixture(scope="module")
def address(make_running: Callable[..., Any], bundles: dict[str, Path]) -> str:
    """Of a server for everybody with three models."""
    return str(make_running(*bundles.values()).url)


@pytest.fixture(scope="module")
def expected(bundles: dict[str, Path]) -> Callable[[str, str], str]:
    """What a model makes of one sentence, without a server."""
    translators = {name: Translator.load(path, device="cpu", precision="float32") for name, path in bundles.items()}
    return lambda pair, sentence: translators[pair].find_translations([sentence])[0].text


def translation(page: Page) -> Any:
    return page.locator("#translation")


def hold(page: Page, address: str) -> Callable[[], Route]:
    """Hold the next request to an address back, and return what waits for it."""
    held: list[Route] = []
    page.route(address, lambda route: route.continue_() if held else held.append(route))

    def wait() -> Route:
        while not held:
            page.wait_for_timeout(20)
        return held[0]

    return wait


def test_a_text_is_translated_as_one_types(
    open_page: Callable[..., Page], address: str, expected: Callable[[str, str], str]
) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    page.locator("#source-text").press_sequentially("Sun and moon.")
    expect(translation(page)).to_have_text(expected("en-de", "Sun and moon."))
    assert translation(page).get_attribute("lang") == "de"
    expect(page.locator("#announcements")).to_have_text(expected("en-de", "Sun and moon."))
    assert page.get_attribute("#announcements", "lang") == "de"
    page.fill("#source-text", "River.")
    expect(translation(page)).to_have_text(expected("en-de", "River."))
    page.click("#clear")
    expect(translation(page)).to_be_empty()
    expect(page.locator("#copy")).to_be_disabled()


def test_paragraphs_keep_their_places_and_are_asked_for_once(
    open_page: Callable[..., Page], address: str, expected: Callable[[str, str], str]
) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request.post_data_json) if "v1" in request.url else None)
    page.fill("#source-text", "Sun.\n\nMoon.\nSun.")
    sun, moon = expected("en-de", "Sun."), expected("en-de", "Moon.")
    expect(page.locator("#translation p")).to_have_text([sun, "", moon, sun])
    page.fill("#source-text", "Sun.\n\nMoon.\nBird.")
    expect(page.locator("#translation p")).to_have_text([sun, "", moon, expected("en-de", "Bird.")])
    assert [one["text"] for one in asked] == [["Sun.", "Moon."], ["Bird."]]


def test_a_long_text_appears_as_it_is_translated(open_page: Callable[..., Page], address: str) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    # Whatever is said, however short: a fast machine is done before anybody looks.
    page.evaluate(
        """() => {
            const status = document.querySelector("#status");
            window.said = [];
            new MutationObserver(() => window.said.push(status.textContent)).observe(status, { childList: true });
        }"""
    )
    page.fill("#source-text", "\n".join(f"Sun {number} and moon." for number in range(400)))
    expect(page.locator("#announcements")).to_have_text(re.compile(r"Translated: 400 paragraphs in \d+ seconds\."))
    said = page.evaluate("window.said")
    assert any(re.fullmatch(r"Translating: \d+ of 400 paragraphs\.", one) for one in said), said
    assert page.locator("#translation p:not(:empty)").count() == 400
    assert page.locator('#translation [tabindex="0"]').count() == 1


def test_the_language_is_detected_and_both_are_swapped(
    open_page: Callable[..., Page], address: str, expected: Callable[[str, str], str]
) -> None:
    page = open_page(address)
    assert page.locator("#source-language option").all_inner_texts() == ["Detect language", "English", "German"]
    page.select_option("#target-language", "en")
    expect(page.locator("#swap")).to_be_disabled()
    page.fill("#source-text", GERMAN)
    expect(page.locator("#detected")).to_have_text("Detected: German")
    english = expected("de-en", GERMAN)
    expect(translation(page)).to_have_text(english)
    page.click("#swap")
    assert page.input_value("#source-text") == english
    assert (page.input_value("#source-language"), page.input_value("#target-language")) == ("en", "de")
    page.reload()  # the address has the languages
    expect(page.locator("#target-language")).to_have_value("de")
    assert page.input_value("#source-language") == "en"
    page.select_option("#target-language", "he")
    expect(page.locator("#swap")).to_be_disabled()  # no model translates back


def test_swapping_keeps_a_text_whose_translation_is_not_there(
    open_page: Callable[..., Page], address: str, expected: Callable[[str, str], str]
) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    page.fill("#source-text", "Sun.")
    expect(page.locator("#copy")).to_be_enabled()
    is_copy_disabled = page.evaluate(
        """() => {
            const [source, copy, swap] = ["source-text", "copy", "swap"].map((id) => document.getElementById(id));
            source.value = "River.";
            source.dispatchEvent(new Event("input"));
            const isCopyDisabled = copy.disabled;
            swap.click(); // within the pause
            return isCopyDisabled;
        }"""
    )
    assert is_copy_disabled
    assert page.input_value("#source-text") == "River."
    assert page.input_value("#source-language") == "de"
    expect(translation(page)).to_have_text(expected("de-en", "River."))
    page.route("**/v1/translate", lambda route: route.fulfill(status=400, json={"detail": "not today"}))
    page.fill("#source-text", "Bird.")
    expect(page.locator("#problem")).to_contain_text("not today")
    expect(page.locator("#copy")).to_be_disabled()
    page.click("#swap")
    assert page.input_value("#source-text") == "Bird."
    assert page.input_value("#source-language") == "en"


def test_no_request_is_larger_than_the_server_takes(
    open_page: Callable[..., Page], make_running: Callable[..., Any], bundles: dict[str, Path]
) -> None:
    page = open_page(make_running(bundles["en-de"], limits=Limits(max_characters=200, max_texts=5)).url)
    asked: list[list[str]] = []
    page.on("request", lambda request: asked.append(request.post_data_json["text"]) if "v1" in request.url else None)
    short = [f"Sun {number}." for number in range(10)]
    long = [f"Moon {number} and sun and moon and river and stone." for number in range(10)]
    page.fill("#source-text", "\n".join(short + long))
    expect(page.locator("#copy")).to_be_enabled()
    assert [text for texts in asked for text in texts] == short + long
    assert max(map(len, asked)) == 5
    assert 150 < max(len("".join(texts)) for texts in asked) <= 200
    expect(page.locator("#problem")).to_be_empty()


def test_half_an_emoji_does_not_hinder_detection(open_page: Callable[..., Page], address: str) -> None:
    page = open_page(f"{address}/#source=auto&target=en")
    text = f"{GERMAN}\n" * 28
    page.fill("#source-text", f"{text}{'x' * (1499 - len(text))}😀")
    expect(page.locator("#detected")).to_have_text("Detected: German")


def test_the_text_is_there_when_one_comes_back(open_page: Callable[..., Page], address: str) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    page.fill("#source-text", "Sun.")
    expect(page.locator("#copy")).to_be_enabled()
    page.click("text=Look inside the model")
    page.wait_for_url("**/inspect*")
    page.go_back()
    expect(page.locator("#source-text")).to_have_value("Sun.")
    expect(page.locator("#copy")).to_be_enabled()
    for name in ("", "inspect"):
        assert page.request.get(f"{address}/{name}").headers["cache-control"] == "no-cache"


def test_a_text_in_the_target_language_is_not_translated(open_page: Callable[..., Page], address: str) -> None:
    page = open_page(f"{address}/#source=auto&target=de")
    page.fill("#source-text", GERMAN)
    expect(page.locator("#status")).to_have_text("The text is German already.")
    expect(translation(page)).to_be_empty()


def test_every_paragraph_has_its_own_direction(open_page: Callable[..., Page], address: str) -> None:
    page = open_page(f"{address}/#source=en&target=he")
    page.fill("#source-text", "Sun.")
    expect(page.locator("#translation p[dir=auto]")).to_have_count(1)
    assert page.get_attribute("#source-text", "dir") == "auto"
    page.evaluate("document.querySelector('#translation p').textContent = 'שמש'")
    assert page.eval_on_selector("#translation p", "one => getComputedStyle(one).direction") == "rtl"


def test_a_sentence_has_other_translations(open_page: Callable[..., Page], address: str) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    page.fill("#source-text", "Sun and moon. River and stone.")
    sentences = page.locator("#translation [role=button]")
    expect(sentences).to_have_count(2)
    page.focus('#translation [tabindex="0"]')
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    choices = page.locator("#alternatives li button")
    expect(choices).not_to_have_count(0)
    assert page.locator("#alternatives p").first.inner_text() == "River and stone."
    other = page.locator('#alternatives li button[aria-pressed="false"]').first
    words = other.inner_text()
    first = sentences.first.inner_text()
    other.press("Enter")
    assert sentences.all_inner_texts() == [first, words]
    expect(sentences.last).to_be_focused()
    expect(page.locator("#alternatives")).to_be_hidden()
    page.keyboard.press("Enter")
    expect(page.locator('#alternatives li button[aria-pressed="true"]')).to_have_text(words)
    page.keyboard.press("Escape")
    expect(page.locator("#alternatives")).to_be_hidden()
    expect(sentences.last).to_be_focused()


def test_late_alternatives_leave_the_focus_where_one_types(open_page: Callable[..., Page], address: str) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    page.fill("#source-text", "Sun and moon.")
    expect(page.locator("#copy")).to_be_enabled()
    wait = hold(page, "**/v1/translate")
    page.click("#translation [role=button]")
    request = wait()
    page.focus("#source-text")
    request.continue_()
    expect(page.locator("#alternatives li button")).not_to_have_count(0)
    expect(page.locator("#source-text")).to_be_focused()


def test_alternatives_that_are_closed_say_nothing(open_page: Callable[..., Page], address: str) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    page.fill("#source-text", "Sun and moon.")
    expect(page.locator("#copy")).to_be_enabled()
    said = page.inner_text("#announcements")
    wait = hold(page, "**/v1/translate")
    page.click("#translation [role=button]")
    request = wait()
    page.click("#close")
    with page.expect_response("**/v1/translate") as response:
        request.continue_()
    response.value.finished()
    page.wait_for_timeout(200)  # nothing happens, for which one could wait
    assert page.inner_text("#announcements") == said
    expect(page.locator("#alternatives")).to_be_hidden()
    expect(page.locator("#translation [role=button]")).to_be_focused()


def test_arrow_keys_follow_the_direction_of_the_text(open_page: Callable[..., Page], address: str) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    page.fill("#source-text", "Sun and moon. River and stone.")
    sentences = page.locator("#translation [role=button]")
    expect(sentences).to_have_count(2)
    page.evaluate("document.querySelector('#translation p').dir = 'rtl'")
    sentences.first.press("ArrowLeft")
    expect(sentences.last).to_be_focused()
    sentences.last.press("ArrowRight")
    expect(sentences.first).to_be_focused()


def test_without_alternatives_there_is_nothing_to_choose(
    open_page: Callable[..., Page], make_running: Callable[..., Any], bundle: Path
) -> None:
    page = open_page(make_running(bundle, limits=Limits(max_alternatives=0)).url)
    page.fill("#source-text", "Sun.")
    expect(page.locator("#copy")).to_be_enabled()
    assert page.locator("#translation [role=button]").count() == 0


@pytest.mark.parametrize("has_clipboard", [True, False], ids=["clipboard", "selection"])
def test_the_translation_is_copied(
    open_page: Callable[..., Page], address: str, expected: Callable[[str, str], str], has_clipboard: bool
) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    if not has_clipboard:  # as at an address of another machine, without https
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(); }")
    page.fill("#source-text", "Sun.\nMoon.")
    expect(page.locator("#copy")).to_be_enabled()
    page.click("#copy")
    expect(page.locator("#copy")).to_have_text("Copied")
    both = f"{expected('en-de', 'Sun.')}\n{expected('en-de', 'Moon.')}"
    assert page.evaluate("navigator.clipboard.readText()") == both


def test_documents_are_chosen_and_dropped(
    open_page: Callable[..., Page], address: str, expected: Callable[[str, str], str], tmp_path: Path
) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    page.fill("#source-text", "Sun.")  # the languages are there
    expect(page.locator("#copy")).to_be_enabled()
    (tmp_path / "sun.txt").write_text("Sun.", encoding="utf-8")
    (tmp_path / "bad.docx").write_bytes(b"no document")
    page.set_input_files("#file", [tmp_path / "sun.txt", tmp_path / "bad.docx"])
    rows = page.locator("#files li")
    with page.expect_download() as download:
        rows.nth(0).locator("a").click()
    assert download.value.suggested_filename == "sun_de.txt"
    assert Path(download.value.path()).read_text(encoding="utf-8") == expected("en-de", "Sun.")
    expect(rows.nth(1)).to_contain_text("damaged")
    page.evaluate(
        """() => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File(["<p>Moon.</p>"], "moon.html"));
            dataTransfer.items.add(new File(["x"], "x.pdf"));
            dataTransfer.items.add(new File([], "empty.txt"));
            document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }"""
    )
    with page.expect_download() as download:
        rows.nth(2).locator("a").click()
    assert Path(download.value.path()).read_text(encoding="utf-8") == f"<p>{expected('en-de', 'Moon.')}</p>"
    expect(rows.nth(3)).to_contain_text("This server translates TXT, HTML,")
    expect(rows.nth(4)).to_contain_text("It is empty.")


def test_a_waiting_document_is_cancelled_at_once(open_page: Callable[..., Page], address: str, tmp_path: Path) -> None:
    page = open_page(f"{address}/#source=en&target=de")
    page.fill("#source-text", "Sun.")  # the languages are there
    expect(page.locator("#copy")).to_be_enabled()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "translate_file" in request.url else None)
    files = [tmp_path / f"{name}.txt" for name in ("sun", "moon", "bird")]
    for file in files:
        file.write_text("Sun.", encoding="utf-8")
    wait = hold(page, "**/translate_file")
    page.set_input_files("#file", files)
    request = wait()
    rows = page.locator("#files li")
    expect(rows.nth(1)).to_contain_text("Waiting.")
    rows.nth(1).locator("button").click()
    expect(rows.nth(1)).to_contain_text("Cancelled.")
    assert rows.locator("button").count() == 2
    expect(rows.nth(0)).to_contain_text("Translating.")
    request.continue_()
    expect(rows.locator("a")).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("Cancelled.")
    assert len(asked) == 2


def test_a_key_is_asked_for(
    open_page: Callable[..., Page],
    make_running: Callable[..., Any],
    bundles: dict[str, Path],
    expected: Callable[[str, str], str],
    tmp_path: Path,
) -> None:
    page = open_page(make_running(bundles["en-de"], keys=(KEY,)).url)
    expect(page.locator("#api-key")).to_be_focused()
    page.fill("#source-text", "Sun.")
    page.fill("#api-key", "another-key-of-mine")
    page.keyboard.press("Enter")
    expect(page.locator("#problem")).to_contain_text("API key")
    page.fill("#api-key", KEY)
    page.keyboard.press("Enter")
    expect(translation(page)).to_have_text(expected("en-de", "Sun."))
    expect(page.locator("#key-form")).to_be_hidden()
    expect(page.locator("#problem")).to_be_empty()
    (tmp_path / "sun.txt").write_text("Sun.", encoding="utf-8")
    page.set_input_files("#file", tmp_path / "sun.txt")
    expect(page.locator("#files a")).to_have_count(1)


def test_what_goes_wrong_is_said(
    open_page: Callable[..., Page],
    make_running: Callable[..., Any],
    bundles: dict[str, Path],
    expected: Callable[[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = make_running(bundles["en-de"], limits=Limits(max_characters=100))
    page = open_page(server.url)
    page.fill("#source-text", "Sun. " * 30)
    expect(page.locator("#problem")).to_contain_text("150 characters; this server takes at most 100 at once")
    monkeypatch.setattr(server.service, "_is_open", False)
    page.fill("#source-text", "Moon.")
    expect(page.locator("#status")).to_have_text("The server is busy: trying again in 5 s.")
    monkeypatch.setattr(server.service, "_is_open", True)
    expect(translation(page)).to_have_text(expected("en-de", "Moon."))  # by itself
    page.route("**/v1/translate", lambda route: route.fulfill(status=403, json={"detail": "not today"}))
    page.fill("#source-text", "Bird.")
    expect(page.locator("#problem")).to_contain_text("not today")
    page.unroute("**/v1/translate")
    page.click("#again")
    expect(page.locator("#key-form")).to_be_visible()  # the server had refused for want of a key
    page.fill("#api-key", KEY)
    page.keyboard.press("Enter")
    expect(translation(page)).to_have_text(expected("en-de", "Bird."))


def test_the_page_waits_while_models_load(
    open_page: Callable[..., Page],
    make_running: Callable[..., Any],
    bundles: dict[str, Path],
    expected: Callable[[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = make_running(bundles["en-de"])
    loaded = server.service._models._loaded
    monkeypatch.setattr(server.service._models, "_loaded", {})
    page = open_page(server.url)
    expect(page.locator("#status")).to_have_text("The server is loading its models.")
    page.fill("#source-text", "Sun.")
    monkeypatch.setattr(server.service._models, "_loaded", loaded)
    expect(translation(page)).to_have_text(expected("en-de", "Sun."))


def test_links_of_before_lead_to_the_view_of_the_model(open_page: Callable[..., Page], address: str) -> None:
    page = open_page(f"{address}/#view=attention&layer=1")
    page.wait_for_url("**/inspect#view=attention&layer=1")
    page.click("#to-translate")
    page.wait_for_url(re.compile(r"/(#.*)?$"))
    page.click("text=Look inside the model")
    page.wait_for_selector("#text")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_keeps_nobody_out(open_page: Callable[..., Page], address: str, tmp_path: Path, scheme: str) -> None:
    page = open_page(f"{address}/#source=en&target=de", color_scheme=scheme)
    (tmp_path / "sun.txt").write_text("Sun.", encoding="utf-8")
    page.set_input_files("#file", [tmp_path / "sun.txt"])
    page.fill("#source-text", "Sun and moon. River.")
    page.locator("#translation [role=button]").first.click()
    expect(page.locator("#alternatives li button")).not_to_have_count(0)
    expect(page.locator("#files a")).to_have_count(1)
    page.evaluate("document.getElementById('key-form').hidden = false")
    found = Axe().run(page).response["violations"]
    assert not [(one["id"], one["nodes"][0]["html"]) for one in found]


def test_a_phone_is_wide_enough_for_it(open_page: Callable[..., Page], address: str, tmp_path: Path) -> None:
    page = open_page(f"{address}/#source=en&target=de", viewport=PHONE)
    name = f"{'long' * 20}.txt"
    (tmp_path / name).write_text("Sun.", encoding="utf-8")
    page.set_input_files("#file", [tmp_path / name])
    page.fill("#source-text", "x" * 300 + " Sun and moon.")
    page.locator("#translation [role=button]").first.click()
    expect(page.locator("#alternatives li button")).not_to_have_count(0)
    expect(page.locator("#files a")).to_have_count(1)
    page.evaluate("document.getElementById('key-form').hidden = false")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
