"""A question about offloading in the user's words (`1.7GB`, `512=1.2ms`) → layers by tokens, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from busfare.errors import InputError
from busfare.planning.offload.network import Network, whole_of
from busfare.planning.offload.schedule import MEMORIES, MOST_LAYERS, Layers, Memory
from busfare.quantities import parse_bytes, parse_count, parse_seconds

__all__ = ["MOST_DEPTH", "Question", "question_of"]

MOST_DEPTH, MOST_TOKENS, MOST_GPUS = 64, 1 << 24, 64
#: What says the layers, where a trace does not, and what a network says of them too.
OF_LAYERS = ("layers", "bytes_per_layer", "seconds_per_layer", "back_bytes_per_layer")
OF_BOTH = OF_LAYERS[:2]
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


def question_of(
    said: Mapping[str, Any], recorded: Layers | None = None, network: Network | None = None
) -> Question:
    """The question of the options by name, about layers that were `recorded`, of a `network` (whose times go behind those
    that were measured), or that the options say; those not given are None. Raises InputError that names the option.
    """
    source, taken = ("--model", OF_BOTH) if network else ("--from-trace", OF_LAYERS if recorded else ())
    if twice := [key for key in taken if said.get(key) is not None]:
        raise InputError(f"--{twice[0].replace('_', '-')}: {source} says it already; give one of them")
    tokens, memory = whole_of(said, "tokens", 1, MOST_TOKENS), said.get("memory")
    count = len(network.model.layers) if network else len(recorded) if recorded else _layers_said(said)
    given, varies = _by_tokens(said, "seconds_per_layer", count)
    back = _sizes(said, "back_bytes_per_layer", count)
    seconds: ByTokens
    if network:
        sizes = network.bytes(tokens or 1)
        seconds, varies = (given, varies) if given else (lambda n: network.computed(n).seconds.tolist(), True)
    elif recorded:
        sizes, back, seconds = recorded.bytes, recorded.back_bytes, lambda tokens: recorded.seconds
    else:
        sizes = _sizes(said, "bytes_per_layer", count)
        if not sizes:
            raise InputError(
                "--bytes-per-layer: how large a layer is, is not said, as in --bytes-per-layer 436MB"
            )
        if given is None:
            raise InputError(
                "--seconds-per-layer: what a layer takes on the GPU, its weights there, is not said, as in "
                "--seconds-per-layer 1.2ms, or by tokens, 1=0.2ms,2048=4ms"
            )
        seconds = given
    if memory not in (None, *MEMORIES):
        raise InputError(f"--memory {str(memory)[:40]!r}: not known; one of {', '.join(MEMORIES)}")
    if varies and tokens is None:
        raise InputError(
            "--tokens: the times are given by tokens; say how many a pass works on, as in --tokens 1"
        )
    on_cpu, _ = _by_tokens(said, "cpu_seconds_per_layer", count)
    if on_cpu is None and network and (network.cpu_bandwidth or network.cpu_flops):
        network.cpu_seconds(tokens or 1)  # which says what is missing
        on_cpu = network.cpu_seconds
    question = Question(
        bytes=sizes,
        back_bytes=back,
        seconds=seconds,
        tokens=tokens or 1,
        cpu_seconds=on_cpu,
        resident=whole_of(said, "resident", 0, count),
        depth=whole_of(said, "depth", 0, MOST_DEPTH),
        memory=memory,
        budget=parse_bytes(said["budget"], "--budget") if said.get("budget") else None,
        gpus=whole_of(said, "gpus", 1, MOST_GPUS) or 1,
        varies=varies,
        network=network,
        predicted=network is not None and given is None,
    )
    question.layers()
    return question


def _layers_said(said: Mapping[str, Any]) -> int:
    count = whole_of(said, "layers", 1, MOST_LAYERS)
    if count is None:
        raise InputError("--layers: how many layers there are is not said, as in --layers 32")
    return count


def _sizes(said: Mapping[str, Any], key: str, count: int) -> tuple[float, ...]:
    option = "--" + key.replace("_", "-")
    parts = [float(parse_bytes(part, option)) for part in str(said.get(key) or "").split(",") if part]
    return tuple(_one_a_layer(parts, key, count))


def _one_a_layer(values: Sequence[float], key: str, count: int) -> Sequence[float]:
    if len(values) in (0, count):
        return values
    if len(values) > 1:
        option = key.replace("_", "-")
        raise InputError(f"--{option}: {len(values)} values for {count} layers; give one, or one a layer")
    return list(values) * count


def _by_tokens(said: Mapping[str, Any], key: str, count: int) -> tuple[ByTokens | None, bool]:
    """Seconds of each layer by tokens, and whether they vary with them: `TIME`, `TIME,TIME,…` a layer, or
    `TOKENS=TIME,…`, straight lines between and along the last two beyond, never below the first.
    """
    text, option = str(said.get(key) or ""), "--" + key.replace("_", "-")
    if not text:
        return None, False
    parts = [part.partition("=") for part in text.split(",") if part]
    if not any(equals for _, equals, _ in parts):
        fixed = _one_a_layer([parse_seconds(part[0], option) for part in parts], key, count)
        return lambda tokens: fixed, False
    points: dict[float, float] = {}
    for tokens, equals, time in parts:
        if not equals:
            raise InputError(f"{option} {tokens[:40]!r}: no point; write TOKENS=TIME, as in 512=1.2ms")
        points[parse_count(tokens, option)] = parse_seconds(time, option)
    places = sorted(points)
    times = [points[place] for place in places]
    slope = max(0.0, (times[-1] - times[-2]) / (places[-1] - places[-2])) if len(places) > 1 else 0.0

    def seconds(tokens: float) -> Sequence[float]:
        beyond = slope * max(0.0, tokens - places[-1])
        return [float(np.interp(tokens, places, times)) + beyond] * count

    return seconds, True
