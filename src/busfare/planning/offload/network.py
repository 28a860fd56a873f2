"""A network as layers by tokens: what each layer takes to compute, on a GPU that holds its weights and on a processor, and
what a pass brings of it.

By operator: products of matrices by their tiles (`cost/kernels/limits.py`), attention by its operations and the cache that
it reads, and what is bound by memory by its bytes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace as with_fields

from busfare.cost.kernels.limits import Limits, limits_of, pipeline_of, product_seconds
from busfare.cost.kernels.move import memory_seconds
from busfare.cost.ranges import Ranged, range_of
from busfare.errors import InputError
from busfare.nodes import FloatArray, Memory, Node
from busfare.planning.machine import machine_of
from busfare.planning.offload import shapes
from busfare.planning.offload.kv import host_of
from busfare.planning.offload.schedule import Layers
from busfare.planning.offload.shapes import Layer, Matrix, Model, NumberType, number_type
from busfare.questions import OF_MODEL, Offload

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
    def of(cls, tokens: float, context: float, batch: float) -> "_Pass":
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


def _rows(layer: Layer, tokens: float) -> float:
    """Rows of an expert's products, where all tokens are spread over those touched; of a layer without experts 0."""
    touched = experts_touched(layer.experts, layer.experts_used, tokens)
    return tokens * layer.experts_used / touched if touched else 0.0


