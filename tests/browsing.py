"""Opens a page of ours in a real browser, headless."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)


def browse(path: Path) -> tuple[str, list[str]]:
    """The document after its scripts ran (without their text), and what the console said."""
    if not CHROMIUM:
        pytest.skip("NO BROWSER: the page was not opened; install chromium to test it")
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync "
        "--enable-logging=stderr --window-size=1400,1200 --virtual-time-budget=5000 --dump-dom"
    )
    profile = path.with_name("browser-profile")
    done = subprocess.run(
        [CHROMIUM, *flags.split(), f"--user-data-dir={profile}", path.as_uri()],
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL), console


def drive(path: Path, driver: str) -> tuple[str, dict]:
    """Runs a script on the page; the document and the marks that it left in `data-marks`.

    The page must show no fault of its own, and run nothing but its own scripts.
    """
    page = path.read_text(encoding="utf-8")
    nonce = re.search(r"script-src 'nonce-([^']+)'", page).group(1)
    driver = f'<script nonce="{nonce}">{driver}</script>'
    # Had hostile text come through unescaped, the policy would still stop it: so must it here.
    smuggled = "<script>document.documentElement.dataset.smuggled = 1</script>"
    path.write_text(page.replace("</body>", smuggled + driver + "</body>"), encoding="utf-8")
    dom, console = browse(path)

    opening = re.search(r"<html[^>]*>", dom).group(0)
    assert "data-hacked" not in opening and "data-smuggled" not in opening
    assert re.search(r'<div id="fault"[^>]*hidden', dom), "the page reports a fault of its own"
    (refusal,) = console  # of the smuggled script, and nothing else
    assert "Content Security Policy" in refusal
    assert "<img" not in dom.replace("&lt;img", "")

    class Root(HTMLParser):
        def handle_starttag(self, tag, attributes):
            self.marks = json.loads(dict(attributes)["data-marks"])

    root = Root()
    root.feed(opening)
    return dom, root.marks
