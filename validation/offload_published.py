"""What others published of weights that are streamed from the host, beside what `plan offload` predicts from data sheets.

Run `python validation/offload_published.py`. No constant was chosen on these figures. What a source leaves open is in
`notes`: the link is then taken as x16 of the card's own generation. Programs take what no model of a pass has: the host's
launches, sampling, a cache that is moved.
"""

from __future__ import annotations

from typing import NamedTuple

from claims import table

from busfare.nodes import load_node
from busfare.planning.machine import machine_of
from busfare.planning.offload.network import Network
from busfare.planning.offload.schedule import Memory, Schedule, pass_seconds
from busfare.planning.offload.shapes import read_model


class Published(NamedTuple):
    """`tokens_per_s` of all sequences. `prompt` and `output`: tokens of each sequence whose times are in it (no output: of
    the prompt alone). `streamed`: layers on the host, the last ones; of a mixture their experts alone.
    """

    model: str
    type: str
    node: str
    batch: int
    prompt: int
    output: int
    streamed: int
    memory: Memory
    depth: int
    tokens_per_s: float
    source: str
    notes: str = ""


UBATCH = "reddit, gpt-oss-120b on one RTX 3090: bigger ubatch (as of ai-maestro.online, 2026-05-12)"
FLEXGEN = "FMInference/FlexGen, benchmark/batch_size_table.md"
RESIDENT = "ggml-org/llama.cpp#4766, JohannesGaessler, sl/backend-sched"
ROWS = (
    # Nothing streamed: what the GPU computes of them.
    Published("llama-2-7b", "fp16", "rtx-3090", 1, 512, 0, 0, "pinned", 0, 4407.44, RESIDENT, "llama 7B"),
    Published("llama-2-7b", "q4_0", "rtx-3090", 1, 512, 0, 0, "pinned", 0, 3510.53, RESIDENT, "llama 7B"),
    Published("llama-2-7b", "fp16", "rtx-3090", 1, 0, 128, 0, "pinned", 0, 48.09, RESIDENT, "llama 7B"),
    Published("llama-2-7b", "q4_0", "rtx-3090", 1, 0, 128, 0, "pinned", 0, 119.90, RESIDENT, "llama 7B"),
    Published("gpt-oss-120b", "mxfp4", "rtx-3090", 1, 256, 0, 25, "pinned", 0, 240.03, UBATCH, "which experts: not uniform"),
    Published("gpt-oss-120b", "mxfp4", "rtx-3090", 1, 512, 0, 26, "pinned", 0, 380.27, UBATCH, "which experts: not uniform"),
    Published("gpt-oss-120b", "mxfp4", "rtx-3090", 1, 2048, 0, 25, "pinned", 0, 1112.54, UBATCH, "link not named"),
    Published("gpt-oss-120b", "mxfp4", "rtx-3090", 1, 4096, 0, 26, "pinned", 0, 1682.47, UBATCH, "link not named"),
    Published("gpt-oss-120b", "mxfp4", "rtx-3090", 1, 8192, 0, 28, "pinned", 0, 2090.68, UBATCH, "link not named"),
    Published("opt-30b", "fp16", "t4", 4, 512, 32, 48, "pinned", 1, 0.60, FLEXGEN, "ZeRO-Inference"),
    Published("opt-6.7b", "fp16", "t4", 16, 512, 32, 32, "pinned", 1, 9.28, FLEXGEN, "ZeRO-Inference"),
    Published(
        "opt-30b", "fp16", "titan-rtx", 1, 0, 1, 12, "pageable", 0, 1 / 2.37,
        "huggingface/accelerate, benchmarks/big_model_inference/README.md", "2 GPUs hold 36 layers; 14.1 GiB on the host",
    ),
    Published(
        "llama-3.1-70b", "bf16", "gh200", 1, 0, 1, 35, "pinned", 0, 4.6,
        "vllm-project/vllm#6317, drikster80 2024-07-16", "weights up to 0.80 of 97871 MiB stay: 45 layers",
    ),
)  # fmt: skip


def predicted(row: Published) -> tuple[float, str]:
    """Tokens a second, and whether the link or the GPU takes longer."""
    model, node = read_model(row.model), load_node(row.node)
    machine = machine_of(node)
    schedule = Schedule(len(model.layers) - row.streamed, row.depth, row.memory)

    def pass_of(tokens: int, context: int) -> tuple[float, float, float]:
        network = Network(model, row.type, node, context, row.batch, only_experts=True)
        seconds, sizes = network.gpu_seconds(tokens).seconds, network.bytes(tokens)
        layers = network.layers(tokens, seconds.tolist())
        computed = float(seconds.sum())
        return (
            pass_seconds(layers, schedule, machine),
            computed,
            sum(sizes[schedule.resident :]) * machine.h2d.copy.long_gap_per_byte_s,
        )

    passes = [pass_of(row.batch * row.prompt, 0)] if row.prompt else []
    passes += [pass_of(row.batch, row.prompt + number) for number in range(bool(row.prompt), row.output)]
    seconds, computed, copied = (sum(column) for column in zip(*passes, strict=True))
    return row.batch * (row.output or row.prompt) / seconds, "GPU" if computed > copied else "link"


def main() -> None:
    rows = []
    for row in ROWS:
        rate, bound = predicted(row)
        off = 100 * (rate / row.tokens_per_s - 1)
        rows.append((*row[:9], row.tokens_per_s, rate, off, bound, "; ".join(filter(None, row[10:]))))
    table(
        "model|type|node|batch:d|prompt:d|output:d|streamed:d|memory|depth:d"
        "|measured:.2f|predicted:.2f|off %:+.0f|bound|source",
        rows,
    )


if __name__ == "__main__":
    main()
