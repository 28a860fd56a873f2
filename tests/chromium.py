"""Pages as a user opens them, in headless Chromium."""

import json
import re
import shutil
from html import escape, unescape
from pathlib import Path
from typing import Any

from tests.processes import finished

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=10000",
]


def opened(text: str, folder: Path, *more: str) -> tuple[str, list[str]]:
    """The document of a page after its scripts have run, and what they wrote to the console."""
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    return shown(file.as_uri(), folder, *more)


def shown(address: str, folder: Path, *more: str) -> tuple[str, list[str]]:
    """The same of the page at an address."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "Chromium is missing; `make test-all` installs it"
    command = [chromium, *FLAGS, *more, f"--user-data-dir={folder / 'profile'}", "--dump-dom", address]
    done = finished(command)
    assert done.returncode == 0, done.stderr
    return done.stdout, re.findall(r"CONSOLE.*", done.stderr)


def sized(text: str, wide: int, high: int) -> str:
    """A page that shows another one in so many pixels: a window of Chromium is never narrower than 500."""
    frame = f'<iframe style="border: 0" width="{wide}" height="{high}" srcdoc="{escape(text)}"></iframe>'
    style = "margin: 0; text-align: center; background: #888"
    return f'<!doctype html><html lang="en"><body style="{style}">{frame}</body></html>'


def answered(
    text: str, folder: Path, script: str, *more: str, libraries: str = "", size: tuple[int, int] | None = None
) -> Any:
    """What `script`, the body of an asynchronous function, returns once a page is drawn, by way of JSON; in a window of
    `size` pixels.
    """
    injected = f"""<script>{libraries}</script><script>(async () => {{
        while (document.querySelector(".time-line") && !document.body.dataset.drawn)
            await new Promise((done) => setTimeout(done, 20));
        const answer = await (async () => {{ {script} }})();
        top.document.body.dataset.answer = JSON.stringify(answer);
    }})();</script></body>"""
    # The page's policy allows its own scripts alone.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace("</body>", injected)
    document, console = opened(sized(text, *size) if size else text, folder, *more)
    assert not console, console
    answer = re.search(r'data-answer="([^"]*)"', document)
    assert answer, "the script did not come to its end"
    return json.loads(unescape(answer[1]))
