"""What an iteration takes at least by our own model: the link both ways or the kernels, whichever is slower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from busfare.errors import InputError
from busfare.measure.nas.problem import Benchmark, kernel_bytes, link_bytes, mg_kernels
from busfare.node import Node
from busfare.plan import machine_of

__all__ = ["Rates", "each_way_of", "limit_of", "rates_beside", "rates_of_limits", "rates_of_node"]


@dataclass(frozen=True, slots=True)
class Rates:
    """What a prediction rests on: the link each way while both are busy, and copies inside GPU memory (reads and writes
    counted), both in bytes a second; where the figures are from; and what MG's kernels took alone, by the points an axis of
    their level and by name, where that was measured.
    """

    each_way_bytes_per_s: float
    memory_bytes_per_s: float
    source: str
    mg_kernel_seconds: Mapping[tuple[int, str], float] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """The figures by name, for JSON."""
        return {
            "each_way_bytes_per_second": self.each_way_bytes_per_s,
            "memory_bytes_per_second": self.memory_bytes_per_s,
            "source": self.source,
        }


def rates_of_node(node: Node) -> Rates:
    """Of a node of the catalogue or a probed one. Raises InputError where it does not tell of its GPU's memory."""
    machine = machine_of(node)
    memory = machine.gpu.memory_bandwidth_bytes_per_s
    if memory is None:
        raise InputError(
            f"{node.name}: no memory_bandwidth_bytes_per_s of its GPU, which the kernels' limit needs"
        )
    slowest = max(way.copy.long_gap * way.beside_copy for way in (machine.h2d, machine.d2h))
    return Rates(1 / slowest, memory, f"the parameters of {node.name}")


def rates_of_limits(limits: dict[str, Any], source: str) -> Rates:
    """Of what `device_limits` measured: the best that both ways reached together, and its copy inside GPU memory."""
    try:
        each_way = each_way_of(limits)
        memory = float(limits["device_copy_bytes_per_second"])
        alone = {
            (int(table.removeprefix("mg_")), str(row["name"])): float(row["seconds"])
            for table, rows in limits.items()
            if table.startswith("mg_")
            for row in rows
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{source}: no result of device_limits ({type(error).__name__}: {error}); run it again"
        ) from None
    if not (each_way > 0 and memory > 0):
        raise InputError(f"{source}: a rate of 0; run device_limits again")
    # The levels below are one kernel whatever the grid that it was timed beside.
    alone |= {(16, name): s for (_, name), s in alone.items() if name == "mg_solve_coarse_16"}
    return Rates(each_way, memory, source, alone)


def each_way_of(limits: dict[str, Any]) -> float:
    """Bytes per second each way, the best that both ways reached together in what `device_limits` measured.

    Raises KeyError, TypeError, ValueError where it is no such result.
    """
    return max(float(row["each_way_together_bytes_per_second"]) for row in limits["both_directions"])


def rates_beside(rates: Rates, link: Sequence[float]) -> Rates:
    """`rates` with the link as it was just before and after a run: bytes per second each way, of which the mean."""
    return replace(
        rates,
        each_way_bytes_per_s=sum(link) / len(link),
        source=f"{rates.source}; the link just before and after the run",
    )


def limit_of(benchmark: Benchmark, size: str, rates: Rates, gpus: int, inside_gpu: bool) -> dict[str, Any]:
    """The predicted limit of an iteration spread evenly over `gpus` GPUs, each on a link of its own: seconds, and by
    which of the two. `predicted_seconds` takes the kernels by the bytes that they move at least; `predicted_alone_seconds`
    by what each took when it was measured alone, as `plan` takes a kernel (None: not measured).
    """
    link = link_bytes(benchmark, size, inside_gpu) / rates.each_way_bytes_per_s / gpus
    kernels = kernel_bytes(benchmark, size, inside_gpu) / rates.memory_bytes_per_s / gpus
    alone = _alone(benchmark, size, rates)
    return {
        "predicted_seconds": max(link, kernels),
        "by": "link" if link >= kernels else "kernels",
        "predicted_link_seconds": link,
        "predicted_kernel_seconds": kernels,
        "predicted_alone_seconds": None if alone is None else max(link, alone / gpus),
    }


def _alone(benchmark: Benchmark, size: str, rates: Rates) -> float | None:
    """Seconds of MG's kernels, one after the other, each as it was measured alone; FT's link is its limit."""
    if benchmark != "mg":
        return None
    wanted = mg_kernels(size)
    if any(kernel not in rates.mg_kernel_seconds for kernel in wanted):
        return None
    return sum(rates.mg_kernel_seconds[kernel] for kernel in wanted)
