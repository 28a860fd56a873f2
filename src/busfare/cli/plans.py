"""`busfare plan`: how a kernel, a network's weights or a KV cache should be brought to the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from busfare.cli.answer import answer
from busfare.output import PATH, as_html, as_json

__all__ = ["plan_app"]

OTHERS = "Of data that lives on the host: `busfare plan offload --help` (weights), `busfare plan kv --help` (KV caches)."


class Plans(click.Group):
    """What names no command of the group asks for the strategies of a kernel."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        return self.commands["strategies"].make_context(info_name, args, parent, **extra)


@click.group("plan", cls=Plans)
def plan_app() -> None:
    """Strategies for a kernel; offloaded weights, KV caches."""


@plan_app.command("strategies", hidden=True, epilog=OTHERS)
@click.argument(
    "file", metavar="FILE.toml", type=PATH, required=False, help="Kernels to plan, one a [[kernel]] table."
)
@click.option("--h2d", metavar="SIZE", help="Copied to the GPU: 336MB.")
@click.option("--d2h", metavar="SIZE", help="Copied back: 504MB.")
@click.option("--kernel", metavar="TIME", help="The kernel, its data on the GPU: 12ms.")
@click.option(
    "--node",
    "--from",
    "node",
    metavar="NODE",
    help="The machine, with --from-trace where it was recorded: catalogue name, GPU, TOML file or link (pcie:4x16).",
)
@click.option("--to", metavar="NODE", multiple=True, help="Compare with another node; may be repeated.")
@click.option("--flops", metavar="N", help="Of the kernel: 12G.")
@click.option("--device-bytes", metavar="SIZE", help="What it reads and writes in GPU memory.")
@click.option("--accesses-in", metavar="N", help="How often it reads each input element.")
@click.option("--accesses-out", metavar="N", help="How often it writes each output element.")
@click.option("--access-bytes", metavar="SIZE", help="What neighbouring threads touch at once: 32B.")
@click.option("--streams", metavar="N", help="This many streams, not the best.")
@click.option("--levels", metavar="N", help="Into how many chunks the data can be cut.")
@click.option("--memory", metavar="KIND", help="The host buffers now: pinned or pageable.")
@click.option("--copies-in", metavar="N", help="Separate arrays copied in.")
@click.option("--copies-out", metavar="N", help="Separate arrays copied back.")
@click.option("--chunks", metavar="A,B,…", help="Shares of unequal chunks: 1,2,2,1.")
@click.option(
    "--kernel-at",
    metavar="N=TIME",
    multiple=True,
    help="All kernels together when cut into N; may be repeated.",
)
@click.option("--queues", metavar="N", help="Hardware queues; one a stream otherwise.")
@click.option("--concurrent-kernels", metavar="N", help="Kernels that run side by side without slowing down.")
@click.option("--launch", metavar="TIME", help="The host's time for each call: 4us.")
@click.option("--from-trace", metavar="TRACE", type=PATH, help="Take bytes and times from a trace.")
@click.option("--kernel-name", metavar="REGEX", help="Which kernels of the trace.")
@click.option("--sweep", "vary", metavar="WHAT", help="Vary link, streams, bytes or kernel.")
@as_json
@as_html
def strategies(json: bool, html: Path | None, **asked: Any) -> None:
    """Which overlap strategy is fastest for a kernel, and with how many streams."""
    from busfare.report.plan_documents import plan_document
    from busfare.report.plans import answer_plan

    result = answer_plan(asked)
    answer(result, lambda: plan_document(result), json, html)


