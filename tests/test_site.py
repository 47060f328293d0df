"""The built site in a real browser: axe-core, 390 px, both themes, search, no request to others; needs Chromium."""

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the extra docs is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium")
PAGES = ("", "tutorials/first_model/", "reference/calibration/", "explanation/faq/")
# What a stranger types, written down before the site was searched -> the page that answers.
QUESTIONS = {
    "empty batch": "explanation/faq/",
    "delta records": "tutorials/attack_risk/",
    "batch norm": "explanation/faq/",
    "scikit-learn": "tutorials/pipeline/",
    "correlated noise": "tutorials/accounting/",
    "random forest": "explanation/compare/",
    "low-order bits": "explanation/floating_point/",
    "replace_one": "explanation/threats/",
    "LoRA": "tutorials/lora/",
    "claimed": "explanation/standing/",
}

# Whether a page is among the first thirty results.
SHOWN = """answer => [...document.querySelectorAll(".md-search-result__link")].slice(0, 30)
    .some(link => link.href.startsWith(answer))"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that prints nothing."""

    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The site, built strictly, on a port of its own; TACIT_SITE names a site that is built already."""
    folder = os.environ.get("TACIT_SITE")
    if folder is None:
        folder = str(tmp_path_factory.mktemp("site"))
        build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
        subprocess.run(build, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_and_break_no_rule_of_axe_and_ask_no_other_host(address, browser, width, theme):
    axe = pytest.importorskip("axe_core_python.sync_playwright", reason="axe-core is not installed").Axe()
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for path in PAGES:
        page.goto(address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        found = axe.run(page)["violations"]
        assert not found, (path, [(each["id"], [node["html"] for node in each["nodes"][:2]]) for each in found])
    assert all(each.startswith((address, "data:", "blob:")) for each in asked)
    context.close()


def test_search_answers_the_questions_of_a_stranger(address, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    missed = []
    for words, answer in QUESTIONS.items():
        page.goto(address)
        page.keyboard.press("/")
        page.fill(".md-search__input", words)
        try:  # results of the first letters come before those of all
            page.wait_for_function(SHOWN, arg=address + answer, timeout=20_000)
        except playwright.TimeoutError:
            missed.append(words)
    assert not missed
