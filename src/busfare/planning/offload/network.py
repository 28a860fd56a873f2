"""A network as layers by tokens: what each layer takes to compute, on a GPU that holds its weights and on a processor, and
what a pass brings of it.

By operator: products of matrices by their tiles (`cost/kernels/gemm.py`), attention by its operations and the cache that it
reads, and what is bound by memory by its bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from busfare.cost.kernels.limits import Limits, limits_of, pipeline_of, product_seconds
from busfare.cost.kernels.move import memory_seconds
from busfare.cost.ranges import Ranged, range_of
from busfare.errors import InputError
from busfare.nodes import FloatArray, Memory, Node
from busfare.planning.offload.schedule import Layers
from busfare.planning.offload.shapes import (
    Layer,
    Matrix,
    Model,
    NumberType,
    kv_bytes_per_token,
    number_type,
    read_model,
    weight_bytes,
)
from busfare.quantities import parse_bytes, parse_count

__all__ = [
    "OF_NETWORK", "LayerSeconds", "Network", "cpu_seconds", "experts_touched", "gpu_seconds", "hit_rate_of",
    "network_of", "operator_seconds", "streamed_bytes", "whole_of",
]  # fmt: skip

#: What attention reaches of a tensor pipeline's rate that products reach: 62 of 83 % of the peak on an A100
#: [FlashAttention-2 §4.1: 50 to 73 %].
ATTENTION_SHARE = 0.75
#: Kernels of a layer that only move: two norms, the rotation of queries and keys, the cache's new entries, the activation.
MOVING_KERNELS = 5
MOST_TOKENS = 1 << 26
#: Where no data says how far off a time is.
UNKNOWN = Ranged(0.5, 2.0)


class LayerSeconds(NamedTuple):
    """Seconds of each layer, and the ends of their 80 % range: shape (layers,). `rung`: `probed` or `class`."""

    seconds: FloatArray
    low: FloatArray
    high: FloatArray
    rung: str


class _Pass(NamedTuple):
    """A pass of `tokens` new tokens in all of `batch` sequences, each with `context` tokens in its cache before."""

    tokens: float
    context: float
    batch: float

    @classmethod
    def of(cls, tokens: float, context: float, batch: float) -> _Pass:
        """No more sequences than tokens. Raises InputError for what is no pass."""
        if not (1 <= tokens <= MOST_TOKENS and 0 <= context <= MOST_TOKENS and batch >= 1):
            raise InputError(
                f"{tokens:g} tokens of {batch:g} sequences behind {context:g}: give 1 to {MOST_TOKENS} tokens, and at least "
                "one sequence"
            )
        return cls(tokens, context, min(batch, tokens))

    def cached(self, layer: Layer) -> float:
        """Tokens whose keys and values are read, of all sequences."""
        new = self.tokens / self.batch
        there = self.context + new
        return self.batch * (min(there, layer.window + new) if layer.window else there)

    def attention(self, layer: Layer) -> float:
        """Operations of attention: of each new token with all before it in its sequence, and itself. Latent attention
        unpacks the keys and values of the cache, or is computed on the packed ones, whichever is less [DeepSeek-V2 §2.1].
        """
        seen = self.context + (self.tokens / self.batch + 1) / 2
        if layer.window:
            seen = min(seen, layer.window)
        pairs = 2.0 * self.tokens * seen * layer.heads
        operations = pairs * (layer.key_size + layer.value_size)
        if layer.latent_size:
            unpacked = 2.0 * self.batch * self.context * layer.attention[-2].weights
            return min(operations + unpacked, pairs * layer.latent_size)
        return operations


def experts_touched(experts: int, used: int, tokens: float) -> float:
    """Expected distinct experts of `experts` that `tokens` touch, `used` each: E·(1 - (1 - k/E)^tokens).

    Routing is taken to be uniform and tokens independent; routers favour some experts, so that a measured hit rate of a
    cache is higher than the uniform one.
    """
    return experts * (1.0 - math.pow(1.0 - used / experts, tokens)) if experts else 0.0


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
    ranges = np.array([[near if judged and not one.experts else wide, wide] for one in model.layers])
    low, high = ((parts * ranges[..., end]).sum(axis=1) for end in (0, 1))
    return LayerSeconds(parts.sum(axis=1), low, high, limits.rung)


def operator_seconds(
    model: Model, node: Node, tokens: float, context: float = 0, batch: float = 1, type_: str = "fp16"
) -> FloatArray:
    """As `gpu_seconds`, of the products and what is moved between them, and of attention; shape (layers, 2)."""
    one_pass, limits, kind = _Pass.of(tokens, context, batch), limits_of(node), number_type(type_)
    pipelines = map(pipeline_of, (kind.computes, "fp16", "fp32"))
    pipeline = next((name for name in pipelines if limits.peak(name)), None)
    if pipeline is None:
        raise InputError(
            f"{node.name}: its GPU's operations a second are not known; give flops_per_s, or --seconds-per-layer"
        )
    on = _Gpu(limits, pipeline, kind)
    return np.array(model.by_layer(lambda one: on.layer(one, model.hidden, one_pass)))


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
    one_pass = _Pass.of(tokens, context, batch)
    if bandwidth is None and node is not None:
        bandwidth = next((c.bandwidth_bytes_per_s for c in node.components if isinstance(c, Memory)), None)
    if not bandwidth or not flops:
        wanted = {
            "--cpu-bandwidth (bytes/s that its memory reaches, as in 200GB)": bandwidth,
            "--cpu-flops (operations/s that it reaches, as in 2T)": flops,
        }
        lacking = " and ".join(text for text, value in wanted.items() if not value)
        raise InputError(f"what the processor reaches is not known; give {lacking}")
    kind = number_type(type_)

    def seconds(layer: Layer) -> float:
        touched = experts_touched(layer.experts, layer.experts_used, tokens)
        alone = only_experts and layer.experts > 0
        met = 0 if alone else layer.attention_weights + layer.mlp_weights
        read = (met + touched * layer.expert_weights) * kind.bytes_each
        operations = 2.0 * tokens * (met + layer.experts_used * layer.expert_weights)
        if not alone:
            read += layer.kv_elements * one_pass.cached(layer) * kind.activation_bytes
            operations += one_pass.attention(layer)
        return max(read / bandwidth, operations / flops)

    return np.array(model.by_layer(seconds))


class _Gpu(NamedTuple):
    """A GPU whose `pipeline` multiplies weights of `kind`."""

    limits: Limits
    pipeline: str
    kind: NumberType

    def layer(self, layer: Layer, hidden: int, of: _Pass) -> tuple[float, float]:
        """Seconds of the products with what moves between them, and of attention."""
        limits, width, tokens = self.limits, self.kind.activation_bytes, of.tokens
        floor = limits.least_s
        products = [(1.0, tokens, one) for one in (*layer.attention, *layer.mlp)]
        if layer.experts:
            touched = experts_touched(layer.experts, layer.experts_used, tokens)
            products += [(touched, tokens * layer.experts_used / touched, one) for one in layer.expert]
        seconds = floor * len(products) + self.products(products)
        rate = (limits.peak(self.pipeline) or np.inf) * ATTENTION_SHARE
        cache = layer.kv_elements * of.cached(layer) * width
        read = cache + tokens * layer.heads * (layer.key_size + layer.value_size) * width
        attention = floor + max(of.attention(layer) / rate, read / limits.memory)
        # A mixture without shared experts has nothing but its router in `mlp`.
        inner = layer.mlp[-1].inputs if len(layer.mlp) > 1 else 0
        inner += layer.experts_used * sum(one.inputs for one in layer.expert[-1:])
        queries = layer.heads * layer.key_size + layer.kv_elements
        # Twice a residual and a norm, each read and written; queries and keys; gate, up and their product.
        moved = tokens * width * (8.0 * hidden + 2 * queries + 3 * inner)
        seconds += MOVING_KERNELS * floor + float(memory_seconds(np.array([moved]), limits)[0])
        return seconds, attention

    def products(self, products: list[tuple[float, float, Matrix]]) -> float:
        """Seconds of products, how many of one kind and rows each; not a number where the rate is not known."""
        count, m, n, k = np.array([(many, rows, one.outputs, one.inputs) for many, rows, one in products]).T
        whole = np.ceil(m)
        # The model has one size for all three matrices: that which gives the bytes that are moved.
        size = self.kind.activation_bytes * (m * n + m * k) + n * k * self.kind.bytes_each
        sides = [count, whole, n, k, size / (whole * n + whole * k + n * k)]
        seconds = product_seconds(sides, self.pipeline, self.limits)
        return float(seconds.sum()) if seconds is not None else np.nan


#: Options that say nothing without a network.
OF_NETWORK = (
    "type", "context", "batch", "only_experts", "cached_experts", "hit_rate", "cpu_bandwidth", "cpu_flops",
)  # fmt: skip
#: Longer caches and more sequences than any GPU serves.
MOST_CONTEXT, MOST_BATCH, MOST_CACHED = 1 << 24, 1 << 20, 1 << 24


def hit_rate_of(layer: Layer, cached: int, given: float | None = None) -> float:
    """The chance that an expert that is touched lies in GPU memory: `given`, else `cached` of all, as uniform routing has.

    Raises InputError for a rate that is none, and for more cached experts than there are.
    """
    if given is not None:
        if not 0.0 <= given <= 1.0:
            raise InputError(f"--hit-rate {given:g}: give a share from 0 to 1")
        return given
    if not 0 <= cached <= layer.experts:
        raise InputError(
            f"--cached-experts {cached}: the model has {layer.experts} a layer; give 0 to that many"
        )
    return cached / layer.experts if layer.experts else 1.0


def streamed_bytes(
    layer: Layer, type_: str, tokens: float, cached: int = 0, hit_rate: float | None = None
) -> float:
    """Expected bytes of a layer's experts that a pass of `tokens` brings to the GPU: those touched that are not there.

    What is not an expert's (attention, router, shared experts) is not among them. Raises InputError as `hit_rate_of`.
    """
    missing = 1.0 - hit_rate_of(layer, cached, hit_rate)
    touched = experts_touched(layer.experts, layer.experts_used, tokens)
    return missing * touched * layer.expert_weights * number_type(type_).bytes_each


@dataclass(frozen=True)
class Network:
    """`model` in numbers of `type`, on a node: `batch` sequences with `context` tokens each in their caches.

    `only_experts`: of layers with experts those alone are brought, and only the ones that the tokens touch and that are not
    among the `cached` ones of each layer (or, at `hit_rate`, not found there). Rates of the processor in bytes/s and 1/s.
    """

    model: Model
    type: str
    node: Node
    context: float = 0
    batch: float = 1
    only_experts: bool = False
    cached: int = 0
    hit_rate: float | None = None
    cpu_bandwidth: float | None = None
    cpu_flops: float | None = None

    @cached_property
    def whole_bytes(self) -> tuple[float, ...]:
        """Weights of each layer, bytes."""
        return tuple(weight_bytes(self.model, self.type).tolist())

    @cached_property
    def held(self) -> tuple[float, ...]:
        """Bytes that each layer takes in GPU memory where it is resident."""
        each = number_type(self.type).bytes_each
        return self._experts_or_whole(lambda one: (one.experts - self.cached) * one.expert_weights * each)

    def bytes(self, tokens: float) -> tuple[float, ...]:
        """Bytes that a pass of `tokens` brings of each layer, if it lives on the host."""
        return self._experts_or_whole(
            lambda one: streamed_bytes(one, self.type, tokens, self.cached, self.hit_rate)
        )

    def _experts_or_whole(self, experts: Callable[[Layer], float]) -> tuple[float, ...]:
        if not self.only_experts:
            return self.whole_bytes
        found = self.model.by_layer(lambda one: experts(one) if one.experts else None)
        both = zip(found, self.whole_bytes, strict=True)
        return tuple(whole if one is None else one for one, whole in both)

    def always_bytes(self, tokens: float) -> float:
        """Bytes of GPU memory beside what is resident or streamed: embedding, head, caches of keys and values, and with
        `only_experts` what is no expert's of layers with experts, and the experts that are cached.
        """
        own = (self.model.embedding + self.model.head) * number_type(self.type).bytes_each
        own += kv_bytes_per_token(self.model) * (self.batch * self.context + tokens)
        return own + sum(self.whole_bytes) - sum(self.held)

    @cached_property
    def rung(self) -> str:
        """What the seconds on the GPU rest on."""
        return self.computed(1).rung

    def ends(self, tokens: float) -> tuple[Layers, Layers, Layers]:
        """The layers of a pass with the least, the predicted and the most seconds of each on the GPU."""
        found, sizes = self.computed(tokens), self.bytes(tokens)
        low, middle, high = (
            Layers(sizes, tuple(one.tolist()), held=self.held)
            for one in (found.low, found.seconds, found.high)
        )
        return low, middle, high

    @cached_property
    def computed(self) -> Callable[[float], LayerSeconds]:
        """Seconds of each layer on the GPU, its weights there, with ranges and rung, by tokens; shape (layers,)."""
        return cache(partial(self._on_gpu, self.model))

    def _on_gpu(self, model: Model, tokens: float) -> LayerSeconds:
        return gpu_seconds(model, self.node, tokens, self.context, self.batch, self.type)

    def cpu_seconds(self, tokens: float) -> tuple[float, ...]:
        """Seconds of each layer on the processor; with `only_experts` of its experts there, and of the rest on the GPU.

        Raises InputError where the processor's rates are not known.
        """
        rates = self.cpu_bandwidth, self.cpu_flops
        asked = self.context, self.batch, self.type
        seconds = cpu_seconds(self.model, tokens, *asked, *rates, self.node, self.only_experts)
        if self.only_experts:
            bare = self.model.by_layer(
                lambda one: replace(one, expert=(), experts=0) if one.experts else None
            )
            dense = replace(self.model, layers=tuple(one for one in bare if one is not None))
            seconds[[one is not None for one in bare]] += self._on_gpu(dense, tokens).seconds
        return tuple(seconds.tolist())


def network_of(said: Mapping[str, Any], node: Node) -> Network:
    """The network of the options by name (`model`, `type`, `context`, `batch`, `only_experts`, `cached_experts`, `hit_rate`,
    `cpu_bandwidth`, `cpu_flops`); those not given are None. Raises InputError that names the option.
    """
    model, type_ = read_model(said["model"]), said.get("type") or "fp16"
    number_type(type_)
    mixture = next((layer for layer in model.layers if layer.experts), None)
    only = bool(said.get("only_experts"))
    cached = whole_of(said, "cached_experts", 0, MOST_CACHED) or 0
    bandwidth = said.get("cpu_bandwidth")
    rate = float(parse_count(said["hit_rate"], "--hit-rate")) if said.get("hit_rate") else None
    if mixture is None and (only or cached or rate is not None):
        raise InputError(f"--model {model.name}: has no experts; leave the options of experts out")
    if not only and (cached or rate is not None):
        raise InputError("--cached-experts, --hit-rate: go with --only-experts; add that")
    if mixture is not None:
        hit_rate_of(mixture, cached, rate)
    return Network(
        model,
        type_,
        node,
        context=whole_of(said, "context", 0, MOST_CONTEXT) or 0,
        batch=whole_of(said, "batch", 1, MOST_BATCH) or 1,
        only_experts=only,
        cached=cached,
        hit_rate=rate,
        cpu_bandwidth=float(parse_bytes(bandwidth, "--cpu-bandwidth")) if bandwidth else None,
        cpu_flops=parse_count(said["cpu_flops"], "--cpu-flops") if said.get("cpu_flops") else None,
    )


def whole_of(said: Mapping[str, Any], key: str, least: int, most: int) -> int | None:
    """The whole number of an option; None where it was not given. Raises InputError that names the option."""
    if said.get(key) is None:
        return None
    option = "--" + key.replace("_", "-")
    number = parse_count(str(said[key]), option)
    if number != int(number) or not least <= number <= most:
        raise InputError(f"{option} {str(said[key])[:40]}: no whole number from {least} to {most}")
    return int(number)
