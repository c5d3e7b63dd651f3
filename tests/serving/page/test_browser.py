"""The page that shows the model at work in a real browser, used as a person would."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from transduce.inspection import EVERYTHING, InspectedModel, InspectionRequest, inspect_text
from transduce.serving.page import render_standalone_page
from transduce.text import Tokenizer
from transduce.translation import Translator

VIEWS = ("translate", "attention", "arithmetic", "positions", "beam", "layers", "compare")
PHONE = {"width": 360, "height": 740}
SWITCHES = """async () => {
    const times = [];
    for (const [layer, head] of [[0, 1], [0, 2], [0, 3], [0, 0], [0, 1]]) {
        const start = performance.now();
        document.getElementById(`grid-${layer}-${head}`).click();
        await new Promise(requestAnimationFrame);
        times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b)[2];
}"""


def inspected(path: Path, **values: Any) -> dict[str, Any]:
    request = InspectionRequest.parse(**{"text": "River stone bird.", "beam": 3, **values})
    return inspect_text(Translator.load(path, device="cpu", precision="float32"), request, InspectedModel(path.name))


def written(path: Path, *documents: dict[str, Any]) -> str:
    path.write_text(render_standalone_page(documents), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def file(make_bundle: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with two models, and everything that a file can hold."""
    folder = tmp_path_factory.mktemp("page")
    bundles = make_bundle(folder / "one", scale=1), make_bundle(folder / "other", seed=5, scale=1)
    everything = {"reference": "Moon salt.", "include": list(EVERYTHING)}
    return written(folder / "page.html", *(inspected(bundle, **everything) for bundle in bundles))


@pytest.fixture(scope="module")
def unlike(make_bundle: Callable[..., Path], tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with two models of other depths; the first writes letters that it spells by bytes."""
    folder = tmp_path_factory.mktemp("unlike")
    deep = make_bundle(
        folder / "deep", scale=1, num_decoder_layers=2, num_encoder_layers=2, positions="learned", max_positions=60
    )
    documents = inspected(deep, prefix=tokenizer.encode("räv")), inspected(make_bundle(folder / "flat", scale=1))
    return written(folder / "page.html", *documents)


@pytest.fixture(scope="module")
def served(
    make_running: Callable[..., Any], make_bundle: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The address of the page of a server for everybody."""
    return f"{make_running(make_bundle(tmp_path_factory.mktemp('served') / 'one', scale=1)).url}/inspect"


def text(page: Page, selector: str) -> str:
    return page.locator(selector).first.inner_text()


def look_inside(page: Page, sentence: str = "River stone bird.") -> None:
    page.fill("#text", sentence)
    page.click("button[type=submit]")
    page.wait_for_selector("#large-target-0")


def without(page: Page, attention: str, head: int) -> str:
    """What a view says of the translation without a head of the first layer."""
    page.click(f"#pruned-{attention}-0-{head}")
    name = {"encoder": "Without encoder", "decoder": "Without decoder"}[attention]
    expect(page.locator("#without h3")).to_have_text(f"{name} attention, layer 1, head {head + 1}")
    return text(page, "#without .quiet")


@pytest.mark.exhaustive
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_keeps_anybody_out(open_page: Callable[..., Page], file: str, scheme: str) -> None:
    page = open_page(file, color_scheme=scheme)
    for view in VIEWS:
        page.click(f"#tab-{view}")
        found = Axe().run(page).response["violations"]
        serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}]
        assert not serious, view


@pytest.mark.exhaustive
@pytest.mark.parametrize("view", [*VIEWS, "attention&picture=lines"])
def test_a_phone_is_wide_enough(open_page: Callable[..., Page], file: str, view: str) -> None:
    page = open_page(f"{file}#view={view}", viewport=PHONE)
    page.evaluate("document.querySelectorAll('main details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_the_current_tab_is_in_sight_on_a_phone(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=compare", viewport=PHONE)
    expect(page.locator("#tab-compare")).to_be_in_viewport(ratio=0.95)


def test_nothing_is_fetched(open_page: Callable[..., Page], browser: Browser, file: str) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file)
    page.wait_for_selector("main h1")
    page.close()
    assert {address.partition(":")[0] for address in asked} <= {"file", "data"}


