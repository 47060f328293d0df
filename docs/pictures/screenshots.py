"""Screenshots of card, audit and workbench: three widths, light and dark, one small picture for each page.

    python docs/pictures/screenshots.py RUNS

RUNS holds finished runs of two classes, one of them audited (`tacit audit`). Needs Chromium, playwright and pillow.
"""

import argparse
import io
import shutil
import socket
import threading
import time
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import sync_playwright

from tacit.workbench import application

HERE = Path(__file__).parent / "screens"
WIDTHS, THEMES = (390, 820, 1280), ("light", "dark")
GAP, SCALE = 16, 0.42  # pixels between pages, size in the picture
TOKEN = "token-of-the-screenshots"


def served(root):
    """The address of a workbench on `root`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(application(root, token=TOKEN, port=port), port=port, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return f"http://127.0.0.1:{port}"


def shots(browser, address, tall, part):
    """A page, or the part of it that a selector names, in every width and theme."""
    for theme in THEMES:
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": tall}, color_scheme=theme)
            page.goto(address)
            shown = page.locator(part) if part else page
            if part:
                shown.evaluate("part => { part.open = true }")
            yield Image.open(io.BytesIO(shown.screenshot()))
            page.close()


def sheet(pictures):
    """The pictures side by side, three in a row, small, in few colours."""
    small = [each.convert("RGB").resize((round(each.width * SCALE), round(each.height * SCALE))) for each in pictures]
    width = sum(each.width + GAP for each in small[:3]) - GAP
    tallest = max(each.height for each in small)
    rows = len(small) // 3
    made = Image.new("RGB", (width, rows * (tallest + GAP) - GAP), "white")
    for row in range(rows):
        across = 0
        for each in small[3 * row : 3 * row + 3]:
            made.paste(each, (across, row * (tallest + GAP)))
            across += each.width + GAP
    return made.quantize(256, method=Image.Quantize.FASTOCTREE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    root = parser.parse_args().runs
    names = sorted(path.parent.name for path in root.glob("*/card.json"))
    audited = next(name for name in names if (root / name / "audit.html").exists())
    compared = "&".join(f"run={name}" for name in names[:3])
    pages = {
        "card": (f"/runs/{audited}/card.html?", 1500, ""),
        "calibration": (f"/runs/{audited}/card.html?", 1500, "details:has(> summary h2:text-is('Calibration'))"),
        "audit": (f"/runs/{audited}/audit.html?", 1500, ""),
        "workbench": ("/?", 1250, ""),
        "calculator": ("/calculator?", 1500, ""),
        "compare": (f"/compare?{compared}&", 1250, ""),
    }
    HERE.mkdir(exist_ok=True)
    address = served(root)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (path, tall, part) in pages.items():
            sheet(list(shots(browser, f"{address}{path}token={TOKEN}", tall, part))).save(
                HERE / f"{name}.png", optimize=True
            )
            print(HERE / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
