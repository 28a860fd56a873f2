"""Mixtures of experts: how many a batch of tokens touches, and how many of those have to be brought from the host.

Routing is taken to be uniform and tokens independent; routers favour some experts, so that a measured `hit_rate` of a cache
is higher than the uniform one.
"""

from __future__ import annotations

import math

from busfare.errors import InputError
from busfare.plan.offload.shapes import Layer, number_type

__all__ = ["experts_touched", "hit_rate_of", "streamed_bytes"]


def experts_touched(experts: int, used: int, tokens: float) -> float:
    """Expected distinct experts of `experts` that `tokens` touch, `used` each: E·(1 − (1 − k/E)^tokens)."""
    if not experts:
        return 0.0
    return experts * (1.0 - math.pow(1.0 - used / experts, tokens))


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
