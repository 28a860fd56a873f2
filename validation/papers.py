"""What the source papers publish, from the inputs that they give: predicted | published | error.

Run `python validation/papers.py`. Says plainly what cannot be recomputed, and why. Goals are of what must follow from a
paper's own formulas.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from claims import goal, judge, table

from busfare.cost import model
from busfare.cost.copies import effective_bytes
from busfare.cost.models import copy_operations
from busfare.nodes import Flow, Node, load_node
from busfare.nodes.link import PCIE
from busfare.planning import strategies as w14

MB = 1 << 20
FLOWS: dict[str, Flow] = {"h2d": "read", "d2h": "write"}
#: W14 table I: L+o and G of its GTX Titan.
W14_COPY = {"h2d": (9.420e-6, 8.318392e-11), "d2h": (9.023e-6, 7.924734e-11)}
#: W14 table I: g. Table II: by node and what moves meanwhile, G of both directions.
W14_GAP = {"h2d": 2.503e-6, "d2h": 2.674e-6}
W14_SHARED = {
    ("k20", "explicit"): (1.741965e-10, 1.747120e-10),
    ("k20", "mapped"): (2.491988e-10, 2.236644e-10),
    ("gtx-titan", "mapped"): (1.193386e-10, 1.480396e-10),
}
#: The work of the equations: B_hd and B_dh (bytes), t_E (s) and nStreams.
WORK = (1e8, 3e8, 20e-3, 42)
A19_LANES = {1: 0.25, 2: 0.5, 3: 1.0, 4: 2.0}
NOT_REPRODUCED = """Not reproduced, for want of inputs:
  W14 figures 5 and 6: the measured curves are drawings; only the errors of the fit are in the text
  W14 figures 8 to 10: the kernel times of state and buoydiff are not given
  A19 tables III and IV, figures 9 to 11: traces and L+o are not in the paper"""
#: What is compared, predicted, published, its unit, and by how many percent it may be off (None: it is measured there).
Line = tuple[str, float, float, str, float | None]


def main() -> None:
    wrong = 0
    for head, lines in (
        ("W14 table I on its GTX Titan, our data-sheet G against the measured G", _w14()),
        ("W14 table II, G beside explicit and mapped copies", _w14_shared()),
        ("W14 equations by hand, 100 MB in, 300 MB out, 20 ms, 42 streams", _w14_equations()),
        ("A19 table II and text", _a19()),
        ("A19 equations by hand, 1 MiB", _a19_equations()),
        ("F12 and S16, 16 MB by the data sheet against their copies", _large_copies()),
    ):
        compared = [(*line[:4], 100 * (line[1] / line[2] - 1), line[4]) for line in lines]
        wrong += sum(most is not None and abs(error) > most for *_, error, most in compared)
        table(f"{head}|predicted:.4g|published:.4g|unit|error %:+.2f|at most:g", compared)
    goal("figures that must follow, and do not", wrong, most=0, form="d")
    print(NOT_REPRODUCED)


def _measured_gap(node: Node, direction: str, memory: str = "pinned") -> float:
    curve = node.curve(direction, memory)
    assert curve is not None
    return curve.long_gap_per_byte_s


def _w14() -> Iterator[Line]:
    titan, size = load_node("gtx-titan"), 16 * MB
    for direction, (start, gap) in W14_COPY.items():
        sheet = 1 / titan.host_path(0).bandwidth(FLOWS[direction])
        measured = _measured_gap(titan, direction)
        yield f"G {direction}, PCIe 3.0 x16", 1e12 * sheet, 1e12 * measured, "ps/B", None
        seconds = model("loggp").seconds(copy_operations(direction, "pinned", [size]), titan)[0]
        by_hand = start + size * gap
        yield f"T = (L+o) + kG {direction}, 16 MB, one stream", seconds * 1e3, by_hand * 1e3, "ms", 1e-6


def _w14_shared() -> Iterator[Line]:
    for (name, out), published in W14_SHARED.items():
        node = load_node(name)
        c, path = node.contention(), node.host_path(0)
        into, back = (c.copy_beside_mapped, c.mapped_beside_copy) if out == "mapped" else (c.both, c.both)
        for (direction, flow), share, gap in zip(FLOWS.items(), (into.h2d, back.d2h), published, strict=True):
            alone = W14_COPY[direction][1] if name == "gtx-titan" else 1 / path.bandwidth(flow)
            yield f"{name}, {out}, {direction}", 1e12 * alone / share, 1e12 * gap, "ps/B", 1.0


def _w14_equations() -> Iterator[Line]:
    (start_in, gap_in), (start_out, gap_out) = W14_COPY.values()
    further_in, further_out = W14_GAP.values()
    bytes_in, bytes_out, kernel, n = WORK
    into, out = bytes_in * gap_in, bytes_out * gap_out
    work = n, into, kernel, out, start_in, start_out, further_in, further_out
    cut = w14.Cut(*(np.array(float(term)) for term in work))
    all_in, all_out = start_in + into + further_in * (n - 1), start_out + out + further_out * (n - 1)
    first_in, last_out = start_in + into / n, start_out + out / n
    leads_in, leads_out = all_in + kernel / n + last_out, first_in + kernel / n + all_out
    by_hand = {
        "explicit": (w14.explicit, start_in + into + kernel + start_out + out),
        "eq 1": (w14.eq1, first_in + kernel + all_out),
        "eq 2": (w14.eq2, all_in + kernel / n + all_out),
        "eq 3": (w14.eq3, first_in + kernel + last_out),
        "eq 4": (w14.eq4, max(all_in + all_out, leads_in, leads_out)),
        "eq 5": (w14.eq5_shared, max(leads_in, first_in + kernel + last_out, leads_out)),
        "eq 6": (w14.eq6, start_in + start_out + max(into, kernel, out)),
    }
    for name, (equation, seconds) in by_hand.items():
        yield name, 1e3 * float(equation(cut)), 1e3 * seconds, "ms", 1e-6
    hidden = {1: into / further_out, 2: kernel / sum(W14_GAP.values()), 5: (into + kernel) / further_out}
    for number, ratio in hidden.items():
        yield f"nStreams of eq {number}", float(w14.best_streams(number, cut)), ratio**0.5, "streams", 1e-6
    smallest = float(w14.best_streams(4, cut))
    sides = into + further_in * (smallest - 1), (kernel + into) / smallest
    yield "nStreams of eq 4: its two sides", 1e3 * sides[0], 1e3 * sides[1], "ms", 1e-6


def _a19() -> Iterator[Line]:
    for generation, published in A19_LANES.items():
        lane = PCIE[generation]
        rate = lane.bits_per_s / 8 * lane.encoding / 1e9
        yield f"lane bandwidth, PCIe {generation}", rate, published, "GB/s", 2.0
    yield "encoding efficiency, generations 3 and 4", PCIE[3].encoding * 100, 98.4, "%", 0.2
    summit, titan = (load_node(name).host_path(0) for name in ("summit", "titan"))
    size = np.array([512.0 * MB])
    efficiency = 100 * float((size / effective_bytes(size, summit.links[-1], "h2d"))[0])
    yield "NVLink 2 efficiency of a large copy ('almost 95 %')", efficiency, 95.0, "%", 1.5
    gain = 100 * (summit.peak() / titan.peak() - 1)
    yield "bandwidth from Titan to Summit ('525 % increase')", gain, 525.0, "%", 0.1
    byte_seconds = [_ahead(name, "pinned", 1) for name in ("summit", "titan")]
    yield (
        "one byte, Summit over Titan ('42 % more time')",
        byte_seconds[0] / byte_seconds[1],
        1.42,
        "times",
        None,
    )


def _ahead(node: str, memory: str, size: int) -> float:
    """Seconds by A19's model of a copy into the GPU, with L+o of the GTX Titan."""
    priced = model("ahead", latency_from=load_node("gtx-titan"))
    return float(priced.seconds(copy_operations("h2d", memory, [size]), load_node(node))[0])


