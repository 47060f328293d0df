"""The workbench and the card in a real browser: themes, 390 px, keyboard alone, axe-core; skipped without Chromium."""

import socket
import threading
import time

import pytest
import uvicorn

from tacit.workbench import application
from tests.browser import THEMES, WIDTHS, check_pages
from tests.workbench.conftest import TOKEN

PAGES = ("/", "/calculator", "/jobs", "/budgets", "/compare?run=first&run=second&run=third", "/runs/first/card.html")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(stored):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = uvicorn.Config(application(stored, token=TOKEN, port=port), port=port, log_level="error")
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def url(address, path):
    return f"{address}{path}{'&' if '?' in path else '?'}token={TOKEN}"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_and_break_no_rule_of_axe_and_ask_no_other_host(address, browser, width, theme):
    pages = [url(address, path) for path in PAGES]
    check_pages(browser, pages, (address,), width=width, theme=theme, bypass_csp=True)


def test_the_calculator_and_the_comparison_work_by_keyboard_alone(address, browser):
    page = browser.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(url(address, "/calculator"))
    before = page.inner_text("#answer dd")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "noise_multiplier":
            break
    with page.expect_response(lambda reply: "/calculator/answer" in reply.url):
        page.keyboard.type("2")
    page.wait_for_function("before => document.querySelector('#answer dd').innerText !== before", arg=before)
    page.goto(url(address, "/"))
    ticked = 0
    for _ in range(30):
        page.keyboard.press("Tab")
        kind = page.evaluate("document.activeElement.type || ''")
        if kind == "checkbox":
            page.keyboard.press("Space")
            ticked += 1
        elif kind == "submit" and ticked == 3:
            page.keyboard.press("Enter")
            break
    page.wait_for_selector("figure svg")
    assert page.locator("figure polyline").count() == 3
    assert not errors
    page.close()


def test_a_folded_part_of_the_card_opens_by_keyboard(address, browser):
    page = browser.new_page()
    page.goto(url(address, "/runs/first/card.html"))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == 1
    page.close()
