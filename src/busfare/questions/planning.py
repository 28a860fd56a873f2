"""Questions on plans and prices, with no trace or little of one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, get_args

from busfare import quantities as q
from busfare.errors import FieldError, InputError
from busfare.quantities import Question
from busfare.questions.traces import MOST_RANKS, Nodes, Part, Where

HostMemory = Literal["pinned", "pageable", "mapped", "managed"]
KvLayout = Literal["contiguous", "gather-kernel", "batched", "gather-host-halves", "gather-host", "per-block"]
NumberKind = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
#: More chunks than any program has.
MOST_CHUNKS = 4096
#: Layers: more than any published network has, and few enough to answer at once.
MOST_LAYERS, MOST_DEPTH, MOST_GPUS = 4096, 64, 64
#: Longer prompts, caches and batches than any GPU serves.
MOST_PROMPT, MOST_TOKENS, MOST_BATCH = 1 << 22, 1 << 24, 1 << 20
#: What describes nothing without a model.
OF_MODEL = (
    "type", "context", "batch", "only_experts", "cached_experts", "hit_rate", "cpu_bandwidth", "cpu_flops",
)  # fmt: skip
#: Fields that describe the kernel of `price`, and the collective.
OF_KERNEL = ("recorded_on", "seconds", "type", "flops", "shape", "grid", "block", "registers", "shared_bytes")
OF_COLLECTIVE = ("ranks", "hosts", "nvls")
#: What a core packs in a second at the least.
LEAST_MEMCPY = 1e6
#: A call that takes the host longer is no call's own time.
call_seconds = partial(q.parse_seconds, most=1.0)
kernel_at = q.points(q.whole(1, MOST_CHUNKS), q.above_zero(q.parse_seconds), "STREAMS=TIME, as in 42=15ms")
prefill = q.points(q.whole(1, 1 << 40), q.above_zero(q.parse_seconds), "TOKENS=TIME, as in 8192=700ms")


@dataclass(frozen=True, kw_only=True)
class Kernel(Question):
    """A kernel with its data. `kernel`: its seconds with the data on the GPU; `kernel_at`: seconds by number of chunks;
    `launch`: the host's seconds for each call; `type`: of the numbers that `flops` counts. `h2d_shared`: bytes of `h2d` that
    every chunk needs; `dependent_chunks`: chunks need the data of their neighbours. `reallocate`: iterations allocate
    device buffers.
    """

    h2d: q.LinkSize | None = None
    d2h: q.LinkSize | None = None
    h2d_shared: q.LinkSize | None = None
    dependent_chunks: q.Flag = False
    reallocate: q.Flag = False
    kernel: q.PositiveTime | None = None
    flops: q.Positive | None = None
    type: Annotated[NumberKind | None, q.word(*get_args(NumberKind))] = None
    device_bytes: q.LinkSize | None = None
    accesses_in: q.Positive | None = None
    accesses_out: q.Positive | None = None
    streams: Annotated[int | None, q.whole(1, MOST_CHUNKS)] = None
    levels: Annotated[int | None, q.whole(1, MOST_CHUNKS)] = None
    memory: Annotated[Literal["pinned", "pageable"] | None, q.word("pinned", "pageable")] = None
    copies_in: Annotated[int | None, q.whole(1, MOST_CHUNKS)] = None
    copies_out: Annotated[int | None, q.whole(1, MOST_CHUNKS)] = None
    kernel_at: Annotated[tuple[tuple[int, float], ...], kernel_at] = ()
    launch: Annotated[float | None, q.above_zero(call_seconds)] = None

    def __post_init__(self) -> None:
        if self.streams and self.levels and self.streams > self.levels:
            raise FieldError("streams", f": {self.streams} exceeds the {self.levels} levels to cut along")
        if self.type and self.flops is None:
            raise FieldError(
                "type", f" {self.type}: the number type of `flops`; add `flops`, or leave this out"
            )


@dataclass(frozen=True, kw_only=True)
class Plan(Kernel, Part):
    """Strategies of a kernel, or of those of a `file`, or of a trace (`from_trace`) whose names match `kernel_name`."""

    node: Where | None = None
    link: q.Text | None = None
    to: Nodes = ()
    file: q.File | None = None
    from_trace: q.File | None = None
    kernel_name: q.Text = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        of_kernel = [name for name in self.given() if name in Kernel.names()]
        if self.file and self.from_trace:
            raise InputError("FILE.toml and `from_trace`: both define what to plan; give one of them")
        self.check_traced(self.from_trace)
        if self.kernel_name and not self.from_trace:
            raise InputError("`kernel_name`: needs `from_trace` TRACE; add it")
        if self.file and of_kernel:
            raise FieldError(of_kernel[0], f": the plan file {self.file} already defines this; leave it out")
        if self.from_trace and not self.kernel_name:
            raise InputError("`from_trace`: no kernels selected; name them with `kernel_name` REGEX")
        if self.from_trace and (twice := [n for n in of_kernel if n in ("h2d", "d2h", "kernel")]):
            raise FieldError(twice[0], ": the trace already defines this; leave it out")


@dataclass(frozen=True, kw_only=True)
class Offload(Part):
    """Layers by a `model`, a trace (`from_trace`), or by sizes and times of all, or of each. `depth`: layers brought ahead;
    `budget`: GPU memory for layers and buffers; rates of the processor in bytes/s and 1/s.
    """

    node: Where | None = None
    link: q.Text | None = None
    model: q.Text | None = None
    layers: Annotated[int | None, q.whole(1, MOST_LAYERS)] = None
    bytes_per_layer: q.Sizes = ()
    seconds_per_layer: Annotated[q.LayerTimes | None, q.layer_times] = None
    tokens: Annotated[int | None, q.whole(1, MOST_TOKENS)] = None
    resident: Annotated[int | None, q.whole(0, MOST_LAYERS)] = None
    depth: Annotated[int | None, q.whole(0, MOST_DEPTH)] = None
    memory: Annotated[HostMemory | None, q.word(*get_args(HostMemory))] = None
    budget: q.Size | None = None
    back_bytes_per_layer: q.Sizes = ()
    cpu_seconds_per_layer: Annotated[q.LayerTimes | None, q.layer_times] = None
    gpus: Annotated[int, q.whole(1, MOST_GPUS)] = 1
    type: q.Text = "fp16"
    context: Annotated[int, q.whole(0, MOST_TOKENS)] = 0
    batch: Annotated[int, q.whole(1, MOST_BATCH)] = 1
    only_experts: q.Flag = False
    cached_experts: Annotated[int, q.whole(0, MOST_TOKENS)] = 0
    hit_rate: q.Count | None = None
    cpu_bandwidth: q.Size | None = None
    cpu_flops: q.Count | None = None
    from_trace: q.File | None = None

    def __post_init__(self) -> None:
        given = self.given()
        self.check_traced(self.from_trace)
        if self.model and self.from_trace:
            raise InputError("`from_trace`, `model`: both define the layers; give one of them")
        source, says = "model" if self.model else "from_trace", ["layers", "bytes_per_layer"]
        if self.from_trace:
            says += ["seconds_per_layer", "back_bytes_per_layer"]
        if (self.model or self.from_trace) and (twice := [name for name in says if name in given]):
            raise FieldError(twice[0], f": `{source}` already defines it; give one of them")
        if not self.model and (without := [name for name in OF_MODEL if name in given]):
            raise FieldError(without[0], ": needs `model`; add it, or leave this out")
        if not self.only_experts and (self.cached_experts or self.hit_rate is not None):
            raise InputError("`cached_experts`, `hit_rate`: need `only_experts`; add it")
        if self.model or self.from_trace:
            return
        if self.layers is None:
            raise InputError("`layers`: the number of layers is missing; give it, as in `layers` 32")
        if not self.bytes_per_layer:
            raise InputError(
                "`bytes_per_layer`: the size of a layer is missing; give it, as in `bytes_per_layer` 436MB"
            )
        if self.seconds_per_layer is None:
            raise InputError(
                "`seconds_per_layer`: the kernel time of a layer is missing; give it: 1.2ms, or by tokens, 1=0.2ms,2048=4ms"
            )


@dataclass(frozen=True, kw_only=True)
class KvCache(Question):
    """The cache of a prompt of `tokens`, by `model` or `bytes_per_token`, in blocks of `block_tokens`, each in `pieces`;
    `evict`: tokens that are written back meanwhile; `prefill_seconds` of computing, by tokens; the host's seconds for a copy
    (`launch`) and each piece of a batch; `memcpy`: what a core packs, bytes/s. `tensor_parallel`: GPUs
    that share each layer; the answer is for one of them.
    """

    node: Where | None = None
    link: q.Text | None = None
    model: q.Text | None = None
    type: q.Text = "fp16"
    bytes_per_token: Annotated[int | None, q.above_zero(partial(q.parse_bytes, most=1 << 30))] = None
    tokens: Annotated[int, q.whole(1, MOST_PROMPT)] = 8192
    block_tokens: Annotated[int, q.whole(1, MOST_PROMPT)] = 16
    pieces: Annotated[int | None, q.whole(1, 1 << 16)] = None
    layout: Annotated[KvLayout | None, q.word(*get_args(KvLayout))] = None
    evict: Annotated[int, q.whole(0, MOST_PROMPT)] = 0
    tensor_parallel: Annotated[int, q.whole(1, MOST_GPUS)] = 1
    prefill_seconds: Annotated[tuple[tuple[float, float], ...], prefill] = ()
    launch: Annotated[float | None, call_seconds] = None
    batch_launch: Annotated[float | None, call_seconds] = None
    memcpy: q.Size | None = None

    def __post_init__(self) -> None:
        if self.bytes_per_token is None and self.model is None:
            raise InputError(
                "`bytes_per_token`: the cache size of a token is missing; give 2 · layers · kv_heads · head_dim · "
                "bytes of the type, as in `bytes_per_token` 128KiB; or give `model`"
            )
        if self.tensor_parallel > 1 and self.model is None:
            raise InputError(
                "`tensor_parallel`: needs `model`; give the bytes of one GPU in `bytes_per_token`"
            )
        if "type" in self.given() and self.model is None:
            raise FieldError("type", f" {self.type}: needs `model`; add it, or leave this out")
        if self.memcpy is not None and self.memcpy < LEAST_MEMCPY:
            raise FieldError("memcpy", f" {self.memcpy}: a core packs more per second; give 1MB or more")


@dataclass(frozen=True, kw_only=True)
class Price(Question):
    """Of a copy; of copies of several GPUs at once (`gpus`); of a `collective`; or of a `kernel` that took `seconds` on
    `recorded_on`, with its `flops`, `bytes`, `shape` and launch.
    """

    node: Where | None = None
    link: q.Text | None = None
    bytes: q.Size | None = None
    direction: q.Text = "h2d"
    memory: q.Text | None = None
    gpus: Annotated[int | None, q.whole(1, MOST_RANKS)] = None
    latency_from: Where | None = None
    kernel: q.Text | None = None
    collective: q.Text | None = None
    ranks: Annotated[int | None, q.whole(2, MOST_RANKS)] = None
    hosts: Annotated[int, q.whole(1, MOST_RANKS)] = 1
    nvls: q.Flag = False
    recorded_on: Where | None = None
    seconds: Annotated[float | None, q.bare_seconds] = None
    type: q.Text = "fp32"
    flops: q.Count | None = None
    shape: q.Sides | None = None
    grid: q.Sides | None = None
    block: q.Sides | None = None
    registers: Annotated[int | None, q.whole(0, 1 << 20)] = None
    shared_bytes: q.Size | None = None

    def __post_init__(self) -> None:
        given, within = self.given(), self.direction in ("d2d", "p2p")
        if len(kinds := [f"`{name}`" for name in ("collective", "kernel", "gpus") if name in given]) > 1:
            raise InputError(f"price: {' and '.join(kinds)} exclude each other; give one of them")
        if self.kernel and (self.recorded_on is None or self.seconds is None):
            raise InputError(
                "`kernel`: give the node and the time of a recorded launch: `recorded_on` NODE `seconds` 1.2ms"
            )
        if self.collective and (self.bytes is None or self.ranks is None):
            raise InputError(
                f"`collective` {self.collective}: give the number of GPUs and the size: `ranks` 8 `bytes` 64MiB"
            )
        if self.bytes is None and not self.kernel:
            raise InputError(
                "price: give `bytes`, the size of a copy or `collective`, or `kernel` with `recorded_on` and `seconds`"
            )
        for kind, names in {"kernel": OF_KERNEL, "collective": OF_COLLECTIVE}.items():
            if not getattr(self, kind) and (alone := [name for name in names if name in given]):
                raise FieldError(alone[0], f": describes a `{kind}`; add `{kind}`, or leave this out")
        if within and not kinds and self.memory not in (None, "device"):
            raise InputError(
                f"`memory` {self.memory}: {self.direction} copies stay in GPU memory; leave it out"
            )
        if self.memory == "device" and not within:
            raise InputError(
                f"`memory` device: for {self.direction} copies, give the kind of host memory, such as pinned"
            )
        pinned = {*self.direction.split("+")} <= {"h2d", "d2h"} and self.memory in (None, "pinned")
        if self.gpus and not pinned:
            raise InputError(
                "`gpus`: prices pinned copies; give `direction` h2d, d2h or h2d+d2h, and no `memory`"
            )
