"""Screenshots of each step from a file of 50,000 rows to card and statement, at three widths.

    PYTHONPATH=. python docs/pictures/table_steps.py FOLDER

FOLDER takes the file and the runs. Needs Chromium, playwright and pillow; the training takes a minute or two.
"""

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from screenshots import HERE, TOKEN, WIDTHS, served, sheet
from tests.unseen_table import CHANNELS, TARIFFS, write_unseen

TYPED = {
    "values:cancelled": "no\nyes",
    "low:born": "01.01.1940",
    "high:born": "2005-12-31",
    "low:income": "0",
    "high:income": "200000",
    "low:height": "1,2",
    "high:height": "2,2",
    "low:visits": "0",
    "high:visits": "40",
    "values:tariff": "\n".join(TARIFFS),
    "values:channel": "\n".join(CHANNELS),
    "low:since": "2010-01-01",
    "high:since": "2024-12-31",
    **{f"source:{name}": "tariff sheet" for name in ("tariff", "channel", "since", "visits", "cancelled")},
    **{f"source:{name}": "census" for name in ("born", "income", "height")},
}


def shot(page, tall):
    """The page at each width, at most `tall` pixels high."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": tall})
        page.wait_for_timeout(500)  # a frame in it follows
        yield Image.open(io.BytesIO(page.screenshot()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    file = write_unseen(folder / "churn.csv")
    address = served(folder / "runs")

    def keep(name, page, tall=900):
        sheet(list(shot(page, tall))).save(HERE / f"table_{name}.png", optimize=True)
        print(HERE / f"table_{name}.png", flush=True)

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(300_000)
        page.goto(f"{address}/tables?token={TOKEN}")
        keep("1_choose", page, 700)
        page.fill("[name=path]", str(file))
        page.get_by_role("button", name="Use this file").click()
        page.wait_for_selector("#table")
        keep("2_form", page)
        page.get_by_role("button", name="Check the answers").click()
        page.wait_for_selector("#faults")
        keep("3_faults", page)
        for name, typed in TYPED.items():
            page.fill(f"[name='{name}']", typed)
        page.wait_for_selector("#cost :text('it can be proven')")
        page.locator("#cost").scroll_into_view_if_needed()
        keep("4_answered", page)
        page.get_by_role("button", name="Start training").click()
        page.wait_for_selector("tr[data-job]")
        page.wait_for_selector('tr[data-job] progress:not([value="0"])')
        page.locator("#started").scroll_into_view_if_needed()
        keep("5_training", page, 600)
        page.wait_for_selector('tr[data-status="finished"]')
        page.get_by_role("link", name="Card of").click()
        page.wait_for_selector("iframe")
        keep("6_card", page)
        with page.expect_download() as filed:
            page.get_by_role("link", name="Statement").click()
        print("statement:", filed.value.suggested_filename)
        browser.close()


if __name__ == "__main__":
    main()
