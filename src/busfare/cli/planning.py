"""Commands that ask about nodes and plans, with no trace or little of one: price, plan, nodes."""

from __future__ import annotations

import textwrap
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from busfare import questions
from busfare.cli.options import PATH, answer, as_html, as_json, option
from busfare.errors import InputError
from busfare.printable import print_json

__all__ = ["nodes_app", "plan_app", "price"]


OTHERS = "Of data that lives on the host: `busfare plan offload --help` (weights), `busfare plan kv --help` (KV caches)."


class Plans(click.Group):
    """What names no command of the group asks for the strategies of a kernel."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        completed = extra.get("resilient_parsing") and not args  # a shell asks how it goes on
        if completed or (args and args[0] in self.commands):
            return super().make_context(info_name, args, parent, **extra)
        if args and not Path(args[0]).exists() and (near := get_close_matches(args[0], self.commands, 1)):
            raise click.UsageError(
                f"{args[0]!r}: no command and no plan file; did you mean `busfare plan {near[0]}`?"
            )
        return self.commands["strategies"].make_context(info_name, args, parent, **extra)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Its commands, and the options of strategies."""
        strategies = self.commands["strategies"].shell_complete(ctx, incomplete)
        return [*super().shell_complete(ctx, incomplete), *strategies]


@click.group("plan", cls=Plans)
def plan_app() -> None:
    """Strategies for a kernel; offloaded weights, KV caches."""


@plan_app.command("strategies", hidden=True, epilog=OTHERS)
@click.argument(
    "file", metavar="FILE.toml", type=PATH, required=False, help="Kernels to plan, one a [[kernel]] table."
)
@option("--h2d SIZE", "Copied to the GPU: 336MB.")
@option("--d2h SIZE", "Copied back: 504MB.")
@option("--kernel TIME", "The kernel, its data on the GPU: 12ms.")
@option(
    "--node --from node NODE",
    "The machine, with --from-trace where it was recorded: catalogue name, GPU, TOML file or link (pcie:4x16).",
)
@option("--to NODE", "Compare with another node; may be repeated.", multiple=True)
@option("--flops N", "Of the kernel: 12G.")
@option("--device-bytes SIZE", "What it reads and writes in GPU memory.")
@option("--accesses-in N", "How often it reads each input element.")
@option("--accesses-out N", "How often it writes each output element.")
@option("--access-bytes SIZE", "What neighbouring threads touch at once: 32B.")
@option("--streams N", "This many streams, not the best.")
@option("--levels N", "Into how many chunks the data can be cut.")
@option("--memory KIND", "The host buffers now: pinned or pageable.")
@option("--copies-in N", "Separate arrays copied in.")
@option("--copies-out N", "Separate arrays copied back.")
@option("--chunks A,B,…", "Shares of unequal chunks: 1,2,2,1.")
@option("--kernel-at N=TIME", "All kernels together when cut into N; may be repeated.", multiple=True)
@option("--queues N", "Hardware queues; one a stream otherwise.")
@option("--concurrent-kernels N", "Kernels that run side by side without slowing down.")
@option("--launch TIME", "The host's time for each call: 4us.")
@option("--from-trace TRACE", "Take bytes and times from a trace.", type=PATH)
@option("--kernel-name REGEX", "Which kernels of the trace.")
@option("--sweep WHAT", "Vary link, streams, bytes or kernel.")
@as_json
@as_html
def strategies(json: bool, html: Path | None, **asked: Any) -> None:
    """Which overlap strategy is fastest for a kernel, and with how many streams."""
    from busfare.answers.plan import answer_plan
    from busfare.show.plans import plan_document

    result = answer_plan(questions.Plan.of(**asked))
    answer(result, lambda: plan_document(result), json, html)


@plan_app.command("offload")
@option("--node NODE", "The machine: catalogue name, GPU, TOML file or link (pcie:4x16).")
@option("--model SHAPE", "A network by name, or its config.json: says the next three.")
@option("--layers N", "Layers of the network.")
@option("--bytes-per-layer SIZE", "Weights of a layer: 436MB; or one size a layer, a,b,….")
@option(
    "--seconds-per-layer TIME",
    "A layer on the GPU, its weights there: 1.2ms; by tokens, 1=0.2ms,2048=4ms; or one time a layer.",
)
@option("--tokens N", "Tokens that a pass works on: 1 in decoding, the prompt's in prefill.")
@option("--resident R", "So many layers stay on the GPU; else as many as fit.")
@option("--depth D", "Layers brought ahead, each into a buffer of its own; 0: none.")
@option("--memory KIND", "Host memory: pinned, pageable, mapped or managed.")
@option("--budget SIZE", "GPU memory for layers and buffers: 24GB; else all there is.")
@option("--back-bytes-per-layer SIZE", "Copied out behind each layer: gradients, weights.")
@option("--cpu-seconds-per-layer TIME", "A layer on the processor; by tokens as above.")
@option("--gpus N", "So many GPUs of the node stream at once.")
@option("--type TYPE", "With --model: the type of its weights; fp16 (else), fp8, int4, q4_0, …")
@option("--context N", "With --model: tokens in each sequence's cache before the pass.")
@option("--batch N", "With --model: sequences of a pass; in decoding as many as tokens.")
@option("--only-experts", "With --model: of a mixture, only experts are brought.", is_flag=True)
@option("--cached-experts N", "Experts of each layer that are on the GPU already.")
@option(
    "--hit-rate SHARE", "Share of the needed experts that are on the GPU: 0.9; else by how many are cached."
)
@option("--cpu-bandwidth SIZE", "With --model: what the processor reads in a second: 80GB.")
@option("--cpu-flops N", "With --model: its operations a second: 1.5T.")
@option("--from-trace TRACE", "The layers of a recorded run that streams them.", type=PATH)
@as_json
@as_html
def offload(json: bool, html: Path | None, **asked: Any) -> None:
    """Layers whose weights live on the host: how many should stay, how deep to prefetch, from which memory."""
    from busfare.answers.offload import answer_offload
    from busfare.show.plans import offload_document

    result = answer_offload(questions.Offload.of(**asked))
    answer(result, lambda: offload_document(result), json, html)


