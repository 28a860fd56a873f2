"""The roofline extended by the host link: three bounds on a kernel's performance [W14 §III-A]."""

from __future__ import annotations

from dataclasses import dataclass

from busfare.plan.machine import Machine
from busfare.plan.problem import Problem

__all__ = ["Roofline", "roofline_of"]


@dataclass(frozen=True, slots=True)
class Roofline:
    """Intensities are flops per byte, bandwidths bytes per second, the rest flops per second.

    `data_intensity`: flops per byte that crosses the link once; `operational_intensity`: per byte of device memory.
    `link_bytes_per_s` is both ways one after the other, `duplex_bytes_per_s` both at once: W14 has one bandwidth, but
    a bound must let both directions run.
    """

    data_intensity: float
    operational_intensity: float
    peak: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    duplex_bytes_per_s: float
    roof: float
    full_overlap: float
    no_overlap: float
    mapped: float


def roofline_of(problem: Problem, machine: Machine) -> Roofline | None:
    """The bounds of `problem`; None where its flops, or the GPU's rates, are not known.

    Without `device_bytes` each element is taken to be read or written once. Bytes are those of the problem, mapped
    ones times their accesses.
    """
    gpu = machine.gpu
    peak, memory = gpu.flops_per_s, gpu.memory_bandwidth_bytes_per_s
    flops = problem.flops
    if flops is None or peak is None or memory is None:
        return None
    moved = problem.h2d_bytes + problem.d2h_bytes
    device = problem.device_bytes or moved
    into = problem.h2d_bytes * machine.h2d.copy.long_gap_per_byte_s
    out = problem.d2h_bytes * machine.d2h.copy.long_gap_per_byte_s
    if into + out <= 0:
        return None
    data_intensity, operational = flops / moved, flops / device
    link, duplex = moved / (into + out), moved / max(into, out)
    roof = min(peak, memory * operational)
    accessed = max(into * problem.accesses_in, out * problem.accesses_out)
    return Roofline(
        data_intensity,
        operational,
        peak,
        memory,
        link,
        duplex,
        roof,
        full_overlap=min(roof, duplex * data_intensity),
        no_overlap=flops / (moved / link + flops / roof),
        mapped=min(peak, flops / accessed),
    )
