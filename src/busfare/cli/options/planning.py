"""The options of commands about nodes and plans: price, plan, nodes."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from busfare.cli.options import OF_PART, PATH, SHOWN, Command, argument, as_json, option

SIBLINGS = (
    "For data on the host: `busfare plan offload --help` (weights), `busfare plan kv --help` (KV caches)."
)


class WithDefault(click.Group):
    """A group that passes arguments without a command name to its first command."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        completed = extra.get("resilient_parsing") and not args  # a shell asks for completions
        if completed or {*args[:1]} & {*self.commands, *(("-h", "--help") if self.params else ())}:
            return super().make_context(info_name, args, parent, **extra)
        near = get_close_matches(args[0], self.commands, 1) if args and self.name == "plan" else []
        if near and not Path(args[0]).exists():
            raise click.UsageError(
                f"{args[0]!r}: neither a command nor a plan file; did you mean `busfare plan {near[0]}`?"
            )
        return next(iter(self.commands.values())).make_context(info_name, args, parent, **extra)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Its commands, and the options of its first one."""
        options = next(iter(self.commands.values())).shell_complete(ctx, incomplete)
        return [*super().shell_complete(ctx, incomplete), *options]


strategies = Command(
    "strategies",
    "Find the fastest overlap strategy for a kernel, and its number of streams.",
    "planning.strategies",
    argument("file FILE.toml", "Kernels to plan, one [[kernel]] table each.", required=False),
    option("--h2d SIZE", "Bytes copied to the GPU: 336MB."),
    option("--d2h SIZE", "Bytes copied back: 504MB."),
    option("--h2d-shared SIZE", "Bytes of --h2d that every chunk needs: copied first."),
    option("--dependent-chunks", "Chunks need the data of their neighbours."),
    option("--kernel TIME", "Kernel time with its data on the GPU: 12ms."),
    option(
        "--node --from node NODE",
        "The machine (with --from-trace: where it was recorded): catalogue name, GPU, TOML file or link (pcie:4x16).",
    ),
    option("--to NODE", "Compare with another node; repeatable.", multiple=True),
    option("--flops N", "Operations of the kernel: 12G."),
    option("--type TYPE", "Number type of --flops: fp64, fp32 (default), tf32, fp16, bf16, fp8 or int8."),
    option("--device-bytes SIZE", "Bytes that the kernel reads and writes in GPU memory."),
    option("--accesses-in N", "How often the kernel reads each input element."),
    option("--accesses-out N", "How often the kernel writes each output element."),
    option("--access-bytes SIZE", "Bytes that neighbouring threads access together: 32B."),
    option("--streams N", "Use this many streams instead of the best number."),
    option("--levels N", "Maximum number of chunks."),
    option("--memory KIND", "Current host buffers: pinned or pageable."),
    option("--copies-in N", "Number of separate arrays copied in."),
    option("--copies-out N", "Number of separate arrays copied back."),
    option("--chunks A,B,…", "Shares of unequal chunks: 1,2,2,1."),
    option("--kernel-at N=TIME", "Total kernel time when cut into N chunks; repeatable.", multiple=True),
    option("--queues N", "Number of hardware queues. Default: one per stream."),
    option("--concurrent-kernels N", "Kernels that run concurrently at full speed."),
    option("--launch TIME", "CPU time per call: 4us."),
    option("--from-trace TRACE", "Take bytes and times from a trace.", type=PATH),
    option("--kernel-name REGEX", "Kernels of the trace."),
    option("--sweep WHAT", "Vary link, streams, bytes or kernel."),
    OF_PART,
    SHOWN,
    hidden=True,
    epilog=SIBLINGS,
)

offload = Command(
    "offload",
    "Plan layers with weights on the host: how many to keep on the GPU, prefetch depth, host memory.",
    "planning.offload",
    option("--node NODE", "The machine: catalogue name, GPU, TOML file or link (pcie:4x16)."),
    option("--model SHAPE", "A network by name, or its config.json; replaces the next three options."),
    option("--layers N", "Layers of the network."),
    option("--bytes-per-layer SIZE", "Weights of a layer: 436MB; or one size per layer: a,b,…."),
    option(
        "--seconds-per-layer TIME",
        "Time of a layer with its weights on the GPU: 1.2ms; by tokens: 1=0.2ms,2048=4ms; or one time per layer.",
    ),
    option("--tokens N", "Tokens per pass: 1 in decoding, the prompt length in prefill."),
    option("--resident R", "Number of layers that stay on the GPU. Default: as many as fit."),
    option("--depth D", "Layers to prefetch, each into its own buffer; 0: none."),
    option("--memory KIND", "Host memory: pinned, pageable, mapped or managed."),
    option("--budget SIZE", "GPU memory for layers and buffers: 24GB. Default: all."),
    option("--back-bytes-per-layer SIZE", "Bytes copied out after each layer: gradients, weights."),
    option("--cpu-seconds-per-layer TIME", "Time of a layer on the CPU; by tokens as above."),
    option("--gpus N", "Number of GPUs that stream at once."),
    option("--type TYPE", "With --model: weight type: fp16 (default), fp8, int4, q4_0, …"),
    option("--context N", "With --model: tokens in the cache of each sequence before the pass."),
    option("--batch N", "With --model: sequences per pass; in decoding, equal to --tokens."),
    option("--only-experts", "With --model: stream only the experts of a mixture.", is_flag=True),
    option(
        "--cached-experts N",
        "Experts per streamed layer that stay in GPU memory. Default: from --hit-rate, or 0.",
    ),
    option(
        "--hit-rate SHARE",
        "Share of needed experts that are in GPU memory: 0.9. Default: from --cached-experts.",
    ),
    option("--cpu-bandwidth SIZE", "With --model: CPU memory bandwidth per second: 80GB."),
    option("--cpu-flops N", "With --model: CPU operations per second: 1.5T."),
    option("--from-trace TRACE", "Take the layers from a recorded run that streams them.", type=PATH),
    OF_PART,
    SHOWN,
)

kv = Command(
    "kv",
    "Plan KV caches on the host: fetch or recompute, block size and layout.",
    "planning.kv",
    option("--node NODE", "The machine: catalogue name, GPU, TOML file or link (pcie:4x16)."),
    option("--model SHAPE", "A network by name, or its config.json."),
    option("--type TYPE", "With --model: element type: fp16, fp8, …"),
    option("--bytes-per-token SIZE", "Cache bytes per token, all layers: 128KiB."),
    option("--tokens N", "Length of the prompt to fetch.", default="8192", show_default=True),
    option("--block-tokens N", "Tokens per block.", default="16", show_default=True),
    option("--pieces N", "Pieces per block: 1, or 2 · layers with --model."),
    option("--layout NAME", "Layout for the break-even. Default: the fastest."),
    option("--tensor-parallel N", "With --model: GPUs that share each layer; times are of one GPU."),
    option("--evict N", "Tokens written back at the same time."),
    option("--prefill-seconds N=TIME,…", "Time to compute a prompt of N tokens: 1024=80ms,8192=700ms."),
    option("--launch TIME", "CPU time per copy: 10us from Python."),
    option("--batch-launch TIME", "CPU time per piece of a batch."),
    option("--memcpy SIZE", "Bytes that one core packs per second: 9.4GB."),
    SHOWN,
)

plan = WithDefault(
    "plan", [strategies, offload, kv], help="Compare strategies for a kernel, offloaded weights, KV caches."
)

price = Command(
    "price",
    "Estimate one copy, collective or kernel. Copies use every cost model that applies; a kernel needs its time on "
    "another node.",
    "planning.price",
    option("--node NODE", "Catalogue name, GPU, TOML file or link (pcie:4x16).", required=True),
    option("--bytes bytes N", "Size of the copy: 4096, 64M, 64MiB, 1.5GB; of a kernel, its memory traffic."),
    option("--direction", "h2d, d2h, d2d or p2p; with --gpus also h2d+d2h.", default="h2d"),
    option("--memory", "Host memory: pageable, pinned (default), managed or mapped; device between GPUs."),
    option("--gpus N", "Number of GPUs that copy --bytes each at once."),
    option("--latency-from NODE", "Use the measured L+o of this node."),
    option("--kernel CLASS", "A kernel instead of a copy: gemm, elementwise, reduction, other …"),
    option(
        "--collective KIND",
        "A collective instead of a copy: all_reduce, all_gather, broadcast, all_to_all, send_receive …",
    ),
    option("--ranks N", "Number of ranks of the collective, one GPU each."),
    option("--hosts N", "Number of such nodes, each with the same number of ranks.", default="1"),
    option("--nvls", "Reduce in the NVLink switch.", is_flag=True),
    option("--from recorded_on NODE", "Node where the kernel was recorded."),
    option("--seconds TIME", "Recorded time of a launch: 1.2ms."),
    option("--type type TYPE", "fp64, fp32, tf32, fp16, bf16, fp8 or int8.", default="fp32"),
    option("--flops N", "Operations per launch: 12G."),
    option("--shape M,N,K", "Dimensions of a matrix product."),
    option("--grid X,Y,Z", "Grid size in blocks."),
    option("--block X,Y,Z", "Block size in threads."),
    option("--registers N", "Registers per thread."),
    option("--shared-bytes SIZE", "Shared memory per block."),
    as_json,
)


nodes_find = Command(
    "find",
    "List the nodes and GPUs with every word in their name.",
    "planning.find",
    argument("words WORD …", "Words of the name.", type=str, nargs=-1, required=False),
    as_json,
    hidden=True,
)

nodes_show = Command(
    "show",
    "Show one node, with a drawing of its graph.",
    "planning.show",
    argument("node NODE", "Catalogue name, GPU, TOML file, or a link such as pcie:4x16.", type=str),
    as_json,
)

nodes_check = Command(
    "check",
    "Check a node file; name the key, the line and the fix of an error.",
    "planning.check",
    argument("file FILE", "A node file (TOML)."),
)

nodes = WithDefault(
    "nodes",
    [nodes_find, nodes_show, nodes_check],
    params=[*as_json],
    help="List nodes and GPUs, show one, or check a node file. With WORDs, list the names that contain all of them.",
    subcommand_metavar="[WORD … | COMMAND]",
)
