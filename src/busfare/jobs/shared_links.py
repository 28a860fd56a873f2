"""What copies of several ranks share on their hosts: the links between GPUs and processors, and the host's memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl

from busfare.jobs.ranks import Rank
from busfare.nodes import Node
from busfare.timeline import Timeline
from busfare.timeline.build.links import SharedLinks, alone, shared_links
from busfare.timeline.model import Columns, Times

__all__ = ["Place", "calibrated", "linked", "places_of"]

#: The host of a part, a number, and the GPU of the node that each device of its trace is.
Place = tuple[int, dict[int, int]]


def places_of(
    parts: Sequence[tuple[Timeline, Sequence[Rank]]], node: Node | None, apart: bool
) -> list[Place] | None:
    """Where each part, with its ranks, runs; None where the node is not known.

    Ranks whose traces name no host are taken to fill one node after the other. `apart`: no two ranks share a GPU, as NCCL
    demands; processes that call theirs by the same number then have one each, in their order.
    """
    if node is None or not parts:
        return None
    gpus = len(node.gpus())
    names = [next((rank.host for rank in ranks if rank.host), None) for _, ranks in parts]
    known = {name: number for number, name in enumerate(dict.fromkeys(name for name in names if name))}
    devices = [sorted(_devices(run)) for run, _ in parts]
    hosts = [
        known[name] if name else len(known) + min((rank.rank for rank in ranks), default=0) // gpus
        for name, (_, ranks) in zip(names, parts, strict=True)
    ]
    asked = Counter((host, device) for host, own in zip(hosts, devices, strict=True) for device in own)
    taken: Counter[int] = Counter()
    found = []
    for host, own in zip(hosts, devices, strict=True):
        same = apart and any(asked[host, device] > 1 for device in own)
        found.append((host, {device: taken[host] + at if same else device for at, device in enumerate(own)}))
        taken[host] += len(own)
    return found


def _devices(run: Timeline) -> set[int]:
    return set(run.operations["device"].drop_nulls().cast(pl.Int64).to_list())


def linked(
    run: Timeline, sizes: Sequence[int], places: Sequence[Place], links: SharedLinks | None = None
) -> Columns:
    """Columns of what the copies of `run` share, a job's timeline of parts of so many operations; none of none.
    `links`: as a recording showed them, where it still runs on that machine.
    """
    operations = _placed(run.operations, sizes, places)
    if links is None and run.node is not None:
        links = shared_links(operations, run.node)
    return {} if links is None else links.columns(operations, run.columns)


def calibrated(
    run: Timeline, sizes: Sequence[int], places: Sequence[Place], starts: Times, ends: Times
) -> tuple[SharedLinks, Columns] | None:
    """The links of `run`, which was recorded to `starts` and `ends` (ns, shape (operations,)), as that shows them, and
    `operation_duration` and `operation_demand` with the links for itself. None where nothing is shared.
    """
    operations = _placed(run.operations, sizes, places)
    if run.node is None or (links := shared_links(operations, run.node)) is None:
        return None
    shares = links.columns(operations, run.columns)["operation_bytes_per_s"] > 0
    links, columns = alone(links, run.columns, operations, {"operation_start": starts, "operation_end": ends})
    own = run.columns["operation_duration"]
    return links, {
        "operation_duration": np.where(shares, columns["operation_duration"], own),
        "operation_demand": columns["operation_demand"],
    }


def _placed(operations: pl.DataFrame, sizes: Sequence[int], places: Sequence[Place]) -> pl.DataFrame:
    """`operations` with their hosts, and with devices as the node numbers them."""
    part = pl.Series("part", np.repeat(np.arange(len(sizes)), sizes))
    numbers = [
        {"part": number, "device": device, "gpu": gpu}
        for number, (_, own) in enumerate(places)
        for device, gpu in own.items()
    ]
    table = pl.DataFrame(numbers, schema={"part": pl.Int64, "device": pl.Int64, "gpu": pl.Int64})
    frame = operations.with_columns(
        pl.col("device", "peer_device").cast(pl.Int64),
        part=part.cast(pl.Int64),
        host=part.replace_strict(dict(enumerate(host for host, _ in places)), return_dtype=pl.Int64),
    )
    for name in ("device", "peer_device"):
        numbered = table.rename({"device": name})
        frame = frame.join(numbered, on=["part", name], how="left", maintain_order="left")
        frame = frame.with_columns(pl.coalesce("gpu", name).alias(name)).drop("gpu")
    return frame
