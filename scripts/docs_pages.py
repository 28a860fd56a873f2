"""Pages of the site that are made when it is built, as a hook of mkdocs: none of them can be out of date.

The command line comes from its own help, nodes from the catalogue, and READMEs and the changelog from beside the code.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from busfare.advise.amounts import rate
from busfare.cli import app
from busfare.cli.about import every_command
from busfare.cli.options.planning import WithDefault
from busfare.show.nodes import catalogue

ROOT = Path(__file__).parents[1]
#: Texts beside the code, and the page that each becomes.
PAGES = {
    "results/README.md": "lab/results.md",
    "hybrid/README.md": "reference/hybrid.md",
    "CHANGELOG.md": "reference/changelog.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made here."""
    made = {"reference/commands.md": commands(), "reference/nodes.md": nodes()}
    for source, page in PAGES.items():
        made[page] = (ROOT / source).read_text("utf-8").replace("](docs/", "](../")
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links of pages in docs/ to texts beside it lead to the pages that these become."""
    for source, made in PAGES.items():
        markdown = markdown.replace(f"](../{source}", f"]({made}")
        markdown = markdown.replace(f"](../../{source}", f"](../{made}")
    return markdown


def commands() -> str:
    """Every command with its arguments and options, as `--help` has them."""
    parts = [
        "# Command line",
        "This page is made from the help of the commands: `busfare COMMAND --help` says the same.",
        "Every command exits with 0 when it is done, 1 when a limit of `--fail-if` was passed, 2 when an input cannot be "
        "used, and 3 when there is no GPU and one is needed. `--json` writes one object to standard output "
        "([its keys](../json.md)).",
    ]
    for context in map(_as_called, every_command(app)):
        parts += [
            f"## {context.command_path}",
            _plain(context.command.help or ""),
            f"```text\n{_usage(context)}\n```",
        ]
        rows = [row for p in context.command.get_params(context) if (row := _row(p, context))]
        parts.append("\n".join(["| argument or option | what it is |", "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def _as_called(context: click.Context) -> click.Context:
    """The context of what runs without the name of a further command: of a group that has its help there, its default."""
    if (group := context.command).params or not isinstance(group, WithDefault):
        return context
    return click.Context(next(iter(group.commands.values())), context.parent, context.info_name)


def _usage(context: click.Context) -> str:
    """'busfare report [OPTIONS] TRACE...'."""
    return " ".join([context.command_path, *context.command.collect_usage_pieces(context)])


def _row(parameter: click.Parameter, context: click.Context) -> str | None:
    """An argument or option as a row of a table, with its default where its help shows one."""
    if isinstance(parameter, click.Argument):
        name, help = parameter.make_metavar(context), getattr(parameter, "help", "") or ""
    else:
        record = parameter.get_help_record(context)
        if record is None or {"--help", "--help-all"} & {*parameter.opts}:
            return None
        name, help = record
    return f"| `{name.replace('|', chr(92) + '|')}` | {_plain(help)} |"


def _plain(text: str) -> str:
    """A text of click's as one line that Markdown takes as it stands, but for what is in backticks."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()).replace("|", "\\|"))
    return "".join(part if part.startswith("`") else re.sub(r"([<>*_\[\]])", r"\\\1", part) for part in parts)


def nodes() -> str:
    """The catalogue: each machine with its GPUs, and the rates of large copies that are predicted for it."""
    nodes = catalogue()
    rows = [
        f"| `{node.name}` | {_plain(node.title)} | {node.gpus} | {_plain(node.host_link or '–')} | "
        f"{rate(node.h2d_bytes_per_second)} | {rate(node.d2h_bytes_per_second)} |"
        for node in nodes.nodes
    ]
    return "\n".join(
        [
            "# Nodes and GPUs",
            "",
            "The machines that ship with busfare, as `busfare nodes` lists them. Rates are predicted, of large pinned "
            "copies. "
            f"{nodes.gpus_by_name} more GPUs are known by name: `busfare nodes 3060` finds them, and "
            "[Node files](../nodes.md) says how to describe a machine of your own.",
            "",
            "| node | machine | GPUs | link to the host | into the GPU | out of it |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )
