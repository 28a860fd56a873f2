"""A network in the words of the command line (`--model llama-3.1-70b --type q4_0 …`), as layers by tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from busfare.errors import InputError
from busfare.nodes import Node
from busfare.planning.offload.compute import LayerSeconds, cpu_seconds, experts_touched, gpu_seconds
from busfare.planning.offload.schedule import Layers
from busfare.planning.offload.shapes import (
    Layer,
    Model,
    kv_bytes_per_token,
    number_type,
    read_model,
    weight_bytes,
)
from busfare.quantities import parse_bytes, parse_count

__all__ = ["OF_NETWORK", "Network", "hit_rate_of", "network_of", "streamed_bytes", "whole_of"]

#: Options that say nothing without a network.
OF_NETWORK = (
    "type",
    "context",
    "batch",
    "only_experts",
    "cached_experts",
    "hit_rate",
    "cpu_bandwidth",
    "cpu_flops",
)
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

    def computed(self, tokens: float) -> LayerSeconds:
        """Seconds of each layer on the GPU, its weights there, with ranges and rung; shape (layers,)."""
        if tokens not in self._computed:
            self._computed[tokens] = self._on_gpu(self.model, tokens)
        return self._computed[tokens]

    @cached_property
    def _computed(self) -> dict[float, LayerSeconds]:
        return {}

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