@plan_app.command("kv")
@option("--node NODE", "The machine: catalogue name, GPU, TOML file or link (pcie:4x16).")
@option("--model SHAPE", "A network by name, or its config.json.")
@option("--type TYPE", "With --model: the type of its numbers; fp16, fp8, …")
@option("--bytes-per-token SIZE", "Of the cache, a token in all layers: 128KiB.")
@option("--tokens N", "How long the prompt is that is fetched.", default="8192", show_default=True)
@option("--block-tokens N", "Tokens of one block.", default="16", show_default=True)
@option("--pieces N", "Pieces that a block lies in: 1, or with --model 2 · layers.")
@option("--layout NAME", "The layout whose break-even is wanted; else the fastest one's.")
@option("--evict N", "Tokens that are written back meanwhile.")
@option("--prefill-seconds N=TIME,…", "Computing a prompt of N tokens: 1024=80ms,8192=700ms.")
@option("--launch TIME", "The host's time for each copy: 10us from Python.")
@option("--batch-launch TIME", "The host's time for each piece of a batch.")
@option("--memcpy SIZE", "What one core packs in a second: 9.4GB.")
@as_json
@as_html
def kv(json: bool, html: Path | None, **asked: Any) -> None:
    """KV caches on the host: fetch or compute again, and in which blocks and layout."""
    from busfare.answers.kv import answer_kv
    from busfare.show.plans import kv_document

    result = answer_kv(questions.KvCache.of(**asked))
    answer(result, lambda: kv_document(result), json, html)


@click.command()
@option("--node NODE", "Catalogue name, GPU, TOML file or link (pcie:4x16).", required=True)
@option("--bytes bytes N", "Of the copy: 4096, 64M, 64MiB, 1.5GB; of a kernel, what it moves.")
@option("--direction", "h2d, d2h, d2d or p2p; with --gpus h2d+d2h, too.", default="h2d")
@option("--memory", "Of the host: pageable, pinned (else), managed or mapped; device between GPUs.")
@option("--gpus N", "So many GPUs of the node copy at once, each so much.")
@option("--latency-from NODE", "Node whose measured L+o to take.")
@option("--kernel CLASS", "A kernel in place of a copy: gemm, elementwise, reduction, other …")
@option(
    "--collective KIND",
    "A collective in place of a copy: all_reduce, all_gather, broadcast, all_to_all, send_receive …",
)
@option("--ranks N", "Of the collective: how many GPUs, one a rank.")
@option("--hosts N", "How many such nodes, with the same number of ranks on each.", default="1")
@option("--nvls", "Reductions in the NVLink switch.", is_flag=True)
@option("--from recorded_on NODE", "Where the kernel took --seconds.")
@option("--seconds TIME", "What a launch took there: 1.2ms.")
@option("--type type TYPE", "fp64, fp32, tf32, fp16, bf16, fp8 or int8.", default="fp32")
@option("--flops N", "Operations of a launch: 12G.")
@option("--shape M,N,K", "Sides of a product of matrices.")
@option("--grid X,Y,Z", "Blocks of the launch.")
@option("--block X,Y,Z", "Threads of a block.")
@option("--registers N", "Registers a thread.")
@option("--shared-bytes SIZE", "Shared memory a block.")
@as_json
def price(json: bool, **asked: Any) -> None:
    """What one copy costs on a node, by every model that applies; or a collective; or a kernel recorded on another node."""
    from busfare.answers.price import answer_price
    from busfare.show.nodes import price_document

    result = answer_price(questions.Price.of(**asked))
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
        context.invoke(nodes_find, words=(), json=json)


@nodes_app.command("find", hidden=True)
@click.argument("words", metavar="WORD …", nargs=-1, required=True)
@as_json
@click.pass_context
def nodes_find(context: click.Context, words: tuple[str, ...], json: bool) -> None:
    """The nodes and GPUs that have every word in their name."""
    from busfare.show.nodes import catalogue, nodes_document, nodes_with

    result = nodes_with(" ".join(words)) if words else catalogue()
    shown = json or (context.parent is not None and context.parent.params["json"])
    answer(result, lambda: nodes_document(result), shown)


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
    """Whether a node file is right; if not, the key, the line and how to fix it."""
    from busfare.nodes import load_node

    if not file.is_file():
        found = "a folder" if file.is_dir() else "no such file"
        raise InputError(f"{file}: {found}; give the path of a node file")
    checked = load_node(str(file))
    print(
        f"{file}: {checked.name} is right: {len(checked.components)} components, {len(checked.links)} "
        f"links, {len(checked.gpus())} GPU{'s' * (len(checked.gpus()) != 1)}"
    )
