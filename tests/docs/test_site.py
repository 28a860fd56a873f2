"""The site builds, and fails for a broken link; README is short; what messages and READMEs point to is there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from busfare.cli import COMMANDS
from tests.docs.examples import ROOT

TEXTS_OUTSIDE_THE_SITE = ("README.md", "CHANGELOG.md", "hybrid/README.md", "results/README.md")


def build(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Of one page with that text, by the rules of the project's own site."""
    (folder / "docs").mkdir()
    (folder / "docs" / "index.md").write_text(text, "utf-8")
    rules = (ROOT / "mkdocs.yml").read_text("utf-8")
    validation = rules[rules.index("validation:") : rules.index("nav:\n  - Home")]
    (folder / "mkdocs.yml").write_text(
        f"site_name: one page\nuse_directory_urls: false\n{validation}", "utf-8"
    )
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("# One\n\n[itself](#one)\n", 0),
        ("# One\n\n[another](nowhere.md)\n", 1),
        ("# One\n\n[a place](#nowhere)\n", 1),
        ("# One\n\n![a picture](nowhere.svg)\n", 1),
    ],
)
def test_a_broken_link_fails_the_build(text: str, status: int, tmp_path: Path) -> None:
    done = build(tmp_path, text)
    assert done.returncode == status, done.stderr


def test_the_reference_has_every_command_and_option() -> None:
    spec = importlib.util.spec_from_file_location("docs_pages", ROOT / "scripts" / "docs_pages.py")
    assert spec and spec.loader
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    reference = pages.commands()
    assert [name for name in COMMANDS if f"## busfare {name}\n" not in reference] == []
    for option in ("--fail-if LIMIT", "--from-trace TRACE", "--virtual NODE", "--json"):
        assert f"`{option}" in reference
    assert "| `h100-sxm` |" in pages.nodes()


@pytest.mark.parametrize(("name", "most"), [("README.md", 90), ("CHANGELOG.md", 60)])
def test_the_readme_and_the_changelog_are_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text("utf-8").splitlines()) <= most


@pytest.mark.parametrize("name", TEXTS_OUTSIDE_THE_SITE)
def test_links_of_texts_outside_the_site_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert [link for link in links if not ((ROOT / name).parent / link).exists()] == []


def test_pages_that_messages_name_are_there() -> None:
    named = {
        match
        for path in (ROOT / "src").rglob("*.py")
        for match in re.findall(r"\b(?:docs|hybrid)/[\w/-]+\.md", path.read_text("utf-8"))
    }
    assert len(named) > 8
    assert [page for page in sorted(named) if not (ROOT / page).is_file()] == []


def test_claims_of_the_accuracy_page_name_scripts_that_exist() -> None:
    table = (ROOT / "docs" / "accuracy.md").read_text("utf-8").partition("| claim |")[2]
    scripts = re.findall(r"\| `([\w/.]+)` \|$", table, re.M)
    assert len(scripts) == 22
    there = [ROOT / script if "/" in script else ROOT / "validation" / f"{script}.py" for script in scripts]
    assert [path for path in there if not path.is_file()] == []
