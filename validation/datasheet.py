"""The `datasheet` model against other people's published measurements: predicted | measured | error.

Run `python validation/datasheet.py`. Prints which rows were left out by which rule, large copies (32 MB and
up) of fitted and held-out machines, and WMAPE by size decade of every size sweep with L+o taken from another
node. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from published import BY_NOTES, LARGE_BYTES, Row, node_of, read, sift

from busfare.cost import model
from busfare.cost.price import one_copy
from busfare.node import Cpu, Measured, Node, Piece, load_node

MODELS = ("datasheet", "ahead", "peak", "envelope")
#: No L+o is known of the machines of the large copies: the defaults of the models stand, as a link in short
#: has none.
NOBODY = load_node("pcie:3x16")
#: The only published L+o of a machine that is in no sweep: W14's, and so the 'old node' of every prediction.
OLD_NODE = load_node("gtx-titan")
SMALLEST_SWEEP = 8
#: The goal holds from here up.
SMALLEST_BYTES = 4096


def main() -> int:
    rows = read()
    kept, left_out = sift(rows)
    print(f"{len(rows)} rows; left out by what the row itself says:")
    for name, count in left_out.items():
        print(f"  {count:5}  {name}")
    large = [row for row in kept if _is_large(row)]
    print(f"{len(large)} rows remain that are pinned, between host and device, of {LARGE_BYTES} bytes and up")
    unknown = [row for row in large if node_of(row) is None]
    print(f"{len(unknown)} of them have no node that could be named\n")
    large = [row for row in large if node_of(row) is not None]
    met = _large_copies(large)
    print("For information, rows whose link was inferred from the rate and that break no other rule:")
    _summary("inferred links", [row for row in rows if _is_inferred(row)])
    print()
    met &= _sweeps([row for row in kept if row.memory == "pinned"], "pinned")
    _sweeps([row for row in kept if row.memory == "pageable"], "pageable")
    return 0 if met else 1


def _is_large(row: Row) -> bool:
    moves = row.memory == "pinned" and row.direction in ("h2d", "d2h")
    return moves and row.bytes_per_second > 0 and row.copied >= LARGE_BYTES


def _is_inferred(row: Row) -> bool:
    broken = [name for name, breaks in BY_NOTES if breaks(row)]
    return broken == [BY_NOTES[0][0]] and _is_large(row) and node_of(row) is not None


def _large_copies(rows: list[Row]) -> bool:
    print("large copies, GB/s      (a line is one machine, source and direction: its median)")
    print(f"  {'group':5} {'machine':39} {'node':12} way predicted | measured | error %")
    cells = defaultdict(list)
    for row in rows:
        cells[row.fitted, row.group, row.author, row.direction].append(row)
    for (fitted, group, _, way), members in sorted(cells.items()):
        predicted = float(np.median([_predicted(row) for row in members])) / 1e9
        measured = float(np.median([row.bytes_per_second for row in members])) / 1e9
        error = 100 * (predicted / measured - 1)
        kind, node = "fit" if fitted else "held", node_of(members[0])
        name = node.name if node else ""
        figures = f"{predicted:9.2f} | {measured:8.2f} | {error:+7.1f}"
        print(f"  {kind:5} {group[:39]:39} {name:12} {way:3} {figures}")
    print()
    _summary("fitted machines", [row for row in rows if row.fitted])
    _summary("held-out machines", [row for row in rows if not row.fitted])
    met = _summary("all machines", rows)
    print()
    return met


def _summary(name: str, rows: list[Row]) -> bool:
    errors = np.array([abs(100 * (_predicted(row) / row.bytes_per_second - 1)) for row in rows])
    sources = [row.author for row in rows]
    weights = np.array([1 / sources.count(source) for source in sources])
    median, ninth = _quantile(errors, weights, 0.5), _quantile(errors, weights, 0.9)
    plain = np.quantile(errors, [0.5, 0.9])
    print(
        f"  {name:36} {len(set(sources)):2} sources {len(rows):4} rows | "
        f"by source: median {median:5.2f} % (goal 3), 90th {ninth:5.2f} % (goal 12) | "
        f"by row: {plain[0]:.2f}, {plain[1]:.2f}"
    )
    return median <= 3 and ninth <= 12


def _quantile(values: np.ndarray, weights: np.ndarray, q: float) -> float:
    """The smallest value at which the weights up to it make `q` of all."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(share, q - 1e-12)])


def _predicted(row: Row) -> float:
    """Bytes per second that `datasheet` gives for the row's copy."""
    node = node_of(row)
    assert node is not None
    operations = one_copy(row.direction, row.memory, [row.copied])
    seconds = model("datasheet", latency_from=NOBODY).seconds(operations, node)
    return float(row.copied / seconds[0])


