"""The site builds, and fails for a broken link; README is short; what messages and READMEs point to is there."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from busfare.cli import COMMANDS
from tests.chromium import shown
from tests.docs.examples import ROOT
from validation.__main__ import SCRIPTS

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


def test_scripts_of_the_accuracy_page_are_those_that_recompute_it() -> None:
    table = (ROOT / "docs" / "accuracy.md").read_text("utf-8").partition("| NAME |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", row.rpartition(" | ")[2]) for row in table.splitlines()[2:]]
    assert len(rows) > 15 and all(rows)
    assert {script for row in rows for script in row} - set(SCRIPTS) == set()


def test_ranges_of_the_models_page_are_those_of_the_table() -> None:
    table = tomllib.loads((ROOT / "src/busfare/cost/ranges.toml").read_text("utf-8"))["range"]
    ranges = {
        "/".join([row[key] for key in ("what", "model", "figures", "size") if key in row]): row
        for row in table
    }
    text = (ROOT / "docs" / "models.md").read_text("utf-8")
    stated_ranges = re.findall(r"\| ([\d.]+–[\d.]+) \| `([\w/-]+)` \|$", text, re.M)
    assert len(stated_ranges) > 15
    assert [
        (key, stated)
        for stated, key in stated_ranges
        if stated != f"{ranges[key]['low']:.2f}–{ranges[key]['high']:.2f}"
    ] == []


@pytest.mark.browser
def test_the_search_works_from_a_folder_and_nothing_is_fetched(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    pages = [page.read_text("utf-8") for page in site.rglob("*.html")]
    assert [re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?:[^"]+"', page) for page in pages] == [
        []
    ] * len(pages)
    document, console = shown(f"{(site / 'index.html').as_uri()}?q=pinned", tmp_path)
    assert not console
    assert document.count('<li class="md-search-result__item"') > 5
