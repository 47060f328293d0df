"""What is asked of every page that a browser shows: it fits, breaks no rule of axe-core, and asks no other host."""

import pytest

WIDTHS, THEMES = (390, 1280), ("light", "dark")


def check_pages(browser, addresses, own, *, width, theme, **options):
    """Open each address; `own` are the beginnings of what may be asked for, `options` of the context of the browser."""
    axe = pytest.importorskip("axe_core_python.sync_playwright", reason="axe-core is not installed").Axe()
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, **options)
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for address in addresses:
        page.goto(address)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        found = axe.run(page)["violations"]
        assert not found, (address, [(each["id"], [node["html"] for node in each["nodes"][:2]]) for each in found])
    assert all(each.startswith(own) for each in asked)
    context.close()
