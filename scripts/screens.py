"""The picture of README and docs: a report as a terminal of 80 columns shows it. Usage: scripts/screens.py"""

from __future__ import annotations

import io
import re
from contextlib import chdir
from importlib import resources
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from busfare.node import load_node
from busfare.report.summary import summarise
from busfare.report.terminal import render
from busfare.report.trace_document import report_document
from busfare.trace import read

SCREENS = Path(__file__).parents[1] / "docs" / "screens"
EXAMPLE, NODE, WIDTH = "smooth-out-of-core-h100.json.gz", "h100-sxm", 80


def main() -> None:
    with resources.as_file(resources.files("busfare.examples")) as folder, chdir(folder):
        result = summarise(read(EXAMPLE), load_node(NODE))
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ busfare report {EXAMPLE}", style="green"))
    lines = list(render(report_document(result), WIDTH))
    first, advice = (
        next(i for i, (text, _) in enumerate(lines) if text.startswith(w))
        for w in ("Transfers by size", "What to do")
    )
    for text, style in [*lines[:first], ("…", "dim"), ("", ""), *lines[advice:]]:
        console.print(Text(text, style=style), no_wrap=True, crop=False)
    picture = console.export_svg(title="busfare", theme=DIMMED_MONOKAI, unique_id="busfare")
    # The viewer's own fonts: a picture fetches nothing.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    SCREENS.mkdir(exist_ok=True)
    (SCREENS / f"terminal-{WIDTH}.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
