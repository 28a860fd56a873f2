"""The fenced examples of README and docs: what each holds, and whether it can be run here."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
#: A block, and the comment before it that says why it is not run.
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>.+?) -->\n)?^```(?P<language>.*)\n(?P<text>(?:.*\n)*?)^```$", re.M
)


@dataclass(frozen=True)
class Example:
    page: Path
    line: int
    language: str
    text: str
    why_not: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def steps(self) -> list[tuple[str, str | None]]:
        """Its commands, each with the output that is shown of it; None in a block that shows none."""
        if self.language == "sh":
            return [(line, None) for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]
        steps: list[tuple[str, str | None]] = []
        for part in re.split(r"^\$ ", self.text, flags=re.M)[1:]:
            command, _, output = part.replace("\\\n", " ").partition("\n")
            steps.append((command, output))
        return steps


def examples() -> list[Example]:
    return [example for page in PAGES for example in _of(page)]


def _of(page: Path) -> Iterator[Example]:
    text = page.read_text("utf-8")
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("language")) + 1
        yield Example(page, line, block["language"], block["text"], block["why"])


def matches(shown: str, printed: str) -> bool:
    """Whether `printed` is what is shown: a line of … stands for any lines, and … in a line for any text."""
    pattern = ""
    printed = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    for line in shown.rstrip().splitlines():
        any_text = ".*".join(map(re.escape, line.rstrip().split("…")))
        pattern += r"(?:.*\n)*?" if line.strip() == "…" else any_text + r"\n"
    return re.fullmatch(pattern, printed) is not None
