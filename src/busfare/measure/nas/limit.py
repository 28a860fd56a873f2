"""What an iteration takes at least by our own model: the link both ways or the kernels, whichever is slower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from busfare.errors import InputError
from busfare.measure.nas.problem import Benchmark, kernel_bytes, link_bytes
from busfare.node import Node
from busfare.plan import machine_of

__all__ = ["Rates", "limit_of", "rates_of_limits", "rates_of_node"]


@dataclass(frozen=True, slots=True)
class Rates:
    """What a prediction rests on: the link each way while both are busy, and copies inside GPU memory (reads and writes
    counted), both in bytes a second; and where the figures are from.
    """

    each_way_bytes_per_s: float
    memory_bytes_per_s: float
    source: str

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
        each_way = max(float(row["each_way_together_bytes_per_second"]) for row in limits["both_directions"])
        memory = float(limits["device_copy_bytes_per_second"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{source}: no result of device_limits ({type(error).__name__}: {error}); run it again"
        ) from None
    if not (each_way > 0 and memory > 0):
        raise InputError(f"{source}: a rate of 0; run device_limits again")
    return Rates(each_way, memory, source)


def limit_of(benchmark: Benchmark, size: str, rates: Rates, gpus: int, inside_gpu: bool) -> dict[str, Any]:
    """The predicted limit of an iteration spread evenly over `gpus` GPUs, each on a link of its own: seconds, and by
    which of the two.
    """
    link = link_bytes(benchmark, size, inside_gpu) / rates.each_way_bytes_per_s / gpus
    kernels = kernel_bytes(benchmark, size, inside_gpu) / rates.memory_bytes_per_s / gpus
    return {
        "predicted_seconds": max(link, kernels),
        "by": "link" if link >= kernels else "kernels",
        "predicted_link_seconds": link,
        "predicted_kernel_seconds": kernels,
    }
