"""The built site in a real browser: axe-core, 390 px, both themes, search, no request to others; needs Chromium."""

import functools
import http.server
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.browser import THEMES, WIDTHS, check_pages

pytest.importorskip("mkdocs", reason="the extra docs is not installed")

ROOT = Path(__file__).parents[1]
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
    "how much noise": "explanation/faq/",
    "BatchNorm": "explanation/faq/",
    "seed": "explanation/faq/",
    "Adam": "train/",
    "accuracy worse": "explanation/faq/",
    "which delta": "explanation/faq/",
    "multiple GPUs": "trainers/",
    "resume": "train/",
    "hyperparameter tuning": "tune/",
    "install": "#install",
}

# Whether a page is among the first five results: who looks for a minute does not look further.
SHOWN = """answer => [...document.querySelectorAll(".md-search-result__item")].slice(0, 5)
    .some(page => [...page.querySelectorAll("a")].some(
        link => link.href.replace(/\\?h=[^#]*/, "").startsWith(answer)))"""

# What can be used: elements that are on the page now; a label that only names a place is not one of them.
MARK = """() => { window.usable = [...document.querySelectorAll("a[href], button, input, summary, [tabindex]")].filter(
    each => each.tabIndex >= 0 && each.checkVisibility({visibilityProperty: true, opacityProperty: true})
        && !each.closest("[inert]") && each.getBoundingClientRect().width > 1); window.reached = new Set(); }"""
# The element that has the focus: on the page, in the window, with an outline, and nothing lies over it.
STOP = """() => { const stop = document.activeElement; if (!stop || stop === document.body) return null;
    window.reached.add(stop); const box = stop.getClientRects()[0] ?? {width: 0, height: 0};
    const x = box.left + Math.min(box.width / 2, 5), y = box.top + box.height / 2;
    const top = document.elementFromPoint(x, y);
    const seen = box.width > 1 && box.height > 1 && top !== null && (stop.contains(top) || top.contains(stop))
        && getComputedStyle(stop).outlineStyle !== "none";
    return {seen, html: stop.outerHTML.slice(0, 160)}; }"""
MISSED = "() => window.usable.filter(each => !window.reached.has(each)).map(each => each.outerHTML.slice(0, 160))"

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_and_break_no_rule_of_axe_and_ask_no_other_host(address, browser, width, theme):
    pages = [address + path for path in PAGES]
    check_pages(browser, pages, (address, "data:", "blob:"), width=width, theme=theme)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", PAGES[:3])
def test_whatever_can_be_used_is_reached_and_seen_by_keyboard(address, browser, path, width, theme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    page.goto(address + path)
    page.evaluate(MARK)
    stops = walked(page)
    assert len(stops) >= 10
    assert all(stop["seen"] for stop in stops), [stop["html"] for stop in stops if not stop["seen"]]
    missed = page.evaluate(MISSED)
    assert not missed
    page.close()


def walked(page):
    """Every stop of the Tab key from the top of the page to its end."""
    stops = []
    for _ in range(500):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        if stop is None:
            return stops
        for _ in range(20):  # what slides in takes a moment
            if stop["seen"]:
                break
            page.wait_for_timeout(50)
            stop = page.evaluate(STOP)
        stops.append(stop)
    raise AssertionError("the focus does not leave the page")


def test_the_drawer_of_small_screens_opens_leads_on_and_closes_by_keyboard(address, browser):
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(address)
    opener = "document.activeElement.getAttribute('aria-label') === 'Navigation'"
    focused = "document.activeElement.closest('.md-sidebar--primary') !== null"
    for _ in range(5):
        page.keyboard.press("Tab")
        if page.evaluate(opener):
            break
    page.keyboard.press("Enter")
    page.wait_for_function(focused)
    page.keyboard.press("Escape")
    page.wait_for_function(opener)
    page.keyboard.press("Space")
    page.wait_for_function(focused)
    for words, key in (("Tutorials", "Enter"), ("First private model", "Enter")):
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.innerText.trim()") == words:
                break
        page.keyboard.press(key)
        page.wait_for_timeout(400)  # the panel slides in
    page.wait_for_url("**/tutorials/first_model/")
    page.close()


def test_search_answers_the_questions_of_a_stranger(address, browser):
    from playwright.sync_api import TimeoutError as TimedOut

    page = browser.new_page(viewport={"width": 1280, "height": 900})
    missed = []
    for words, answer in QUESTIONS.items():
        page.goto(address)
        page.keyboard.press("/")
        page.fill(".md-search__input", words)
        try:  # results of the first letters come before those of all
            page.wait_for_function(SHOWN, arg=address + answer, timeout=20_000)
        except TimedOut:
            missed.append(words)
    assert not missed


def test_two_versions_stand_side_by_side_and_a_preview_has_its_picture(tmp_path):
    checkout = tmp_path / "checkout"
    for folder in ("docs", "src", "results", "benchmarks"):
        shutil.copytree(ROOT / folder, checkout / folder)
    shutil.copy(ROOT / "mkdocs.yml", checkout)
    home = "https://tacit.example/pages/"
    author = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    told = os.environ | author | {"TACIT_SITE_URL": home, "NO_MKDOCS_2_WARNING": "1"}

    def run(*command):
        return subprocess.run(command, cwd=checkout, env=told, check=True, capture_output=True, text=True).stdout

    mike = (sys.executable, "-c", "from mike.driver import main; main()")
    run("git", "init", "--quiet")
    run("git", "commit", "--quiet", "--allow-empty", "--message", "a release")
    for version in ("0.1", "0.2"):
        run(*mike, "deploy", "--update-aliases", version, "latest")
    run(*mike, "set-default", "latest")
    stored = {name: run("git", "show", f"gh-pages:{name}") for name in ("versions.json", "index.html")}
    assert [(each["version"], each["aliases"]) for each in json.loads(stored["versions.json"])] == [
        ("0.2", ["latest"]),
        ("0.1", []),
    ]
    assert "latest/" in stored["index.html"]
    for path in ("0.1/index.html", "0.2/tutorials/audit/index.html"):
        page = run("git", "show", f"gh-pages:{path}")
        assert '"provider": "mike"' in page
        (picture,) = re.findall(r'<meta property="og:image" content="(.*?)">', page)
        assert picture == f"{home}latest/pictures/preview.png"
        assert len(re.findall(r'<meta property="og:image:alt" content=".{30,}?">', page)) == 1
    shown = subprocess.run(
        ("git", "show", "gh-pages:0.2/pictures/preview.png"), cwd=checkout, check=True, capture_output=True
    ).stdout
    width, height = struct.unpack(">II", shown[16:24])
    assert shown.startswith(b"\x89PNG")
    assert width >= 1000
    assert 1.5 < width / height < 2.5
