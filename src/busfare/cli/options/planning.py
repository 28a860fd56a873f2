"""The options of commands about nodes and plans: price, plan, nodes."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from busfare.cli.options import OF_PART, PATH, RARE, SHOWN, Command, argument, as_json, details, option

MACHINE = "Catalogue name, GPU, TOML file or link (pcie:4x16)."
SLOT = "Its GPUs sit in another slot: pcie:4x4."
SIBLINGS = (
    "Commands: `busfare plan offload` (weights on the host), `busfare plan kv` (KV caches); see their --help."
)


class WithDefault(click.Group):
    """A group that passes arguments without a command name to its first command."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        completed = extra.get("resilient_parsing") and not args  # a shell asks for completions
        if completed or {*args[:1]} & {*self.commands, *(("-h", "--help") if self.params else ())}:
            return super().make_context(info_name, args, parent, **extra)
        near = get_close_matches(args[0], self.commands, 1) if args else []
        if near and not Path(args[0]).exists():
            raise click.UsageError(f"no command {args[0]!r}; did you mean `busfare {self.name} {near[0]}`?")
        return next(iter(self.commands.values())).make_context(info_name, args, parent, **extra)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Its commands, and the options of its first one."""
        options = next(iter(self.commands.values())).shell_complete(ctx, incomplete)
        return [*super().shell_complete(ctx, incomplete), *options]


strategies = Command(
    "strategies",
    "Find the fastest overlap strategy for a kernel, and its number of streams.",
    "planning.strategies",
    argument("file [FILE.toml]", "Kernels to plan, one [[kernel]] table each.", required=False),
    "Input",
    option("--h2d SIZE", "Bytes copied to the GPU: 336MB."),
    option("--d2h SIZE", "Bytes copied back: 504MB."),
    option("--kernel TIME", "Kernel time with its data on the GPU: 12ms."),
    option("--flops N", "Operations of the kernel: 12G."),
    option("--type TYPE", "Of --flops: fp64, fp32 (default), tf32, fp16, bf16, fp8, int8."),
    option("--device-bytes SIZE", "Bytes that the kernel reads and writes in GPU memory."),
    option("--memory KIND", "Current host buffers: pinned or pageable."),
    option("--from-trace TRACE", "Take bytes and times from a trace.", type=PATH),
    option("--kernel-name REGEX", "Kernels of the trace."),
    OF_PART,
    "Machine",
    option("--node --from node NODE", f"{MACHINE} Default with --from-trace: where it was recorded."),
    option("--link LINK", SLOT),
    option("--to NODE", "Compare with another node; repeatable.", multiple=True),
    "What to change",
    option("--streams N", "Use this many streams instead of the best number."),
    option("--levels N", "Maximum number of chunks."),
    "Output",
    details,
    SHOWN,
    RARE,
    option("--h2d-shared SIZE", "Bytes of --h2d that every chunk needs: copied first."),
    option("--dependent-chunks", "A chunk needs the data of both its neighbours.", is_flag=True),
    option("--reallocate", "Every iteration allocates and frees its device buffers.", is_flag=True),
    option("--accesses-in N", "How often the kernel reads each input element."),
    option("--accesses-out N", "How often the kernel writes each output element."),
    option("--copies-in N", "Number of separate arrays copied in."),
    option("--copies-out N", "Number of separate arrays copied back."),
    option("--kernel-at N=TIME", "Kernel time if cut into N chunks; repeatable.", multiple=True),
    option("--launch TIME", "CPU time per call: 4us."),
    hidden=True,
    epilog=SIBLINGS,
)

offload = Command(
    "offload",
    "Plan layers with weights on the host: how many to keep on the GPU, prefetch depth, host memory.",
    "planning.offload",
    "Input",
    option("--model SHAPE", "A network, or its config.json, for the next 3 options."),
    option("--layers N", "Layers of the network."),
    option("--bytes-per-layer SIZE", "Weights of a layer: 436MB, or of each: a,b,…."),
    option(
        "--seconds-per-layer TIME", "Kernel time of a layer: 1.2ms; by tokens 1=0.2ms,512=4ms; or of each."
    ),
    option("--type TYPE", "With --model: weight type: fp16 (default), q4_0 …"),
    option("--from-trace TRACE", "Take the layers from a recorded run.", type=PATH),
    OF_PART,
    "Machine",
    option("--node NODE", MACHINE),
    option("--link LINK", SLOT),
    "What to change",
    option("--tokens N", "Tokens per pass: 1 to decode, the prompt in prefill."),
    option("--batch N", "With --model: sequences per pass."),
    option("--resident R", "Layers that stay on the GPU. Default: what fits."),
    option("--depth D", "Layers to prefetch, each into its own buffer; 0: none."),
    option("--memory KIND", "Host memory: pinned, pageable, mapped or managed."),
    option("--budget SIZE", "GPU memory for layers and buffers. Default: all."),
    option("--gpus N", "Number of GPUs that stream at once."),
    option("--only-experts", "With --model: stream only a mixture's experts.", is_flag=True),
    "Output",
    details,
    SHOWN,
    RARE,
    option("--back-bytes-per-layer SIZE", "Bytes copied out after each layer: gradients, weights."),
    option("--cpu-seconds-per-layer TIME", "Time of a layer on the CPU; by tokens as above."),
    option("--context N", "With --model: cached tokens before the pass."),
    option("--cpu-bandwidth SIZE", "With --model: CPU memory bandwidth per second: 80GB."),
    option("--cpu-flops N", "With --model: CPU operations per second: 1.5T."),
    option("--hit-rate SHARE", "Share of needed experts in GPU memory: 0.9."),
    option("--cached-experts N", "Experts per streamed layer that stay on the GPU."),
)

kv = Command(
    "kv",
    "Plan KV caches on the host: fetch or recompute, block size and layout.",
    "planning.kv",
    "Input",
    option("--model SHAPE", "A network by name, or its config.json."),
    option("--type TYPE", "With --model: element type: fp16, fp8, …"),
    option("--bytes-per-token SIZE", "Cache bytes per token, all layers: 128KiB."),
    option("--prefill-seconds N=TIME,…", "Time to compute a prompt of N tokens: 1024=80ms,8192=700ms."),
    option("--launch TIME", "CPU time per copy: 10us from Python."),
    option("--batch-launch TIME", "CPU time per piece of a batch."),
    option("--memcpy SIZE", "Bytes that one core packs per second: 9.4GB."),
    "Machine",
    option("--node NODE", MACHINE),
    option("--link LINK", SLOT),
    "What to change",
    option("--tokens N", "Length of the prompt to fetch.", default="8192", show_default=True),
    option("--block-tokens N", "Tokens per block.", default="16", show_default=True),
    option("--pieces N", "Pieces per block: 1, or 2 · layers with --model."),
    option("--layout NAME", "Layout for the break-even. Default: the fastest."),
    option("--tensor-parallel N", "With --model: GPUs that share each layer; times are of one GPU."),
    option("--evict N", "Tokens written back at the same time."),
    "Output",
    details,
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
    "Machine",
    option("--node NODE", MACHINE, required=True),
    option("--link LINK", SLOT),
    "Copy or collective",
    option("--bytes bytes N", "Size: 4096, 64M, 64MiB, 1.5GB; of a kernel: memory traffic."),
    option("--direction", "h2d, d2h, d2d or p2p; with --gpus also h2d+d2h.", default="h2d"),
    option("--memory", "pageable, pinned (default), managed, mapped; device between GPUs."),
    option("--gpus N", "Number of GPUs that copy --bytes each at once."),
    option("--collective KIND", "all_reduce, all_gather, broadcast, all_to_all …"),
    option("--ranks N", "Number of ranks of the collective, one GPU each."),
    option("--hosts N", "Number of such nodes, with as many ranks each.", default="1"),
    "Kernel",
    option("--kernel CLASS", "gemm, elementwise, reduction, other …"),
    option("--from recorded_on NODE", "Node where the kernel was recorded."),
    option("--seconds TIME", "Recorded time of a launch: 1.2ms."),
    option("--type type TYPE", "fp64, fp32, tf32, fp16, bf16, fp8 or int8.", default="fp32"),
    option("--flops N", "Operations per launch: 12G."),
    option("--shape M,N,K", "Dimensions of a matrix product."),
    "Output",
    as_json,
    RARE,
    option("--latency-from NODE", "Use the measured L+o of this node."),
    option("--nvls", "Reduce in the NVLink switch.", is_flag=True),
    option("--grid X,Y,Z", "Grid size in blocks."),
    option("--block X,Y,Z", "Block size in threads."),
    option("--registers N", "Registers per thread."),
    option("--shared-bytes SIZE", "Shared memory per block."),
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
    "Show one node: its components and links.",
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
