"""What layers of a network take to compute, on a GPU with their weights there and on a processor.

By operator: products of matrices by their tiles (`cost/kernels/gemm.py`), attention by its operations and the cache that it
reads, and what is bound by memory by its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from busfare.cost.kernels.gemm import product_seconds
from busfare.cost.kernels.limits import Limits, limits_of, pipeline_of
from busfare.cost.kernels.move import LAUNCH_S, memory_seconds
from busfare.cost.ranges import Ranged, range_of
from busfare.errors import InputError
from busfare.node import Memory, Node
from busfare.node.arrays import FloatArray
from busfare.plan.offload.experts import experts_touched
from busfare.plan.offload.shapes import Layer, Matrix, Model, NumberType, number_type

__all__ = ["LayerSeconds", "cpu_seconds", "gpu_seconds", "operator_seconds"]

#: What attention reaches of a tensor pipeline's rate that products reach: 62 of 83 % of the peak on an A100
#: [FlashAttention-2 §4.1: 50 to 73 %].
ATTENTION_SHARE = 0.75
#: Kernels of a layer that only move: two norms, the rotation of queries and keys, the cache's new entries, the activation.
MOVING_KERNELS = 5
MOST_TOKENS = 1 << 26
#: Where no data says how far off a time is.
UNKNOWN = Ranged(0.5, 2.0)


@dataclass(frozen=True)
class LayerSeconds:
    """Seconds of each layer, and the ends of their 80 % range: shape (layers,). `rung`: `probed` or `class`."""

    seconds: FloatArray
    low: FloatArray
    high: FloatArray
    rung: str


def gpu_seconds(
    model: Model, node: Node, tokens: float, context: float = 0, batch: float = 1, type_: str = "fp16"
) -> LayerSeconds:
    """Seconds of each layer with its weights in GPU memory, for a pass of `tokens` new tokens in all of `batch` sequences.

    Each sequence has `context` tokens in its cache before. A prefill has tokens = batch · prompt; a step of decoding has
    tokens = batch; of fewer tokens, each is a sequence of its own. Weights of fewer bytes than their products compute in
    are unpacked on the way, at no further cost. Head, embedding and the host's launches are none of a layer's.

    The range is that of layers measured by others where they had such ones: dense, in 2 bytes, on NVIDIA's GPUs since
    Ampere, all but attention. Of others it is the wider one of kernels carried to another GPU.

    Raises InputError where what bounds kernels on the GPU is not known.
    """
    parts = operator_seconds(model, node, tokens, context, batch, type_)
    limits, kind = limits_of(node), number_type(type_)
    figures = "probed" if limits.rung == "probed" else "datasheet"
    wide = range_of("kernel", "compute", figures) or UNKNOWN
    near = range_of("layer", "any", figures) or wide
    judged = limits.vendor == "nvidia" and float(limits.generation or 0) >= 8 and kind.bytes_each == 2
    low, high = (
        np.array([[(near if judged and not layer.experts else wide)[end], wide[end]] for layer in model.layers])
        for end in (0, 1)
    )  # fmt: skip
    seconds = parts.sum(axis=1)
    return LayerSeconds(seconds, (parts * low).sum(axis=1), (parts * high).sum(axis=1), limits.rung)


def operator_seconds(
    model: Model, node: Node, tokens: float, context: float = 0, batch: float = 1, type_: str = "fp16"
) -> FloatArray:
    """As `gpu_seconds`, of the products and what is moved between them, and of attention; shape (layers, 2)."""
    batch = _checked(tokens, context, batch)
    limits, kind = limits_of(node), number_type(type_)
    pipeline = next(
        (name for name in map(pipeline_of, (kind.computes, "fp16", "fp32")) if limits.peak(name)), None
    )
    if pipeline is None:
        raise InputError(
            f"{node.name}: its GPU's operations a second are not known; give flops_per_s, or --seconds-per-layer"
        )
    return np.array(
        model.by_layer(lambda one: _layer(one, model.hidden, limits, pipeline, kind, tokens, context, batch))
    )


def cpu_seconds(
    model: Model,
    tokens: float,
    context: float = 0,
    batch: float = 1,
    type_: str = "fp16",
    bandwidth: float | None = None,
    flops: float | None = None,
    node: Node | None = None,
    only_experts: bool = False,
) -> FloatArray:
    """Seconds of each layer computed on the processor: the longer of the bytes that it reads at `bandwidth` (bytes/s), and
    its operations at `flops` (1/s); shape (layers,). A bound: what an implementation reaches of both has to be in them.

    Without `bandwidth` that of the `node`'s host memory is taken. `only_experts`: of layers that have some.

    Raises InputError where one is not known.
    """
    batch = _checked(tokens, context, batch)
    if bandwidth is None and node is not None:
        bandwidth = next((c.bandwidth_bytes_per_s for c in node.components if isinstance(c, Memory)), None)
    if not bandwidth or not flops:
        lacking = [
            text for value, text in ((bandwidth, "--cpu-bandwidth (bytes/s that its memory reaches, as in 200GB)"),
                                     (flops, "--cpu-flops (operations/s that it reaches, as in 2T)")) if not value
        ]  # fmt: skip
        raise InputError(f"what the processor reaches is not known; give {' and '.join(lacking)}")
    kind = number_type(type_)

    def seconds(layer: Layer) -> float:
        touched = experts_touched(layer.experts, layer.experts_used, tokens)
        alone = only_experts and layer.experts > 0
        met = 0 if alone else layer.attention_weights + layer.mlp_weights
        read = (met + touched * layer.expert_weights) * kind.bytes_each
        operations = 2.0 * tokens * (met + layer.experts_used * layer.expert_weights)
        if not alone:
            read += layer.kv_elements * _cached(layer, tokens, context, batch) * kind.activation_bytes
            operations += _attention_flops(layer, tokens, context, batch)
        return max(read / bandwidth, operations / flops)

    return np.array(model.by_layer(seconds))


def _checked(tokens: float, context: float, batch: float) -> float:
    """How many sequences there are: no more than tokens. Raises InputError for what is no pass."""
    if not (1 <= tokens <= MOST_TOKENS and 0 <= context <= MOST_TOKENS and batch >= 1):
        raise InputError(
            f"{tokens:g} tokens of {batch:g} sequences behind {context:g}: give 1 to {MOST_TOKENS} tokens, and at least "
            "one sequence"
        )
    return min(batch, tokens)


def _layer(
    layer: Layer, hidden: int, limits: Limits, pipeline: str, kind: NumberType, tokens: float, context: float,
    batch: float,
) -> tuple[float, float]:  # fmt: skip
    width, floor = kind.activation_bytes, limits.launch_s or LAUNCH_S
    products = [(1.0, tokens, one) for one in (*layer.attention, *layer.mlp)]
    touched = experts_touched(layer.experts, layer.experts_used, tokens)
    if layer.experts:
        rows = tokens * layer.experts_used / touched
        products += [(touched, rows, one) for one in layer.expert]
    seconds = floor * len(products) + _products(products, limits, pipeline, kind)
    rate = (limits.peak(pipeline) or np.inf) * ATTENTION_SHARE
    operations = _attention_flops(layer, tokens, context, batch)
    cache = layer.kv_elements * _cached(layer, tokens, context, batch) * width
    read = cache + tokens * layer.heads * (layer.key_size + layer.value_size) * width
    attention = floor + max(operations / rate, read / limits.memory)
    # A mixture without shared experts has nothing but its router in `mlp`.
    inner = layer.mlp[-1].inputs if len(layer.mlp) > 1 else 0
    inner += layer.experts_used * sum(one.inputs for one in layer.expert[-1:])
    queries = layer.heads * layer.key_size + layer.kv_elements
    # Twice a residual and a norm, each read and written; queries and keys; gate, up and their product.
    moved = tokens * width * (8.0 * hidden + 2 * queries + 3 * inner)
    seconds += MOVING_KERNELS * floor + float(memory_seconds(np.array([moved]), limits)[0])
    return seconds, attention


def _products(
    products: list[tuple[float, float, Matrix]], limits: Limits, pipeline: str, kind: NumberType
) -> float:
    """Seconds of products, how many of one kind and rows each, whose weights are in the bytes of `kind`."""
    count, m, n, k = np.array([(many, rows, one.outputs, one.inputs) for many, rows, one in products]).T
    whole = np.ceil(m)
    # The model has one size for all three matrices: that which gives the bytes that are moved.
    size = kind.activation_bytes * (m * n + m * k) + n * k * kind.bytes_each
    sides = [count, whole, n, k, size / (whole * n + whole * k + n * k)]
    seconds = product_seconds(sides, pipeline, limits)
    return float(seconds.sum()) if seconds is not None else np.nan


def _cached(layer: Layer, tokens: float, context: float, batch: float) -> float:
    """Tokens whose keys and values a pass reads, of all sequences."""
    there = context + tokens / batch
    return batch * (min(there, layer.window + tokens / batch) if layer.window else there)


def _attention_flops(layer: Layer, tokens: float, context: float, batch: float) -> float:
    """Operations of attention: of each new token with all before it in its sequence, and itself. Latent attention unpacks
    the keys and values of the cache, or is computed on the packed ones, whichever is less [DeepSeek-V2 §2.1].
    """
    seen = context + (tokens / batch + 1) / 2
    if layer.window:
        seen = min(seen, layer.window)
    pairs = 2.0 * tokens * seen * layer.heads
    operations = pairs * (layer.key_size + layer.value_size)
    if layer.latent_size:
        unpacked = 2.0 * batch * context * layer.attention[-2].weights
        return min(operations + unpacked, pairs * layer.latent_size)
    return operations