@plan_app.command("offload")
@click.option(
    "--node", metavar="NODE", help="The machine: catalogue name, GPU, TOML file or link (pcie:4x16)."
)
@click.option("--model", metavar="SHAPE", help="A network by name, or its config.json: says the next three.")
@click.option("--layers", metavar="N", help="Layers of the network.")
@click.option(
    "--bytes-per-layer", metavar="SIZE", help="Weights of a layer: 436MB; or one size a layer, a,b,…."
)
@click.option(
    "--seconds-per-layer",
    metavar="TIME",
    help="A layer on the GPU, its weights there: 1.2ms; by tokens, 1=0.2ms,2048=4ms; or one time a layer.",
)
@click.option(
    "--tokens", metavar="N", help="Tokens that a pass works on: 1 in decoding, the prompt's in prefill."
)
@click.option("--resident", metavar="R", help="So many layers stay on the GPU; else as many as fit.")
@click.option("--depth", metavar="D", help="Layers brought ahead, each into a buffer of its own; 0: none.")
@click.option("--memory", metavar="KIND", help="Host memory: pinned, pageable, mapped or managed.")
@click.option("--budget", metavar="SIZE", help="GPU memory for layers and buffers: 24GB; else all there is.")
@click.option(
    "--back-bytes-per-layer", metavar="SIZE", help="Copied out behind each layer: gradients, weights."
)
@click.option("--cpu-seconds-per-layer", metavar="TIME", help="A layer on the processor; by tokens as above.")
@click.option("--gpus", metavar="N", help="So many GPUs of the node stream at once.")
@click.option("--type", metavar="TYPE", help="With --model: of its weights; fp16 (else), fp8, int4, q4_0, …")
@click.option("--context", metavar="N", help="With --model: tokens in each sequence's cache before the pass.")
@click.option(
    "--batch", metavar="N", help="With --model: sequences of a pass; in decoding as many as tokens."
)
@click.option("--only-experts", is_flag=True, help="With --model: of a mixture, only experts are brought.")
@click.option("--cached-experts", metavar="N", help="Of each layer, on the GPU already.")
@click.option(
    "--hit-rate", metavar="SHARE", help="How often an expert is there: 0.9; else as many as are cached."
)
@click.option(
    "--cpu-bandwidth", metavar="SIZE", help="With --model: what the processor reads in a second: 80GB."
)
@click.option("--cpu-flops", metavar="N", help="With --model: its operations a second: 1.5T.")
@click.option(
    "--from-trace", metavar="TRACE", type=PATH, help="The layers of a recorded run that streams them."
)
@as_json
@as_html
def offload(json: bool, html: Path | None, **asked: Any) -> None:
    """Layers whose weights live on the host: how many should stay, how deep to prefetch, from which memory."""
    from busfare.report.offload import answer_offload
    from busfare.report.plan_documents import offload_document

    result = answer_offload(asked)
    answer(result, lambda: offload_document(result), json, html)


@plan_app.command("kv")
@click.option(
    "--node", metavar="NODE", help="The machine: catalogue name, GPU, TOML file or link (pcie:4x16)."
)
@click.option("--model", metavar="SHAPE", help="A network by name, or its config.json.")
@click.option("--type", metavar="TYPE", help="With --model: of its numbers; fp16, fp8, …")
@click.option("--bytes-per-token", metavar="SIZE", help="Of the cache, all layers: 128KiB.")
@click.option(
    "--tokens", metavar="N", default="8192", show_default=True, help="Of the prompt that is fetched."
)
@click.option("--block-tokens", metavar="N", default="16", show_default=True, help="Tokens of one block.")
@click.option("--pieces", metavar="N", help="Pieces that a block lies in: 1, or with --model 2 · layers.")
@click.option("--layout", metavar="NAME", help="Of which the break-even is, not of the fastest.")
@click.option("--evict", metavar="N", help="Tokens that are written back meanwhile.")
@click.option(
    "--prefill-seconds", metavar="N=TIME,…", help="Computing a prompt of N tokens: 1024=80ms,8192=700ms."
)
@click.option("--launch", metavar="TIME", help="The host's time for each copy: 10us from Python.")
@click.option("--batch-launch", metavar="TIME", help="The host's time for each piece of a batch.")
@click.option("--memcpy", metavar="SIZE", help="What one core packs in a second: 9.4GB.")
@as_json
@as_html
def kv(json: bool, html: Path | None, **asked: Any) -> None:
    """KV caches on the host: fetch or compute again, and in which blocks and layout."""
    from busfare.report.kv import answer_kv
    from busfare.report.plan_documents import kv_document

    result = answer_kv(asked)
    answer(result, lambda: kv_document(result), json, html)
