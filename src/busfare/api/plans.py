"""Plans from Python: overlap strategies, offloaded layers, KV caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from busfare.answers.kv import answer_kv
from busfare.answers.offload import answer_offload
from busfare.answers.plan import answer_plan
from busfare.api import answers
from busfare.api.answers import answer
from busfare.errors import InputError, instead_of
from busfare.nodes import Node
from busfare.planning.ask import KEYS
from busfare.show import plans as shown

__all__ = ["plan", "plan_kv", "plan_offload"]

#: What each plan can be asked, as the options of its command.
STRATEGIES = (*KEYS, "node", "to", "file", "from_trace", "kernel_name", "sweep")
OFFLOAD = (
    "node", "model", "layers", "bytes_per_layer", "seconds_per_layer", "tokens", "resident", "depth", "memory", "budget",
    "back_bytes_per_layer", "cpu_seconds_per_layer", "gpus", "type", "context", "batch", "only_experts", "cached_experts",
    "hit_rate", "cpu_bandwidth", "cpu_flops", "from_trace",
)  # fmt: skip
KV = (
    "node", "model", "type", "bytes_per_token", "tokens", "block_tokens", "pieces", "layout", "evict", "prefill_seconds",
    "launch", "batch_launch", "memcpy",
)  # fmt: skip
KV_DEFAULTS = {"tokens": "8192", "block_tokens": "16"}
#: Those that are times, for which a number of seconds does; those that may be given several times; and paths.
TIMES = (
    "kernel",
    "kernel_at",
    "launch",
    "batch_launch",
    "seconds_per_layer",
    "cpu_seconds_per_layer",
    "prefill_seconds",
)
MANY, PATHS = ("to", "kernel_at"), ("file", "from_trace")


def plan(**asked: Any) -> answers.Plan:
    """Which overlap strategy is fastest for a kernel: `plan(h2d="336MB", d2h="504MB", kernel="12ms", node="h100-sxm")`.

    The options are those of `busfare plan`; numbers are bytes, seconds and counts.
    """
    result = answer_plan(_options(asked, STRATEGIES))
    return answer(answers.Plan, result, lambda _: shown.plan_document(result))


def plan_offload(**asked: Any) -> answers.OffloadPlan:
    """Layers that live on the host: how many should stay, how deep to prefetch. Options of `busfare plan offload`."""
    result = answer_offload(_options(asked, OFFLOAD))
    return answer(answers.OffloadPlan, result, lambda _: shown.offload_document(result))


def plan_kv(**asked: Any) -> answers.KvPlan:
    """KV caches on the host: fetch or compute again, in which blocks and layout. Options of `busfare plan kv`."""
    result = answer_kv(KV_DEFAULTS | _options(asked, KV))
    return answer(answers.KvPlan, result, lambda _: shown.kv_document(result))


def _options(given: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """The options of a plan by key, as the command line gives them. Raises InputError for one that it does not know."""
    if unknown := [name for name in given if name not in known]:
        raise InputError(f"{unknown[0]}: is no option; {instead_of(unknown[0], known)}")

    def text(name: str, value: Any) -> Any:
        if isinstance(value, (bool, Node)):
            return value
        if name in TIMES and isinstance(value, (int, float)):
            return f"{value!r}s"
        return Path(value) if name in PATHS else str(value)

    asked: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, Mapping):  # by tokens, or by number
            each = [f"{key}={text(name, one)}" for key, one in value.items()]
        else:
            each = [text(name, one) for one in (value if isinstance(value, (list, tuple)) else [value])]
        one = each[0] if len(each) == 1 else ",".join(map(str, each))
        asked["vary" if name == "sweep" else name] = tuple(each) if name in MANY else one
    return asked