@dataclass(frozen=True)
class Network:
    """`model` with weights of `type`, on a node: `batch` sequences with `context` tokens each in their caches.

    `only_experts`: of layers with experts, only experts are copied: those that the tokens touch and that are not among the
    `cached_experts` of each layer. `hit_rate`: the share of touched experts that are cached; by default, for uniform
    routing. Rates of the CPU in bytes/s and 1/s.
    """

    model: Model
    type: str
    node: Node
    context: float = 0
    batch: float = 1
    only_experts: bool = False
    cached_experts: int = 0
    hit_rate: float | None = None
    cpu_bandwidth: float | None = None
    cpu_flops: float | None = None

    @cached_property
    def whole_bytes(self) -> tuple[float, ...]:
        """Weights of each layer, bytes."""
        return tuple(shapes.weight_bytes(self.model, self.type).tolist())

    @cached_property
    def held(self) -> tuple[float, ...]:
        """Bytes that each layer takes in GPU memory where it is resident."""
        return self._experts_or_whole(lambda layer: layer.experts)

    def bytes(self, tokens: float) -> tuple[float, ...]:
        """Bytes that a pass of `tokens` brings of each layer, if it lives on the host; of experts those that are expected to
        be touched and not there, by the hit rate or as uniform routing has it.
        """

        return self._experts_or_whole(lambda layer: self.missing(layer, tokens))

    def missing(self, layer: Layer, tokens: float) -> float:
        """Experts of a layer that a pass is expected to bring."""
        if not layer.experts:
            return 0.0
        hit_rate = self.cached_experts / layer.experts if self.hit_rate is None else self.hit_rate
        return (1.0 - hit_rate) * experts_touched(layer.experts, layer.experts_used, tokens)

    def layers(self, tokens: float, seconds: Sequence[float], back: tuple[float, ...] = ()) -> Layers:
        """The layers of a pass, whose kernels take `seconds` each. Experts come in a copy each; those of few tokens are
        known once the router has run: the host waits for its choice, which a copy brings, and then for their copies.
        """
        brought = Layers(self.bytes(tokens), tuple(seconds), back, self.held, rows=tokens)
        if not self.only_experts:
            return brought
        machine = machine_of(self.node)
        host = host_of(machine)
        routed = any(
            round(experts_touched(layer.experts, layer.experts_used, tokens)) < layer.experts
            for layer in self.model.layers
        )
        choice = 2 * host.wait_s + float(machine.d2h.copy.latency_overhead_s[0]) + host.launch_s
        return replace(
            brought,
            cached=self._experts_or_whole(lambda layer: min(self.cached_experts, layer.experts), 0.0),
            pieces=tuple(self.model.by_layer(lambda layer: self.missing(layer, tokens))),
            call_seconds=host.copy_s,
            routed_seconds=choice if routed else 0.0,
            rows=max(1.0, max(_rows(layer, tokens) for layer in self.model.layers)),
        )

    def _experts_or_whole(
        self, experts: Callable[[Layer], float], dense: float | None = None
    ) -> tuple[float, ...]:
        """Bytes of so many experts of each layer; of layers without experts all weights, or `dense`."""
        if not self.only_experts:
            return self.whole_bytes
        per_weight = number_type(self.type).weight_size
        sizes = self.model.by_layer(
            lambda layer: experts(layer) * layer.expert_weights * per_weight if layer.experts else None
        )
        pairs = zip(sizes, self.whole_bytes, strict=True)
        return tuple((whole if dense is None else dense) if size is None else size for size, whole in pairs)

    def always_bytes(self, tokens: float) -> float:
        """Bytes of GPU memory beside what is resident or streamed: embedding, head, caches of keys and values, and with
        `only_experts` what is no expert's of layers with experts.
        """
        always = (self.model.embedding + self.model.head) * number_type(self.type).weight_size
        always += shapes.kv_bytes_per_token(self.model) * (self.batch * self.context + tokens)
        return always + sum(self.whole_bytes) - sum(self.held)

    def ends(self, tokens: float) -> tuple[Layers, Layers, Layers]:
        """The layers of a pass with the least, the predicted and the most seconds of each on the GPU."""
        seconds, low, high, _ = self.computed(tokens)
        least, middle, most = (self.layers(tokens, end.tolist()) for end in (low, seconds, high))
        return least, middle, most

    @cached_property
    def computed(self) -> Callable[[float], LayerSeconds]:
        """`gpu_seconds`, of each number of tokens once."""
        return cache(self.gpu_seconds)

    def gpu_seconds(self, tokens: float) -> LayerSeconds:
        """Seconds of each layer with its weights in GPU memory, for a pass of `tokens` new tokens in all of the sequences.

        A prefill has tokens = batch · prompt; a step of decoding has tokens = batch; of fewer tokens, each is a sequence of
        its own. Weights of fewer bytes than their products compute in are unpacked on the way, at no further cost. Head,
        embedding and the host's launches are none of a layer's.

        The range is that of layers measured by others where they had such ones: dense, in 2 bytes, on NVIDIA's GPUs since
        Ampere, all but attention. Of others it is the wider one of kernels carried to another GPU.

        Raises InputError where what bounds kernels on the GPU is not known.
        """
        parts = self.operator_seconds(tokens)
        limits, kind = limits_of(self.node), number_type(self.type)
        figures = "probed" if limits.rung == "probed" else "datasheet"
        wide = range_of("kernel", "compute", figures) or UNKNOWN
        near = range_of("layer", "any", figures) or wide
        judged = limits.vendor == "nvidia" and float(limits.generation or 0) >= 8 and kind.weight_size == 2
        ranges = np.array(
            [[near if judged and not layer.experts else wide, wide] for layer in self.model.layers]
        )
        low, high = ((parts * ranges[..., end]).sum(axis=1) for end in (0, 1))
        return LayerSeconds(parts.sum(axis=1), low, high, limits.rung)

    def operator_seconds(self, tokens: float) -> FloatArray:
        """As `gpu_seconds`, of the products and what is moved between them, and of attention; shape (layers, 2)."""
        limits, kind = limits_of(self.node), number_type(self.type)
        forward_pass = _Pass.of(tokens, self.context, self.batch)
        pipelines = map(pipeline_of, (kind.computes, "fp16", "fp32"))
        pipeline = next((name for name in pipelines if limits.peak(name)), None)
        if pipeline is None:
            raise InputError(
                f"{self.node.name}: its GPU's operations per second are unknown; add flops_per_s to its node file, or give "
                "measured times"
            )
        on = _Gpu(limits, pipeline, kind)
        return np.array(self.model.by_layer(lambda layer: on.layer(layer, self.model.hidden, forward_pass)))

    def cpu_seconds(self, tokens: float) -> tuple[float, ...]:
        """Seconds of each layer on the processor: the longer of the bytes read at `cpu_bandwidth` (without it, that of
        the node's host memory), and its operations at `cpu_flops`. A bound: what an implementation reaches of both has to be
        in them. With `only_experts` of its experts there, and of the rest on the GPU.

        Raises InputError where the processor's rates are not known.
        """
        forward_pass, kind = _Pass.of(tokens, self.context, self.batch), number_type(self.type)
        memories = (c.bandwidth_bytes_per_s for c in self.node.components if isinstance(c, Memory))
        bandwidth, flops = self.cpu_bandwidth or next(memories, None), self.cpu_flops
        if not bandwidth or not flops:
            wanted = {
                "`cpu_bandwidth` (bytes/s that its memory reaches, as in 200GB)": bandwidth,
                "`cpu_flops` (operations/s that it reaches, as in 2T)": flops,
            }
            lacking = " and ".join(text for text, value in wanted.items() if not value)
            raise InputError(f"the CPU's performance is unknown; give {lacking}")

        def seconds_of(layer: Layer) -> float:
            touched = experts_touched(layer.experts, layer.experts_used, tokens)
            alone = self.only_experts and layer.experts > 0
            met = 0 if alone else layer.always_weights
            read = (met + touched * layer.expert_weights) * kind.weight_size
            operations = 2.0 * tokens * (met + layer.experts_used * layer.expert_weights)
            if not alone:
                read += layer.kv_elements * forward_pass.cached(layer) * kind.activation_bytes
                operations += forward_pass.attention(layer)
            return max(read / bandwidth, operations / flops)

        seconds = np.array(self.model.by_layer(seconds_of))
        mixtures = np.array([layer.experts > 0 for layer in self.model.layers])
        if self.only_experts and mixtures.any():
            bare = self.model.by_layer(lambda layer: with_fields(layer, expert=(), experts=0))
            dense = with_fields(self.model, layers=tuple(bare))
            seconds[mixtures] += replace(self, model=dense).gpu_seconds(tokens).seconds[mixtures]
        return tuple(seconds.tolist())


