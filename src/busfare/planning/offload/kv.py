"""KV caches that live on the host: what fetching their blocks takes by layout, and from which prompt length on it beats
computing them again.

A block holds the keys and values of `block_tokens` tokens, in one piece or scattered in (layers · 2) pieces. Small pieces
are bound by what submits them and not by the link: the host's call, or the copy engine's issue interval g.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, get_args

import msgspec
import numpy as np

from busfare.cost.copies import COPY_BYTES_PER_S, measured_copy
from busfare.errors import InputError
from busfare.nodes import Curve, Flow, Node
from busfare.planning.machine import Basis, Kind, Machine
from busfare.questions import MOST_PROMPT
from busfare.questions import KvLayout as Layout
from busfare.timeline.edit import COPY_CALL_NS, LAUNCH_CALL_NS
from busfare.timeline.program import Mapped, Program

#: Of those that take as long, the one with less to write comes first; `contiguous`, the bound, needs a cache of one piece.
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
Limit = Literal["link", "submission", "copy engine", "host gather"]

#: Of nodes that nobody probed, medians of 62 probes of H100s and H200s [results/probe.tar.xz]: seconds of a call that hands
#: one copy to the driver, launches a kernel, or waits.
CALL_S, LAUNCH_S, WAIT_S = COPY_CALL_NS * 1e-9, LAUNCH_CALL_NS * 1e-9, 1.9e-6
#: What the host takes for each copy of a train over the call of one, and for each piece of a cuMemcpyBatchAsync over a
#: train's copy, as which the batch itself counts: trains and batches of 16 and 128 pieces of 64 B to 64 KiB in the same
#: probes, whose middle 80 % are 0.77 to 0.90 and 0.18 to 0.22.
IN_A_TRAIN, BATCH_PIECE = 0.81, 0.203
#: Into an idle stream the driver has the processor write a batch's pieces below so many bytes to the GPU itself: over a
#: train's copy a piece, beside one core's memcpy of its bytes. And a copy that is handed over alone keeps the engine so much
#: longer than one that was queued behind others [an H100 and an H200, driver 580, CUDA 13; results/offload-bench.tar.xz].
WRITTEN_BELOW, WRITTEN, HANDED_OVER_S = 32768, 0.36, 3.5e-7
#: A core that packs scattered pieces over one that stages long pageable copies: 0.67 to 0.85 on those machines.
SCATTERED = 0.79
#: Up to so many copies are played one by one. Of more, what each adds is taken from two plays of fewer.
MOST_PLAYED, ANCHORS = 96, (16, 40)


@dataclass(frozen=True, slots=True)
class Blocks:
    """`count` blocks of `bytes` each that are fetched, in `pieces` equal pieces a block; `evicted` ones leave meanwhile."""

    bytes: float
    count: int
    pieces: int = 1
    evicted: int = 0

    @property
    def piece_bytes(self) -> float:
        """Bytes of one piece."""
        return self.bytes / self.pieces

    def moved(self, direction: str) -> tuple[float, int]:
        """Bytes and pieces that move in (h2d) or out."""
        blocks = self.count if direction == "h2d" else self.evicted
        return self.bytes * blocks, self.pieces * blocks


@dataclass(frozen=True, slots=True)
class Host:
    """What the host takes (s): a call that copies, one that launches, one that waits, a batch and each of its pieces; a byte
    that is packed; and a short piece, and a byte of it, that the driver has the processor write.
    """

    copy_s: float
    launch_s: float
    wait_s: float
    batch_s: float
    batch_piece_s: float
    pack_s_per_byte: float
    written_s: float = 0.0
    written_s_per_byte: float = 0.0
    basis: tuple[Basis, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """What one layout takes until the host knows that all is there: `seconds`, in `calls` of the API, and what limits it."""

    layout: Layout
    seconds: float
    calls: int
    limited_by: Limit


@dataclass(frozen=True, slots=True)
class Prefill:
    """Seconds in which the GPU computes the cache of a prompt, by its tokens, as given or predicted at some lengths. `low`,
    `high`: factors of the 80 % range of what is predicted, on `rung`; of what is given, none.
    """

    points: tuple[tuple[float, float], ...]
    low: float = math.nan
    high: float = math.nan
    rung: str | None = None

    def seconds(self, tokens: float) -> float:
        """A power of the length between two points and beyond them; of one point alone, in proportion."""
        if len(self.points) == 1:
            return self.points[0][1] * tokens / self.points[0][0]
        places = np.log(np.array(self.points))
        after = int(np.clip(np.searchsorted(places[:, 0], math.log(tokens)), 1, len(places) - 1))
        (x0, y0), (x1, y1) = places[after - 1], places[after]
        return math.exp(y0 + (y1 - y0) * (math.log(tokens) - x0) / (x1 - x0))


def host_of(
    machine: Machine,
    copy_s: float | None = None,
    batch_piece_s: float | None = None,
    pack_rate: float | None = None,
) -> Host:
    """The host's part: as given (`pack_rate` in bytes/s), else as the node says, else as typical; `basis` says which."""
    basis = []

    def value_of(row: Basis, given: float | None = None) -> float:
        basis.append(row if given is None else replace(row, value=given, kind="assumed", source="as given"))
        return float(basis[-1].value)

    copies = _call(machine.node, "copy", "host, each copy", CALL_S, IN_A_TRAIN)
    train = value_of(copies)
    copy = train if copy_s is None else value_of(copies, copy_s)
    launch = value_of(_call(machine.node, "launch", "host, a launch", LAUNCH_S))
    wait = value_of(_call(machine.node, "synchronise", "host, a wait", WAIT_S))
    of, why = "host, a piece of a batch", f"{BATCH_PIECE:g} × a copy in a sequence of copies"
    batch_piece = value_of(Basis(of, BATCH_PIECE * train, "s", "estimated", why), batch_piece_s)
    core = value_of(_core(machine))
    packing = Basis("host, packing", core, "s/B", "estimated", "")
    return Host(
        copy_s=copy,
        launch_s=launch,
        wait_s=wait,
        batch_s=train,
        batch_piece_s=batch_piece,
        pack_s_per_byte=core if pack_rate is None else value_of(packing, 1 / pack_rate),
        written_s=WRITTEN * train,
        written_s_per_byte=core,
        basis=tuple(basis),
    )