def test_another_word_is_taken_and_taken_back(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(file)
    page.click("#large-target-1")
    assert page.get_attribute("#large-target-1", "aria-checked") == "true"
    page.locator(".choices button:enabled").first.click()
    assert text(page, "#variation .text")
    page.click("#take-back")
    assert page.locator("#variation").count() == 0


@pytest.mark.exhaustive
def test_heads_are_chosen_and_rows_and_columns_by_keyboard(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=attention&source=2&target=2")
    for name, word in (("encoder", "encoder"), ("decoder", "decoder"), ("encoder_decoder", "encoder–decoder")):
        page.check(f"#attention-{name}", force=True)
        assert text(page, ".picture h2").lower().startswith(word)
    page.click("#grid-0-2")
    assert text(page, ".picture h2").endswith("head 3")
    before = text(page, ".picture .readout")
    page.focus(".picture .cells")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert text(page, ".picture .readout") != before
    page.wait_for_url(re.compile("source=3.*target=3"))
    page.reload()  # the address is what is looked at
    assert text(page, ".picture h2").endswith("head 3")


def test_the_first_look_is_at_the_least_certain_piece(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(file)
    names = page.locator("[id^=large-target-]").evaluate_all("all => all.map(one => one.ariaLabel)")
    chosen = page.locator("[id^=large-target-][aria-checked=true]").evaluate("one => one.ariaLabel")
    shares = {name: float(re.sub("[^0-9.]", "", name.rsplit(", ", 1)[1])) for name in names if "</s>" not in name}
    assert shares[chosen] == min(shares.values())


def test_where_a_query_looks_is_seen_in_the_sentence(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=attention&attention=encoder_decoder")
    shares = page.locator("#stage .strip.source button").evaluate_all(
        "all => all.map(one => Number(one.style.getPropertyValue('--share')))"
    )
    assert sum(shares) == pytest.approx(1, abs=0.01)


@pytest.mark.exhaustive
def test_a_matrix_is_lines_and_a_table_too(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=attention")
    page.check("#picture-lines", force=True)
    page.focus(".ends.queries [aria-checked=true]")
    page.keyboard.press("End")
    assert text(page, ".picture .readout").startswith("“</s>”")
    assert page.locator(".picture svg").count() == 1
    page.check("#picture-matrix", force=True)
    page.check("#by-norm", force=True)
    page.check("#unit-word", force=True)
    page.locator(".picture details.behind summary").click()
    expect(page.locator(".picture details.behind tbody tr")).not_to_have_count(0)  # filled when it is open


@pytest.mark.exhaustive
def test_the_strongest_head_is_one_of_them(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=attention&unit=word")
    page.click("#weights-table summary")

    def cells() -> list[float]:
        expect(page.locator("#weights-table tbody tr")).not_to_have_count(0)
        return [float(one) for one in page.locator("#weights-table td").all_inner_texts()]

    of_heads = []
    for head in range(4):
        page.click(f"#grid-0-{head}")
        of_heads.append(cells())
    page.check("#pool-max", force=True)
    assert cells() == [max(of_each) for of_each in zip(*of_heads, strict=True)]


@pytest.mark.exhaustive
def test_every_head_is_computed_again(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=arithmetic")
    for attention in ("encoder", "decoder", "encoder_decoder"):
        page.check(f"#arithmetic-attention-{attention}", force=True)
        for head in range(4):
            page.select_option("#arithmetic-head", index=head)
            assert float(page.get_attribute("#verdict", "data-difference") or "nan") < 1e-4
    page.select_option("#query", index=1)
    page.select_option("#key", index=2)
    assert "Do not trust" not in text(page, "main")


def test_a_number_that_is_not_the_models_is_noticed(open_page: Callable[..., Page], file: str, tmp_path: Path) -> None:
    html = Path(file.removeprefix("file://")).read_text(encoding="utf-8")
    # The numbers of each head's first query, every one of them another.
    wrong = re.sub(
        r'("query":\{"dtype":"float32","shape":\[\d+,\d+\],"scale":1.0,"data":")[^"]{16}', r"\1zczMPs3MzD7NzMw+", html
    )
    assert wrong != html
    (tmp_path / "wrong.html").write_text(wrong, encoding="utf-8")
    page = open_page((tmp_path / "wrong.html").as_uri() + "#view=arithmetic")
    assert "Do not trust this head" in text(page, "#verdict")


def test_a_pair_of_dimensions_turns(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=positions")
    assert "dimensions 0 and 1" in text(page, "main")
    page.focus("main input[type=range]")
    page.keyboard.press("ArrowRight")
    assert "dimensions 2 and 3" in text(page, "main")


@pytest.mark.exhaustive
def test_only_sinusoids_are_alike_on_both_sides(open_page: Callable[..., Page], file: str, unlike: str) -> None:
    assert "on both sides alike" in text(open_page(f"{file}#view=positions"), "main")
    learned = text(open_page(f"{unlike}#view=positions"), "main")
    assert "were learned" in learned
    assert "on both sides alike" not in learned


def test_the_tree_is_walked(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=beam")
    assert "Beam 3" in text(page, "main")
    ranks = page.locator(".ranking button")
    assert ranks.count() >= 2
    first = text(page, "main section .text")
    ranks.nth(1).click()
    assert text(page, "main section .text") != first
    with_dropped = page.locator("main svg g").count()
    page.get_by_label("Dropped ones").uncheck()
    assert page.locator("main svg g").count() < with_dropped


@pytest.mark.exhaustive
def test_the_keyboard_enters_the_tree_wherever_it_is_cut(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=beam")
    entrance = page.locator(".node[tabindex='0']")
    page.locator(".node.pruned").last.dispatch_event("click")
    expect(page.locator(".node.pruned.chosen")).to_have_count(1)
    page.get_by_label("Dropped ones").uncheck()
    expect(entrance).to_have_count(1)
    entrance.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".node.chosen:focus")).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".node.chosen:focus")).to_have_count(1)
    page.locator(".ranking button").first.click()
    page.fill("#step", "1")
    expect(entrance).to_have_count(1)
    entrance.focus()
    page.keyboard.press("ArrowRight")  # to what is not drawn
    expect(page.locator(".node:focus")).to_have_count(1)


@pytest.mark.exhaustive
def test_the_search_is_played_from_its_first_step(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=beam", reduced_motion="no-preference")
    steps = page.locator(".tree .step-number")
    count = steps.count()
    assert count > 1
    played = "document.getElementById('play').click(), document.querySelectorAll('.tree .step-number').length"
    assert page.evaluate(played) == 1
    expect(steps).to_have_count(count)


def test_the_search_is_there_at_once_without_motion(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=beam", reduced_motion="reduce")
    steps = page.locator(".tree .step-number")
    count = steps.count()
    page.fill("#step", "1")
    expect(steps).to_have_count(1)
    page.click("#play")
    assert steps.count() == count


def test_another_tree_is_begun_at_its_best_translation(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=beam")
    page.locator(".ranking button").nth(1).click()
    page.select_option("#inspection", index=1)
    assert page.locator(".ranking button").first.get_attribute("aria-pressed") == "true"


@pytest.mark.exhaustive
def test_bytes_are_read_as_letters(open_page: Callable[..., Page], unlike: str) -> None:
    page = open_page(f"{unlike}#view=beam")
    for words in (text(page, "main section .text"), text(page, ".ranking .text")):
        assert words.startswith("räv")
        assert "<0x" not in words
    page.click("#tab-attention")
    page.check("#unit-word", force=True)
    assert text(page, ".row-labels span").startswith("räv")


def test_a_head_is_pruned(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=layers")
    assert page.locator("main table.lens tbody tr").count() == 1
    page.click("#pruned-encoder-0-1")
    assert "Without encoder" in text(page, "#without h3")
    assert "nats" in text(page, "#without")
    words = re.search("(less likely|likelier) by [0-9.]+ nats", text(page, "#without"))
    assert words is not None
    assert words[0] in (page.get_attribute("#pruned-encoder-0-1", "aria-label") or "")


@pytest.mark.exhaustive
def test_two_models_are_compared(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=compare")
    assert page.locator("main .matrix").count() >= 2
    assert page.locator("#figures tbody tr").count() >= 5
    page.select_option("#compare-document", index=1)
    assert "other" in text(page, "#masthead")


@pytest.mark.exhaustive
def test_another_head_is_not_taken_for_the_same(open_page: Callable[..., Page], unlike: str) -> None:
    page = open_page(f"{unlike}#view=compare&attention=encoder&layer=2&head=3")
    assert page.locator(".beside h3").all_inner_texts() == [
        "deep (en → de): encoder attention, layer 2, head 3", "flat (en → de): encoder attention, layer 1, head 3",
    ]  # fmt: skip
    assert "flat (en → de) has no encoder attention, layer 2, head 3" in text(page, "main")
    assert "The same head of both" not in text(page, "main")
    page.select_option("#compare-layer", index=0)
    assert "The same head of both" in text(page, "main")
    assert "has no encoder" not in text(page, "main")


@pytest.mark.exhaustive
def test_no_difference_of_other_heads_is_drawn(
    open_page: Callable[..., Page], make_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    """Both of these read and write the same pieces."""
    bundles = make_bundle(tmp_path / "deep", scale=1, num_encoder_layers=2), make_bundle(tmp_path / "flat", scale=1)
    documents = [inspected(bundle, prefix=[40, 41, 1]) for bundle in bundles]
    page = open_page(f"{written(tmp_path / 'page.html', *documents)}#view=compare&attention=encoder&layer=2&head=3")
    assert page.locator("#compare-difference").count() == 0
    page.select_option("#compare-layer", index=0)
    assert page.locator("#compare-difference").count() == 1


def test_colours_are_switched_and_stay(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(file, color_scheme="light")
    page.click("#theme")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@pytest.mark.exhaustive
def test_every_view_shows_the_lines_of_code(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(file)
    for view in VIEWS:
        page.click(f"#tab-{view}")
        page.evaluate("document.querySelector('main details.code').open = true")
        assert page.locator("main details[open] pre").first.inner_text().strip()


@pytest.mark.exhaustive
def test_switching_heads_takes_no_time(open_page: Callable[..., Page], file: str) -> None:
    page = open_page(f"{file}#view=attention")
    assert page.evaluate(SWITCHES) < 500  # 50 ms is the aim on an idle machine; tests share theirs


def test_a_server_gives_the_page_and_answers_it(open_page: Callable[..., Page], served: str) -> None:
    page = open_page(served)
    look_inside(page)
    page.locator(".choices button:enabled").first.click()
    page.wait_for_selector("#variation")
    page.click("#look-inside")
    page.wait_for_selector("#inspection")  # two can be chosen between now, however often the page was drawn
    assert page.locator("#inspection option").count() == 2
    page.click("#tab-layers")
    assert "nats" in text(page, "#without")
    page.click("#tab-arithmetic")
    page.wait_for_selector("#verdict")
    assert float(page.get_attribute("#verdict", "data-difference") or "nan") < 1e-4
    page.click("#tab-layers")
    page.click("#all-heads")
    page.wait_for_selector(".tile:not(.unknown)")
    page.click("#pruned-decoder-0-1")
    assert "nats" in text(page, "#without")


@pytest.mark.exhaustive
def test_a_head_alone_and_all_heads_in_turn_are_measured_alike(open_page: Callable[..., Page], served: str) -> None:
    page = open_page(served)
    look_inside(page)
    page.click("#tab-layers")
    alone = [without(page, "encoder", 1), without(page, "decoder", 2), without(page, "decoder", 3)]
    assert len(set(alone)) == 3
    page.click("#all-heads")
    expect(page.locator(".tile.unknown")).to_have_count(0)
    assert page.locator("#all-heads").count() == 0
    assert [without(page, "encoder", 1), without(page, "decoder", 2), without(page, "decoder", 3)] == alone


@pytest.mark.exhaustive
def test_what_is_drawn_again_is_not_asked_again(open_page: Callable[..., Page], served: str) -> None:
    page = open_page(served)
    look_inside(page)
    page.click("#tab-layers")
    page.wait_for_selector("#without")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("for (const id of ['pruned-decoder-0-1', 'theme', 'theme']) document.getElementById(id).click()")
    expect(page.locator("#without h3")).to_contain_text("Without decoder")
    assert len(asked) == 1
    page.evaluate("for (const id of ['all-heads', 'theme', 'theme']) document.getElementById(id).click()")
    assert page.locator("#all-heads").count() == 0  # there is no second time
    expect(page.locator(".tile.unknown")).to_have_count(0)
    assert len(asked) == 2
    page.evaluate("for (const id of ['tab-arithmetic', 'theme', 'theme']) document.getElementById(id).click()")
    page.wait_for_selector("#verdict")
    assert len(asked) == 3


@pytest.mark.exhaustive
def test_a_key_opens_all_models(
    open_page: Callable[..., Page],
    make_running: Callable[..., Any],
    make_bundle: Callable[..., Path],
    bundle: Path,
    tmp_path: Path,
) -> None:
    back = make_bundle(tmp_path / "back", source="de", target="en")
    page = open_page(make_running(bundle, back, keys=("a-key-of-sixteen-letters",)).url + "/inspect")
    page.fill("#api-key", "a-key-of-sixteen-letters")
    look_inside(page)
    pairs = page.locator("#languages option").all_inner_texts()
    assert sorted(pairs) == ["de → en", "en → de"]
    page.select_option("#languages", "de → en")
    page.click("button[type=submit]")
    expect(page.locator("h2.side.target")).to_have_text("target en")


@pytest.mark.exhaustive
def test_what_the_server_refuses_is_said(
    open_page: Callable[..., Page], make_running: Callable[..., Any], bundle: Path
) -> None:
    page = open_page(make_running(bundle, keys=("a-key-of-sixteen-letters",)).url + "/inspect")
    page.wait_for_selector("#api-key")
    page.fill("#api-key", "a-key-of-sixteen-letters")
    look_inside(page)
    assert page.locator("#languages").is_hidden()