def _sweeps(rows: list[Row], memory: str) -> bool:
    sweeps = defaultdict(list)
    for row in rows:
        if (
            row.size >= 1
            and row.bytes_per_second > 0
            and row.direction in ("h2d", "d2h")
            and node_of(row) is not None
        ):
            sweeps[row.group, row.source, row.direction, row.notes].append(row)
    found = [
        sorted(sweep, key=lambda row: row.size) for sweep in sweeps.values() if len(sweep) >= SMALLEST_SWEEP
    ]
    print(f"size sweeps, {memory}: {len(found)}")
    for sweep in found:
        print(f"  {sweep[0].group} {sweep[0].direction} {sweep[0].source.rpartition('/')[2]}")
    print(f"\n  WMAPE % by decade, L+o of {OLD_NODE.name} (W14 table I) for every model")
    met = _table(found, lambda sweep: [OLD_NODE])
    print(
        "\n  WMAPE % by decade, L+o of every other machine that the tool measured in that direction, in turn"
    )
    _table(found, lambda sweep: [_as_node(other) for other in found if _comparable(sweep[0], other[0])])
    if memory == "pageable":
        print(
            "\n  the first table again with the catalogue's memcpy rates, read off sweeps of these very hosts"
        )
        _table(found, lambda sweep: [OLD_NODE], copy_rates=True)
    print()
    return met


def _comparable(row: Row, other: Row) -> bool:
    return row.group != other.group and row.tool == other.tool and row.direction == other.direction


def _as_node(sweep: list[Row]) -> Node:
    """A node that knows nothing but the time of the sweep's shortest copy."""
    shortest = sweep[0].size / sweep[0].bytes_per_second
    piece = Piece(latency_overhead_s=shortest, gap_per_byte_s=1e-12)
    table = {"direction": sweep[0].direction, "memory": sweep[0].memory, "pieces": (piece,)}
    measured = msgspec.convert(table, Measured)
    return Node("old", NOBODY.components, NOBODY.links, measured=(measured,))


def _table(
    sweeps: Sequence[list[Row]], old_nodes: Callable[[list[Row]], list[Node]], copy_rates: bool = False
) -> bool:
    """Prints WMAPE by decade and model; True where `datasheet` is the lowest in every decade."""
    wrong: dict[tuple[int, str], float] = defaultdict(float)
    total: dict[int, float] = defaultdict(float)
    counts: dict[int, int] = defaultdict(int)
    for sweep in sweeps:
        node = node_of(sweep[0])
        assert node is not None
        node = node if copy_rates else without_copy_rates(node)
        judged = [row for row in sweep if row.size >= SMALLEST_BYTES]
        sizes = np.array([row.size for row in judged])
        actual = sizes / np.array([row.bytes_per_second for row in judged])
        decades = np.floor(np.log10(sizes)).astype(int)
        operations = one_copy(sweep[0].direction, sweep[0].memory, sizes.tolist())
        for old in old_nodes(sweep):
            for name in MODELS:
                predicted = model(name, latency_from=old).seconds(operations, node)
                for decade, miss in zip(decades, np.abs(predicted - actual), strict=True):
                    wrong[decade, name] += miss
            for decade, seconds in zip(decades, actual, strict=True):
                total[decade] += seconds
                counts[decade] += 1
    print(f"  {'bytes':>16} {'copies':>7} " + " ".join(f"{name:>10}" for name in MODELS) + "   lowest")
    met = bool(total)
    for decade in sorted(total):
        scores = {name: 100 * wrong[decade, name] / total[decade] for name in MODELS}
        best = min(scores, key=lambda name: scores[name] if np.isfinite(scores[name]) else np.inf)
        met &= best == "datasheet"
        cells = " ".join(f"{scores[name]:10.2f}" for name in MODELS)
        print(f"  {f'10^{decade} – 10^{decade + 1}':>16} {counts[decade]:7} {cells}   {best}")
    return met


def without_copy_rates(node: Node) -> Node:
    """The node without its processor's measured `memcpy` rates: some were read off the very sweeps judged
    here.
    """
    bare = {
        "copy_bandwidth_bytes_per_s": None,
        "cached_copy_bandwidth_bytes_per_s": None,
        "cache_bytes": None,
    }
    parts = tuple(msgspec.structs.replace(c, **bare) if isinstance(c, Cpu) else c for c in node.components)
    return replace(node, components=parts)


if __name__ == "__main__":
    sys.exit(main())