def _a19_equations() -> Iterator[Line]:
    pcie, nvlink = (load_node(name).host_path(0).links[-1] for name in ("titan", "summit"))
    carried = {
        "eq 4, n̂ of a PCIe read": (pcie, "h2d", 12 + 512 + MB / 128 * 12 + MB),
        "eq 5, n̂ of a PCIe write": (pcie, "d2h", MB / 128 * 12 + MB),
        "eq 6, n̂ of an NVLink read": (nvlink, "h2d", 16 + MB / 256 * 16 + MB),
        "eq 7, n̂ of an NVLink write": (nvlink, "d2h", MB / 256 * 16 + MB),
    }
    for name, (link, direction, by_hand) in carried.items():
        yield (
            name,
            float(effective_bytes(np.array([float(MB)]), link, direction)[0]),
            by_hand,
            "bytes",
            1e-6,
        )
    yield "eq 3, PCIe 2 x16", pcie.line_rate / 1e9, 16 * 0.5, "GB/s", 1e-6
    yield "eq 8, two NVLinks 2", nvlink.line_rate / 1e9, 2 * 8 * 25 / 8, "GB/s", 1e-6
    wire = W14_COPY["h2d"][0] + carried["eq 4, n̂ of a PCIe read"][2] / 8e9
    for name, seconds in (("10, pinned", wire), ("9, pageable", wire + 2 * MB / 51.2e9)):
        priced = _ahead("titan", name.rpartition(" ")[2], MB)
        yield f"eq {name}, Titan", 1e6 * priced, 1e6 * seconds, "µs", 1e-6


def _large_copies() -> Iterator[Line]:
    for name, memory, direction in product(("c2050", "m2050", "gt-740"), ("pageable", "pinned"), FLOWS):
        node, size = load_node(name), 16 * MB
        seconds = model("datasheet").seconds(copy_operations(direction, memory, [size]), node)[0]
        published = 1e-9 / _measured_gap(node, direction, memory)
        yield f"{name} {memory} {direction}", 1e-9 * size / seconds, published, "GB/s", None


if __name__ == "__main__":
    judge(main)
