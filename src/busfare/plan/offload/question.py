"""A question about offloading in the user's words (`1.7GB`, `512=1.2ms`) → layers by tokens, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from busfare.errors import InputError
from busfare.plan.offload.network import Network
from busfare.plan.offload.schedule import MEMORIES, MOST_LAYERS, Layers, Memory
from busfare.quantities import parse_bytes, parse_count, parse_seconds

__all__ = ["MOST_DEPTH", "Question", "question_of"]

MOST_DEPTH, MOST_TOKENS, MOST_GPUS = 64, 1 << 24, 64
#: Seconds by tokens.
ByTokens = Callable[[float], Sequence[float]]


@dataclass(frozen=True)
class Question:
    """`bytes`, `back_bytes` by layer; `seconds(tokens)` by layer, and `cpu_seconds(tokens)` of a layer on the processor.

    What nobody said is None. `budget`: bytes of GPU memory for the layers. `gpus` stream at once. `network`: whose layers
    they are; it says what they hold at any number of tokens.
    """

    bytes: tuple[float, ...]
    back_bytes: tuple[float, ...]
    seconds: ByTokens
    tokens: float
    cpu_seconds: ByTokens | None = None
    resident: int | None = None
    depth: int | None = None
    memory: Memory | None = None
    budget: float | None = None
    gpus: int = 1
    varies: bool = False
    network: Network | None = None
    #: Whether `seconds` are predicted too, and have a range of their own.
    predicted: bool = False

    def layers(self, tokens: float | None = None) -> Layers:
        """The layers at so many tokens, or at those that were asked for."""
        tokens = self.tokens if tokens is None else tokens
        seconds = tuple(self.seconds(tokens))
        if self.network is not None:
            return Layers(self.network.bytes(tokens), seconds, self.back_bytes, self.network.held)
        return Layers(self.bytes, seconds, self.back_bytes)


#: What says the layers, where a trace does not.
OF_LAYERS = ("layers", "bytes_per_layer", "seconds_per_layer", "back_bytes_per_layer")


def question_of(
    said: Mapping[str, Any], recorded: Layers | None = None, network: Network | None = None
) -> Question:
    """The question of the options by name, about layers that were `recorded`, of a `network`, or that they say; those not
    given are None. Raises InputError that names the option.
    """
    if network is not None:
        return _of_network(said, network)
    if recorded is not None:
        if twice := [key for key in OF_LAYERS if said.get(key) is not None]:
            raise InputError(
                f"--{twice[0].replace('_', '-')}: --from-trace says it already; give one of them"
            )
        sizes, back, times = recorded.bytes, recorded.back_bytes, recorded.seconds
        return _asked_of(said, len(recorded), sizes, back, (lambda tokens: times, False))
    count = _whole(said, "layers", 1, MOST_LAYERS)
    if count is None:
        raise InputError("--layers: how many layers there are is not said, as in --layers 32")
    sizes = _sizes(said, "bytes_per_layer", count)
    if not sizes:
        raise InputError(
            "--bytes-per-layer: how large a layer is, is not said, as in --bytes-per-layer 436MB"
        )
    by_tokens = _by_tokens(said, "seconds_per_layer", count)
    if by_tokens[0] is None:
        raise InputError(
            "--seconds-per-layer: what a layer takes on the GPU, its weights there, is not said, as in "
            "--seconds-per-layer 1.2ms, or by tokens, 1=0.2ms,2048=4ms"
        )
    return _asked_of(said, count, sizes, _sizes(said, "back_bytes_per_layer", count), by_tokens)


def _asked_of(
    said: Mapping[str, Any],
    count: int,
    sizes: tuple[float, ...],
    back: tuple[float, ...],
    by_tokens: tuple[ByTokens | None, bool],
) -> Question:
    """What is asked of `count` layers of these sizes, and seconds by tokens."""
    seconds, varies = by_tokens
    assert seconds is not None
    memory = said.get("memory")
    if memory not in (None, *MEMORIES):
        raise InputError(f"--memory {str(memory)[:40]!r}: not known; one of {', '.join(MEMORIES)}")
    tokens = _whole(said, "tokens", 1, MOST_TOKENS)
    if varies and tokens is None:
        raise InputError(
            "--tokens: the times are given by tokens; say how many a pass works on, as in --tokens 1"
        )
    budget = parse_bytes(said["budget"]) if said.get("budget") else None
    question = Question(
        bytes=sizes,
        back_bytes=back,
        seconds=seconds,
        tokens=tokens or 1,
        cpu_seconds=_by_tokens(said, "cpu_seconds_per_layer", count)[0],
        resident=_whole(said, "resident", 0, count),
        depth=_whole(said, "depth", 0, MOST_DEPTH),
        memory=memory,
        budget=budget,
        gpus=_whole(said, "gpus", 1, MOST_GPUS) or 1,
        varies=varies,
    )
    question.layers()
    return question


def _of_network(said: Mapping[str, Any], network: Network) -> Question:
    """About the layers of a network; times that were measured go before those predicted."""
    if twice := [key for key in OF_LAYERS[:2] if said.get(key) is not None]:
        raise InputError(f"--{twice[0].replace('_', '-')}: --model says it already; give one of them")
    count = len(network.model.layers)
    given, varies = _by_tokens(said, "seconds_per_layer", count)
    predicted = (lambda tokens: network.computed(tokens).seconds.tolist(), True)
    back, by_tokens = _sizes(said, "back_bytes_per_layer", count), (given, varies) if given else predicted
    tokens = _whole(said, "tokens", 1, MOST_TOKENS) or 1
    question = _asked_of(said, count, network.bytes(tokens), back, by_tokens)
    on_cpu = question.cpu_seconds
    if on_cpu is None and (network.cpu_bandwidth or network.cpu_flops):
        network.cpu_seconds(tokens)
        on_cpu = network.cpu_seconds
    return replace(question, network=network, cpu_seconds=on_cpu, predicted=given is None)


def _whole(said: Mapping[str, Any], key: str, least: int, most: int) -> int | None:
    if said.get(key) is None:
        return None
    number = parse_count(str(said[key]))
    if number != int(number) or not least <= number <= most:
        option = key.replace("_", "-")
        raise InputError(f"--{option} {str(said[key])[:40]}: no whole number from {least} to {most}")
    return int(number)


def _sizes(said: Mapping[str, Any], key: str, count: int) -> tuple[float, ...]:
    parts = [float(parse_bytes(part)) for part in str(said.get(key) or "").split(",") if part]
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
        fixed = _one_a_layer([parse_seconds(part[0]) for part in parts], key, count)
        return lambda tokens: fixed, False
    points: dict[float, float] = {}
    for tokens, equals, time in parts:
        if not equals:
            raise InputError(f"{option} {tokens[:40]!r}: no point; write TOKENS=TIME, as in 512=1.2ms")
        points[parse_count(tokens)] = parse_seconds(time)
    places = sorted(points)
    times = [points[place] for place in places]
    slope = max(0.0, (times[-1] - times[-2]) / (places[-1] - places[-2])) if len(places) > 1 else 0.0

    def seconds(tokens: float) -> Sequence[float]:
        beyond = slope * max(0.0, tokens - places[-1])
        return [float(np.interp(tokens, places, times)) + beyond] * count

    return seconds, True
