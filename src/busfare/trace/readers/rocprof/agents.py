"""Agents, CPUs and GPUs, by the names that the CSV files of rocprofv3 give them.

A name is what `--agent-index` asked for: the place among all agents ("Agent 4") or among those of its type ("GPU 0"); before
ROCm 6.4 a bare number, the node.
"""

from __future__ import annotations

import polars as pl

from busfare.trace.model import Omissions
from busfare.trace.readers.rocprof.records import of_agents
from busfare.trace.readers.tables import INT, ints, texts
from busfare.trace.tables import conform

NAME = r"^(?:(?P<label>Agent|CPU|GPU)[ -])?(?P<number>\d+)$"
#: What a file may say of each: its node, its place among the agents that the process sees, its type and what it has.
COLUMNS = ints("node place copy_engines multiprocessors") | texts("type name")


def numbered(agents: pl.DataFrame) -> pl.DataFrame:
    """`agents` (columns of `COLUMNS`) with `device`: the number among those of their type, in order of their nodes."""
    agents = agents.with_columns(pl.col("type").str.to_uppercase(), place=pl.coalesce("place", "node"))
    return agents.sort("node").with_columns(device=pl.int_range(pl.len()).over("type"))


def seen(kernels: pl.DataFrame, copies: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """The GPUs of a file that lists no agents: those that kernels ran on, and that the directions of copies tell."""
    to, of = (pl.col("name").str.contains(words).fill_null(False) for words in ("TO_DEVICE", "DEVICE_TO"))
    names = [
        kernels["agent"],
        copies.filter(to)["destination_agent"].alias("agent"),
        copies.filter(of)["source_agent"].alias("agent"),
    ]
    number = pl.concat(names).str.extract(NAME, 2).cast(INT, strict=False).drop_nulls().unique()
    found = pl.DataFrame({"node": number}).with_columns(type=pl.lit("GPU"))
    omissions.add_if(
        found.height,
        "unknown-agents",
        "agents that the trace does not list: those that kernels run on are taken as GPUs, numbered in order",
    )
    return numbered(conform(found, COLUMNS))


def on_agents(frame: pl.DataFrame, column: str, agents: pl.DataFrame) -> pl.DataFrame:
    """`frame` with number, null of a CPU, and type of the agents that `column` names, as `column`_number and …_type."""
    agent = pl.col(column).str
    keyed = frame.with_columns(
        label=agent.extract(NAME, 1), number=agent.extract(NAME, 2).cast(INT, strict=False)
    )
    for key in ("node", "place"):
        keyed = of_agents(keyed, f"by_{key}", agents, {key: "number"})
    bare = pl.col("label").is_null()
    by_type = pl.col("label").is_in(["CPU", "GPU"]).fill_null(False)

    def known(node: str, place: str) -> pl.Expr:
        return pl.when(bare).then(pl.coalesce(node, place)).otherwise(pl.coalesce(place, node))

    number = pl.when(by_type).then(pl.when(pl.col("label") == "GPU").then("number"))
    kind = pl.when(by_type).then("label")
    made = keyed.with_columns(
        number.otherwise(known("by_node", "by_place")).alias(f"{column}_number"),
        kind.otherwise(known("by_node_type", "by_place_type")).alias(f"{column}_type"),
    )
    return made.drop("label", "number", "by_node", "by_place", "by_node_type", "by_place_type")


def placed(
    kernels: pl.DataFrame, copies: pl.DataFrame, agents: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Kernels with `device`, and copies with their ends, as `records.py` has them."""
    kernels = on_agents(kernels, "agent", agents).with_columns(device="agent_number")
    for end in ("source", "destination"):
        copies = on_agents(copies, f"{end}_agent", agents).rename(
            {f"{end}_agent_number": end, f"{end}_agent_type": f"{end}_type"}
        )
    return kernels, copies
