"""A real browser."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

expect.set_options(timeout=60_000)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens an address; behind the test, the console of the page must have said nothing."""
    said: list[str] = []
    pages: list[Page] = []

    def hear(message: ConsoleMessage) -> None:
        # Of each refusal, the browser says that by itself.
        is_refusal = re.search(r"status of (400|401|403|429|503) ", message.text)
        if message.type in {"error", "warning"} and not is_refusal:
            said.append(message.text)

    def open_page(address: str, **options: object) -> Page:
        page = browser.new_page(**options)
        page.set_default_timeout(60_000)
        page.on("console", hear)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address)
        page.wait_for_selector("main h1")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert not said
