"""The built documentation: links, console and accessibility.

    UNDAMPED_SITE=site pytest tests/repository/test_site.py

after `mkdocs build --strict --site-dir site`; without the variable these tests are skipped.
"""

import os
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SITE = os.environ.get("UNDAMPED_SITE", "")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not SITE, reason="UNDAMPED_SITE does not name a built site"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PAGES = (
    "",
    "examples/course/4-oscillators/",
    "choose/",
    "gallery/",
    "faq/",
    "models/",
    "models/unicornn/",
    "results/",
    "compare/",
)


class Page(HTMLParser):
    """The links, the anchors and the sources of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        self.links += [attributes[key] for key in ("href", "src") if attributes.get(key)]


@pytest.fixture(scope="module")
def pages():
    root = Path(SITE).resolve()
    return root, {path: Page(path) for path in root.rglob("*.html") if path.name != "404.html"}


def test_every_link_and_anchor_exists(pages):
    root, parsed = pages
    broken = []
    for path, page in parsed.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("data:"):
                continue
            base = root if parts.path.startswith("/") else path.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file():
                broken.append(f"{path.relative_to(root)}: {link}")
            elif target in parsed and anchor not in parsed[target].anchors:
                broken.append(f"{path.relative_to(root)}: {link} (anchor)")
    assert len(parsed) > 300
    assert not broken, broken[:20]


def test_pages_are_quiet_accessible_and_load_nothing_from_elsewhere(pages):
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    from pages_server import serving_folder

    with serving_folder(pages[0]) as address, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        problems = []
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": 390, "height": 844}, color_scheme=scheme
            )
            page = context.new_page()
            page.on("console", lambda m: m.type == "error" and problems.append(m.text))
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on(
                "request",
                lambda r: r.url.startswith((address, "data:")) or problems.append(r.url),
            )
            for name in PAGES:
                page.goto(f"{address}/{name}")
                page.wait_for_timeout(300)
                assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
                found = axe.run(page).response["violations"]
                problems.extend(
                    f"{name}: {v['id']}, {v['nodes'][0]['html'][:120]}"
                    for v in found
                    if v["impact"] in ("serious", "critical")
                )
            context.close()
            assert not problems, problems[:10]
        browser.close()
