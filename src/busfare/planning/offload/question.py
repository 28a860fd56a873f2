"""A question about offloading → layers by tokens, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from busfare.errors import FieldError, InputError
from busfare.planning.offload.network import Network
from busfare.planning.offload.schedule import Layers, Memory
from busfare.quantities import LayerTimes
from busfare.questions import Offload

__all__ = ["Question", "question_of"]

#: Seconds by tokens.
ByTokens = Callable[[float], Sequence[float]]


@dataclass(frozen=True)
class Question:
    """`bytes`, `back_bytes` by layer; `seconds(tokens)` by layer, and `cpu_seconds(tokens)` of a layer on the processor.

    What nobody said is None. `varies`: whether seconds do, with tokens. `budget`: bytes of GPU memory for the layers. `gpus`
    stream at once. `network`: whose layers they are; it says what they hold at any number of tokens. `predicted`: whether
    `seconds` are predicted too, and have a range of their own.
    """

    bytes: tuple[float, ...]
    back_bytes: tuple[float, ...]
    seconds: ByTokens
    tokens: float
    cpu_seconds: ByTokens | None
    resident: int | None
    depth: int | None
    memory: Memory | None
    budget: float | None
    gpus: int
    varies: bool
    network: Network | None
    predicted: bool

    def layers(self, tokens: float | None = None) -> Layers:
        """The layers at so many tokens, or at those that were asked for."""
        tokens = self.tokens if tokens is None else tokens
        seconds = tuple(self.seconds(tokens))
        if self.network is not None:
            return Layers(self.network.bytes(tokens), seconds, self.back_bytes, self.network.held)
        return Layers(self.bytes, seconds, self.back_bytes)


def question_of(asked: Offload, recorded: Layers | None = None, network: Network | None = None) -> Question:
    """The question about layers that were `recorded`, of a `network` (whose times go behind those that were measured), or
    that `asked` describes. Raises InputError that names the field.
    """
    count = len(network.model.layers) if network else len(recorded) if recorded else asked.layers or 0
    tokens = asked.tokens or 1
    given = _by_tokens("seconds_per_layer", asked.seconds_per_layer, count)
    varies = isinstance(asked.seconds_per_layer, Mapping) or (network is not None and given is None)
    back: Sequence[float] = asked.back_bytes_per_layer
    sizes: Sequence[float]
    seconds: ByTokens
    if network:
        sizes = network.bytes(tokens)
        seconds = given or (lambda n: network.computed(n).seconds.tolist())
    elif recorded:
        sizes, back, seconds = recorded.bytes, recorded.back_bytes, lambda tokens: recorded.seconds
    else:
        assert given is not None
        sizes, seconds = _one_a_layer("bytes_per_layer", asked.bytes_per_layer, count), given
    if varies and asked.tokens is None:
        raise InputError(
            "`tokens`: the times are given by tokens; say how many a pass works on, as in `tokens` 1"
        )
    if asked.resident is not None and asked.resident > count:
        raise InputError(f"`resident` {asked.resident}: no whole number from 0 to {count}")
    on_cpu = _by_tokens("cpu_seconds_per_layer", asked.cpu_seconds_per_layer, count)
    if on_cpu is None and network and (network.cpu_bandwidth or network.cpu_flops):
        network.cpu_seconds(tokens)  # which says what is missing
        on_cpu = network.cpu_seconds
    question = Question(
        bytes=tuple(sizes),
        back_bytes=tuple(_one_a_layer("back_bytes_per_layer", back, count)),
        seconds=seconds,
        tokens=tokens,
        cpu_seconds=on_cpu,
        resident=asked.resident,
        depth=asked.depth,
        memory=asked.memory,
        budget=asked.budget,
        gpus=asked.gpus,
        varies=varies,
        network=network,
        predicted=network is not None and given is None,
    )
    question.layers()
    return question


def _one_a_layer(name: str, values: Sequence[float], count: int) -> Sequence[float]:
    if len(values) in (0, count):
        return values
    if len(values) > 1:
        raise FieldError(name, f": {len(values)} values for {count} layers; give one, or one a layer")
    return list(values) * count


def _by_tokens(name: str, given: LayerTimes | None, count: int) -> ByTokens | None:
    """Seconds of each layer by tokens: straight lines between and along the last two beyond, never below the first."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        fixed = _one_a_layer(name, given, count)
        return lambda tokens: fixed
    places, times = [*given], [*given.values()]
    slope = max(0.0, (times[-1] - times[-2]) / (places[-1] - places[-2])) if len(places) > 1 else 0.0

    def seconds(tokens: float) -> Sequence[float]:
        beyond = slope * max(0.0, tokens - places[-1])
        return [float(np.interp(tokens, places, times)) + beyond] * count

    return seconds
