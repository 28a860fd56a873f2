"""Commands that ask a node: price, plan, nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from busfare.errors import InputError
from busfare.output import AsJson, Html, print_json, say_page, write_file

__all__ = ["nodes_app", "plan", "price"]

nodes_app = typer.Typer(
    help="The catalogue of nodes; show one, or check a node file of your own.", rich_markup_mode=None
)


def price(
    node: Annotated[
        str,
        typer.Option(
            "--node", metavar="NODE", help="Catalogue name, TOML file, or a link such as pcie:4x16."
        ),
    ],
    bytes_: Annotated[
        str, typer.Option("--bytes", metavar="N", help="Size of the copy: 4096, 64KiB, 1.5GB.")
    ],
    direction: Annotated[str, typer.Option(help="h2d, d2h, d2d or p2p.")] = "h2d",
    memory: Annotated[str, typer.Option(help="pageable, pinned, managed, mapped or device.")] = "pinned",
    latency_from: Annotated[
        str | None, typer.Option("--latency-from", metavar="NODE", help="Node whose measured L+o to take.")
    ] = None,
    json: AsJson = False,
) -> None:
    """What one copy costs on a node, by every model that applies."""
    from busfare import cost
    from busfare.node import load_node
    from busfare.quantities import parse_bytes

    size = parse_bytes(bytes_)
    target = load_node(node)
    prices = cost.price(target, direction, memory, size, load_node(latency_from) if latency_from else None)
    result = {
        "schema": "busfare.price/1",
        "node": target.name,
        "direction": direction,
        "memory": memory,
        "bytes": size,
        "prices": prices,
    }
    if json:
        print_json(result)
    else:
        from busfare.report.terminal import show_prices

        show_prices(result)


def plan(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE.toml", help="Kernels to plan, one a [[kernel]] table.")
    ] = None,
    h2d: Annotated[str | None, typer.Option(metavar="SIZE", help="Copied to the GPU: 336MB.")] = None,
    d2h: Annotated[str | None, typer.Option(metavar="SIZE", help="Copied back: 504MB.")] = None,
    kernel: Annotated[
        str | None, typer.Option(metavar="TIME", help="The kernel, its data on the GPU: 12ms.")
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", metavar="NODE", help="Catalogue name, TOML file, or a link such as pcie:4x16."
        ),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="NODE", help="Compare with another node; may be repeated."),
    ] = None,
    flops: Annotated[str | None, typer.Option(metavar="N", help="Of the kernel: 12G.")] = None,
    device_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What it reads and writes in GPU memory.")
    ] = None,
    accesses_in: Annotated[
        str | None, typer.Option(metavar="N", help="How often it reads each input element.")
    ] = None,
    accesses_out: Annotated[
        str | None, typer.Option(metavar="N", help="How often it writes each output element.")
    ] = None,
    access_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What neighbouring threads touch at once: 32B.")
    ] = None,
    streams: Annotated[str | None, typer.Option(metavar="N", help="This many streams, not the best.")] = None,
    levels: Annotated[
        str | None, typer.Option(metavar="N", help="Into how many chunks the data can be cut.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="KIND", help="The host buffers now: pinned or pageable.")
    ] = None,
    copies_in: Annotated[str | None, typer.Option(metavar="N", help="Separate arrays copied in.")] = None,
    copies_out: Annotated[str | None, typer.Option(metavar="N", help="Separate arrays copied back.")] = None,
    chunks: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Shares of unequal chunks: 1,2,2,1.")
    ] = None,
    kernel_at: Annotated[
        list[str] | None,
        typer.Option(metavar="N=TIME", help="All kernels together when cut into N; may be repeated."),
    ] = None,
    queues: Annotated[
        str | None, typer.Option(metavar="N", help="Hardware queues; one a stream otherwise.")
    ] = None,
    concurrent_kernels: Annotated[
        str | None, typer.Option(metavar="N", help="Kernels that run side by side without slowing down.")
    ] = None,
    launch: Annotated[
        str | None, typer.Option(metavar="TIME", help="The host's time for each call: 4us.")
    ] = None,
    from_trace: Annotated[
        Path | None, typer.Option("--from-trace", metavar="TRACE", help="Take bytes and times from a trace.")
    ] = None,
    kernel_name: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Which kernels of the trace.")
    ] = None,
    vary: Annotated[
        str | None, typer.Option("--sweep", metavar="WHAT", help="Vary link, streams, bytes or kernel.")
    ] = None,
    json: AsJson = False,
    html: Html = None,
) -> None:
    """Which overlap strategy is fastest for a kernel, and with how many streams."""
    said = dict(locals())
    from busfare.report.plans import answer_plan, show_plan

    result = answer_plan(said)
    if html:
        from busfare.report.plan_page import plan_page

        write_file(html, plan_page(result))
    if json:
        print_json(result)
    else:
        show_plan(result)
    say_page(html)


@nodes_app.callback(invoke_without_command=True)
def nodes(context: typer.Context, json: AsJson = False) -> None:
    """The catalogue of nodes; show one, or check a node file of your own."""
    if context.invoked_subcommand:
        return
    from busfare.report.nodes import catalogue_result

    result = catalogue_result()
    if json:
        print_json(result)
    else:
        from busfare.report.terminal import show_nodes

        show_nodes(result)


@nodes_app.command("show")
def nodes_show(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Catalogue name, TOML file, or a link such as pcie:4x16.")
    ],
    json: AsJson = False,
) -> None:
    """One node, with a drawing of its graph."""
    from busfare.node import load_node
    from busfare.node.drawing import draw
    from busfare.report.nodes import node_result

    shown = load_node(node)
    if json:
        print_json({"schema": "busfare.nodes/1", **node_result(shown)})
    else:
        print(draw(shown))


@nodes_app.command("check")
def nodes_check(file: Annotated[Path, typer.Argument(metavar="FILE", help="A node file (TOML).")]) -> None:
    """Whether a node file is right; if not, the key, the line and the mend."""
    from busfare.node import load_node

    if not file.is_file():
        raise InputError(f"{file}: no such file; give the path of a node file")
    checked = load_node(str(file))
    print(
        f"{file}: {checked.name} is right: {len(checked.components)} components, {len(checked.links)} "
        f"links, {len(checked.gpus())} GPUs"
    )