def _call(node: Node, name: str, of: str, typical: float, share: float = 1.0) -> Basis:
    """What a call takes on the host, `share` of what the node's file or else a typical one has of it."""
    cost, times = node.call_cost(name), f"{share:g} × " if share != 1.0 else ""
    if cost is None or cost.call_s <= 0:
        return Basis(of, share * typical, "s", "estimated", f"{times}typical of H100s and H200s")
    kind: Kind = "estimated" if times else "measured"
    return Basis(of, share * cost.call_s, "s", kind, f"{times}cost {name} of {node.name}")


def _core(machine: Machine) -> Basis:
    """What one core takes to copy a byte."""
    node, name = machine.node, "host, memcpy"
    pageable, link = machine.h2d.pageable.long_gap_per_byte_s, machine.h2d.copy.long_gap_per_byte_s
    if (memcpy_rate := measured_copy(node)) is not None:
        return Basis(name, 1 / memcpy_rate, "s/B", "data-sheet", f"the processor of {node.name}")
    if node.curve("h2d", "pageable") is not None and pageable > link:
        # Long pageable copies are one core's memcpy beside a faster link [A19 §VII-A, cost/copies.py].
        source = f"{SCATTERED:g} × the rate of long pageable copies, staged by one core"
        return Basis(name, pageable / SCATTERED, "s/B", "estimated", source)
    return Basis(name, 1 / COPY_BYTES_PER_S, "s/B", "estimated", "cost/copies.py")


