"""Blocks of a report about what ranks do together: collectives, who waits for whom, clocks."""

from __future__ import annotations

from collections.abc import Sequence

from busfare.advise.amounts import count, rate, size, time
from busfare.job.results import Clock, Collective, RankTimes
from busfare.report.document import Block, Figure, Text, table
from busfare.report.svg import COLOUR, Bar, Bars, BarSeries

MOST, DRAWN = 10, 64
#: Parts of a rank's run, as they are drawn.
PARTS = {
    "kernels": ("kernels_seconds", COLOUR["kernels"]),
    "waiting for other ranks": ("waiting_seconds", COLOUR["h2d"]),
    "transfers that no kernel hides": ("exposed_transfer_seconds", COLOUR["communication"]),
}


def communication_blocks(
    collectives: Sequence[Collective], ranks: Sequence[RankTimes], clocks: Sequence[Clock]
) -> list[Block]:
    """What to show of them; nothing where nobody communicates."""
    if not collectives:
        return []
    blocks: list[Block] = [Text(_sentence(collectives), title="Communication between ranks")]
    blocks.append(
        table(
            collectives,
            "Collectives and messages by communicator (recorded; sums over its ranks)",
            {
                "communicator": lambda row: row.communicator,
                "kind": lambda row: (row.kind or "several").replace("_", "-"),
            },
            {
                "ranks": lambda row: "?" if row.ranks is None else count(row.ranks),
                "count": lambda row: count(row.count),
                "bytes": lambda row: "–" if row.bytes is None else size(row.bytes),
                "arrive": lambda row: "–" if row.arrive_seconds is None else time(row.arrive_seconds),
                "transfer": lambda row: time(
                    row.seconds if row.transfer_seconds is None else row.transfer_seconds
                ),
                "last": lambda row: _last(row),
                "bus rate": lambda row: rate(row.bus_bytes_per_second),
            },
            notes=[
                "Arrive: waiting until the last rank comes. Transfer: from then on. Last: who came last most often."
            ],
            most=MOST,
        )
    )
    waiting = sorted(ranks, key=lambda one: -one.waiting_seconds)
    blocks.append(
        table(
            waiting,
            "Ranks, those that wait most first (recorded)",
            {"rank": lambda row: f"{row.rank}" + (f" on {row.host}" if row.host else "")},
            {
                "whole run": lambda row: time(row.makespan_seconds),
                "kernels": lambda row: time(row.kernels_seconds),
                "communication": lambda row: time(row.communication_seconds),
                "of it waiting": lambda row: time(row.waiting_seconds),
                "exposed transfer": lambda row: time(row.exposed_transfer_seconds),
            },
            most=MOST,
        )
    )
    if 1 < len(ranks) <= DRAWN:
        blocks.append(_drawn(ranks))
    if text := _clocks(clocks):
        blocks.append(Text(text, "dim"))
    return blocks


def _sentence(collectives: Sequence[Collective]) -> str:
    known = [row for row in collectives if row.arrive_seconds is not None]
    wait = sum(row.arrive_seconds or 0.0 for row in known)
    transfer = sum(row.transfer_seconds or 0.0 for row in known)
    whole = wait + transfer
    if not known or not whole:
        return "No collective has more than one of its ranks here: who waits for whom is not known."
    number = sum(row.count for row in known)
    return (
        f"{count(number)} collectives and messages between ranks took {time(whole)} in all ranks together: "
        f"{wait / whole:.0%} of it ({time(wait)}) waiting for the last rank to come, {time(transfer)} transfers."
    )


def _last(row: Collective) -> str:
    return "–" if row.last_rank is None else f"{row.last_rank} ({row.last[0].count} of {row.count})"


def _drawn(ranks: Sequence[RankTimes]) -> Figure:
    series = [
        BarSeries(
            name,
            colour,
            [
                Bar(getattr(one, field), "", hover=f"rank {one.rank}: {time(getattr(one, field))} {name}")
                for one in ranks
            ],
        )
        for name, (field, colour) in PARTS.items()
    ]
    bars = Bars([f"rank {one.rank}" for one in ranks], series, "of each rank's run", "s", stacked=True)
    return Figure("ranks", bars, "Where each rank's run goes")


def _clocks(clocks: Sequence[Clock]) -> str:
    tied = [clock.uncertainty_ns for clock in clocks if clock.uncertainty_ns is not None]
    if len(tied) < 2 or not max(tied):
        return ""
    most = max((abs(clock.offset_ns), clock.rank) for clock in clocks)
    return (
        f"Clocks are aligned by the ends of collectives: moved by up to {time(most[0] * 1e-9)} (rank {most[1]}), "
        f"uncertain by {time(max(tied) * 1e-9)} at most."
    )
