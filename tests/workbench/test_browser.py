"""The workbench and the card in a real browser: themes, 390 px, keyboard alone, axe-core; skipped without Chromium."""

import shutil
import socket
import threading
import time

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

import uvicorn  # noqa: E402

from tacit.workbench import application  # noqa: E402
from tests.workbench.conftest import TOKEN  # noqa: E402

CHROMIUM = shutil.which("chromium")
PAGES = ("/", "/calculator", "/jobs", "/budgets", "/compare?run=first&run=second&run=third", "/runs/first/card.html")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


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


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


def url(address, path):
    return f"{address}{path}{'&' if '?' in path else '?'}token={TOKEN}"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_and_break_no_rule_of_axe_and_ask_no_other_host(address, browser, width, theme):
    axe = pytest.importorskip("axe_core_python.sync_playwright", reason="axe-core is not installed").Axe()
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, bypass_csp=True)
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for path in PAGES:
        page.goto(url(address, path))
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        found = axe.run(page)["violations"]
        assert not found, (path, [(each["id"], [node["html"] for node in each["nodes"][:2]]) for each in found])
    assert all(each.startswith(address) for each in asked)
    context.close()


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