class _Gpu(NamedTuple):
    """A GPU whose `pipeline` multiplies weights of `kind`."""

    limits: Limits
    pipeline: str
    kind: NumberType

    def layer(self, layer: Layer, hidden: int, of: _Pass) -> tuple[float, float]:
        """Seconds of the products with what moves between them, and of attention."""
        limits, width, tokens = self.limits, self.kind.activation_bytes, of.tokens
        floor = limits.least_s
        products = [(1.0, tokens, matrix) for matrix in (*layer.attention, *layer.mlp)]
        if layer.experts:
            touched = experts_touched(layer.experts, layer.experts_used, tokens)
            products += [(touched, tokens * layer.experts_used / touched, matrix) for matrix in layer.expert]
        seconds = floor * len(products) + self.products(products)
        rate = (limits.peak(self.pipeline) or np.inf) * ATTENTION_SHARE
        cache = layer.kv_elements * of.cached(layer) * width
        read = cache + tokens * layer.heads * (layer.key_size + layer.value_size) * width
        attention = floor + max(of.attention(layer) / rate, read / limits.memory)
        # A mixture without shared experts has nothing but its router in `mlp`.
        inner = layer.mlp[-1].inputs if len(layer.mlp) > 1 else 0
        inner += layer.experts_used * sum(matrix.inputs for matrix in layer.expert[-1:])
        queries = layer.heads * layer.key_size + layer.kv_elements
        # Twice a residual and a norm, each read and written; queries and keys; gate, up and their product.
        moved = tokens * width * (8.0 * hidden + 2 * queries + 3 * inner)
        seconds += MOVING_KERNELS * floor + float(memory_seconds(np.array([moved]), limits)[0])
        return seconds, attention

    def products(self, products: list[tuple[float, float, Matrix]]) -> float:
        """Seconds of products, how many of one kind and rows each; not a number where the rate is not known."""
        count, m, n, k = np.array([(many, rows, w.outputs, w.inputs) for many, rows, w in products]).T
        whole = np.ceil(m)
        # The model has one size for all three matrices: that which gives the bytes that are moved.
        size = self.kind.activation_bytes * (m * n + m * k) + n * k * self.kind.weight_size
        sides = [count, whole, n, k, size / (whole * n + whole * k + n * k)]
        seconds = product_seconds(sides, self.pipeline, self.limits)
        return float(seconds.sum()) if seconds is not None else np.nan


def network_of(question: Offload, node: Node) -> Network:
    """The network of `asked.model`, and how it is brought. Raises InputError that names the field."""
    assert question.model is not None
    model = shapes.read_model(question.model)
    number_type(question.type)
    experts = next((layer.experts for layer in model.layers if layer.experts), 0)
    if question.only_experts and not experts:
        raise InputError(f"`model` {model.name}: has no experts; leave out the expert options")
    if question.hit_rate is not None and not 0.0 <= question.hit_rate <= 1.0:
        raise InputError(f"`hit_rate` {question.hit_rate:g}: give a share from 0 to 1")
    if not 0 <= question.cached_experts <= experts:
        raise InputError(
            f"`cached_experts` {question.cached_experts}: the model has {experts} per layer; give a number from 0 to that"
        )
    fields = {name: getattr(question, name) for name in OF_MODEL}
    if question.hit_rate is not None and not question.cached_experts:
        # The cache size at which uniform routing has that hit rate.
        fields["cached_experts"] = math.ceil(question.hit_rate * experts)
    return Network(model, node=node, **fields)