def program_of(layout: Layout, blocks: Blocks, machine: Machine, host: Host) -> Program:
    """The layout's copies or kernel, in one stream each way, the host's work before each call."""
    program = Program(machine.rules())
    (into, pieces), (out, left) = blocks.moved("h2d"), blocks.moved("d2h")
    if layout == "gather-kernel":

        def touched(size: float, flow: Flow, curve: Curve) -> Mapped | None:
            return Mapped(size * machine.access_cost(flow, blocks.piece_bytes), curve) if size else None

        reads, writes = touched(into, "read", machine.h2d.mapped), touched(out, "write", machine.d2h.mapped)
        program.kernel(0.0, 0, into=reads, out=writes, host_s=host.launch_s)
        return program
    if layout == "per-block":
        # By turns, so that both directions go on beside each other.
        curves = [_handed_over(side.copy, host) for side in (machine.h2d, machine.d2h)]
        for n in range(max(pieces, left)):
            if n < pieces:
                program.copy("h2d", blocks.piece_bytes, curves[0], 0, host_s=host.copy_s)
            if n < left:
                program.copy("d2h", blocks.piece_bytes, curves[1], 1, host_s=host.copy_s)
        return program
    before_in = before_out = host.copy_s
    in_curve, out_curve = machine.h2d.copy, machine.d2h.copy
    parts = 2 if layout == "gather-host-halves" else 1
    if layout == "batched":
        before_in, before_out = (host.batch_s + n * host.batch_piece_s for n in (pieces, left))
        in_curve, out_curve = (_batch(curve) for curve in (in_curve, out_curve))
        if _written(blocks, host):
            before_in = host.batch_s + pieces * host.written_s + into * host.written_s_per_byte
            into = blocks.piece_bytes  # the others have come while the last one was written
    elif layout != "contiguous":
        before_in += into * host.pack_s_per_byte / parts
    if out:
        program.copy("d2h", out, out_curve, 1, host_s=before_out)
    for _ in range(parts):
        program.copy("h2d", into / parts, in_curve, 0, host_s=before_in)
    return program


def _written(blocks: Blocks, host: Host) -> bool:
    """Whether the processor writes the pieces of a batch: not where nothing of the host counts, as all was queued."""
    return host.written_s > 0 and blocks.piece_bytes < WRITTEN_BELOW


def _handed_over(curve: Curve, host: Host) -> Curve:
    """The curve of copies that the host hands over one by one."""
    if host.copy_s <= 0:
        return curve
    interval = float(curve.issue_interval(1)) + HANDED_OVER_S
    return msgspec.structs.replace(curve, issue_interval_s=curve.issue_interval_s | {1: interval})


def _batch(curve: Curve) -> Curve:
    """A batch as one copy: at the rate of long copies, however short its pieces."""
    gaps = (curve.long_gap_per_byte_s,) * len(curve.gap_per_byte_s)
    return msgspec.structs.replace(curve, gap_per_byte_s=gaps)


def fetch(layout: Layout, blocks: Blocks, machine: Machine, host: Host) -> Fetch:
    """Seconds of one layout until all has arrived and the host knows it."""
    calls = {"gather-host-halves": 2, "per-block": blocks.moved("h2d")[1]}.get(layout, 1)
    if blocks.evicted and layout != "gather-kernel":
        calls += blocks.moved("d2h")[1] if layout == "per-block" else 1
    uneven = blocks.evicted > 0 < blocks.count != blocks.evicted
    if layout == "per-block" and (max(calls, 2 * blocks.evicted) > MOST_PLAYED or uneven):
        seconds = _many(blocks, machine, host)
    else:
        played = program_of(layout, blocks, machine, host).play()
        seconds = played.seconds
        if layout.startswith("gather-host") and blocks.evicted:
            # Once it has issued the last copy in, the host takes the evicted blocks apart, if they have come.
            issued = blocks.moved("h2d")[0] * host.pack_s_per_byte + calls * host.copy_s
            unpacked = max(issued, float(played.end[0])) + blocks.moved("d2h")[0] * host.pack_s_per_byte
            seconds = max(seconds, unpacked)
    return Fetch(layout, seconds + host.wait_s, calls, _limit(layout, blocks, machine, host))


