"""Commands that ask a node: price, nodes."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import click

from busfare.cli.answer import answer, option
from busfare.errors import InputError
from busfare.output import PATH, as_json, print_json


@click.command()
@option("--node NODE", "Catalogue name, GPU, TOML file or link (pcie:4x16).", required=True)
@option("--bytes bytes_ N", "Of the copy: 4096, 64M, 64MiB, 1.5GB; of a kernel, what it moves.")
@option("--direction", "h2d, d2h, d2d or p2p; with --gpus h2d+d2h, too.", default="h2d")
@option("--memory", "Of the host: pageable, pinned (else), managed or mapped; device between GPUs.")
@option("--gpus N", "So many GPUs of the node copy at once, each so much.", type=int)
@option("--latency-from NODE", "Node whose measured L+o to take.")
@option("--kernel CLASS", "A kernel in place of a copy: gemm, elementwise, reduction, other …")
@option(
    "--collective KIND",
    "A collective in place of a copy: all_reduce, all_gather, broadcast, all_to_all, send_receive …",
)
@option("--ranks N", "Of the collective: how many GPUs, one a rank.", type=int)
@option("--hosts N", "How many such nodes, with the same number of ranks on each.", type=int, default=1)
@option("--nvls", "Reductions in the NVLink switch.", is_flag=True)
@option("--from from_ NODE", "Where the kernel took --seconds.")
@option("--seconds TIME", "What a launch took there: 1.2ms.")
@option("--type number_type TYPE", "fp64, fp32, tf32, fp16, bf16, fp8 or int8.", default="fp32")
@option("--flops N", "Operations of a launch: 12G.")
@option("--shape M,N,K", "Sides of a product of matrices.")
@option("--grid X,Y,Z", "Blocks of the launch.")
@option("--block X,Y,Z", "Threads of a block.")
@option("--registers N", "Registers a thread.", type=int)
@option("--shared-bytes SIZE", "Shared memory a block.")
@as_json
def price(json: bool, **asked: Any) -> None:
    """What one copy costs on a node, by every model that applies; or a collective; or a kernel recorded on another node."""
    from busfare.show.nodes import answer_price, price_document

    result = answer_price(asked)
    answer(result, lambda: price_document(result), json)


class Nodes(click.Group):
    """A word that is no command is one to look for."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["find", *args])


@click.group("nodes", cls=Nodes, invoke_without_command=True, subcommand_metavar="[WORD … | COMMAND]")
@as_json
@click.pass_context
def nodes_app(context: click.Context, json: bool) -> None:
    """The catalogue of nodes, or the nodes and GPUs that have every WORD in their name; show one, or check a node file
    of your own.
    """
    if context.invoked_subcommand is None:
        from busfare.show.nodes import catalogue, nodes_document

        result = catalogue()
        answer(result, lambda: nodes_document(result), json)


@nodes_app.command("find", hidden=True)
@click.argument("words", metavar="WORD …", nargs=-1, required=True)
@as_json
@click.pass_context
def nodes_find(context: click.Context, words: tuple[str, ...], json: bool) -> None:
    """The nodes and GPUs that have every word in their name."""
    from busfare.show.nodes import nodes_document, nodes_with

    result = nodes_with(" ".join(words))
    asked = json or (context.parent is not None and context.parent.params["json"])
    answer(result, lambda: nodes_document(result), asked)


@nodes_app.command("show")
@click.argument("node", metavar="NODE", help="Catalogue name, GPU, TOML file, or a link such as pcie:4x16.")
@as_json
def nodes_show(node: str, json: bool) -> None:
    """One node, with a drawing of its graph."""
    from busfare.nodes import load_node
    from busfare.nodes.graph import WIDTH, draw
    from busfare.show.nodes import node_shown

    shown = load_node(node)
    if json:
        print_json(node_shown(shown))
        return
    print(draw(shown))
    if shown.description:
        print("", *textwrap.wrap(shown.description, WIDTH), sep="\n")


@nodes_app.command("check")
@click.argument("file", metavar="FILE", type=PATH, help="A node file (TOML).")
def nodes_check(file: Path) -> None:
    """Whether a node file is right; if not, the key, the line and how to mend it."""
    from busfare.nodes import load_node

    if not file.is_file():
        found = "a folder" if file.is_dir() else "no such file"
        raise InputError(f"{file}: {found}; give the path of a node file")
    checked = load_node(str(file))
    print(
        f"{file}: {checked.name} is right: {len(checked.components)} components, {len(checked.links)} "
        f"links, {len(checked.gpus())} GPU{'s' * (len(checked.gpus()) != 1)}"
    )