def _many(blocks: Blocks, machine: Machine, host: Host) -> float:
    """Seconds of thousands of copies, piece by piece.

    One way: the host's call, or the engine's g and bytes, whichever is longer, for each but the first [W14 §V]. As long as
    both go on: what each pair adds in two shorter plays. What is left of one direction then goes on alone, whose g is no
    longer beside the other's.
    """
    pieces, left = blocks.moved("h2d")[1], blocks.moved("d2h")[1]
    piece, pairs = blocks.piece_bytes, min(pieces, left)
    curve = _handed_over(machine.h2d.copy if pieces >= left else machine.d2h.copy, host)
    moving = float(curve.gap_per_byte(piece)) * piece
    apart = max(host.copy_s, float(curve.issue_interval(1)) + moving)
    alone = (max(pieces, left) - pairs) * apart
    if not pairs:
        return host.copy_s + alone - apart + float(curve.seconds(piece))
    counts = (pairs,) if pairs <= ANCHORS[1] else ANCHORS
    plays = [program_of("per-block", Blocks(piece, n, 1, n), machine, host).play().seconds for n in counts]
    pair_seconds = (plays[1] - plays[0]) / (ANCHORS[1] - ANCHORS[0]) if len(plays) > 1 else 0.0
    return plays[-1] + (pairs - counts[-1]) * pair_seconds + alone


def _limit(layout: Layout, blocks: Blocks, machine: Machine, host: Host) -> Limit:
    curve, piece = machine.curves("h2d" if blocks.count else "d2h").copy, blocks.piece_bytes
    moving, long = float(curve.gap_per_byte(piece)) * piece, curve.long_gap_per_byte_s
    if layout.startswith("gather-host") and host.pack_s_per_byte > long:
        return "host gather"
    if layout == "batched":
        submitted = (_written(blocks, host) and blocks.count) or host.batch_piece_s > long * piece
        return "submission" if submitted else "link"
    if layout == "per-block":
        interval = float(_handed_over(curve, host).issue_interval(1))
        if host.copy_s >= interval + moving:
            return "submission"
        return "copy engine" if interval > moving else "link"
    return "link"


def ranked(blocks: Blocks, machine: Machine, host: Host) -> list[Fetch]:
    """The layouts, the fastest first. Raises InputError where nothing moves."""
    if not blocks.count and not blocks.evicted:
        raise InputError("`tokens`: 0 tokens leave nothing to fetch; give at least one")
    fetches = [fetch(layout, blocks, machine, host) for layout in LAYOUTS]
    return sorted(fetches, key=lambda fetched: (fetched.seconds, LAYOUTS.index(fetched.layout)))


def worth_fetching(
    layout: Layout, blocks: Blocks, block_tokens: int, machine: Machine, host: Host, prefill: Prefill
) -> list[tuple[int, int | None]]:
    """The lengths, in tokens of whole blocks, from and up to which fetching is faster than computing; None: up to 4 Mi, as
    far as is looked. There may be two: computing has to read all weights for a short prompt, and to attend to all of a
    long one.
    """

    def wins(count: int) -> bool:
        evicted = round(count * blocks.evicted / max(1, blocks.count))
        fetched = fetch(layout, replace(blocks, count=count, evicted=evicted), machine, host)
        return fetched.seconds < prefill.seconds(count * block_tokens)

    last = max(1, MOST_PROMPT // block_tokens)
    counts = [1 << n for n in range(last.bit_length())]
    spans: list[tuple[int, int | None]] = []
    start = 1 if wins(1) else None
    for low, high in pairwise(counts):
        if wins(high) == (start is not None):
            continue
        while high - low > max(1, low // 1000):
            middle = (low + high) // 2
            low, high = (middle, high) if wins(middle) == (start is not None) else (low, middle)
        if start is None:
            start = high
        else:
            spans.append((start * block_tokens, low * block_tokens))
            start = None
    return spans if start is None else [*spans, (start * block_tokens, None)]
