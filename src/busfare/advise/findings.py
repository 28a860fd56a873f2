"""Findings in a trace: those of every rule, priced by replay where the run can be replayed, largest gain first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from busfare.account import is_transfer, is_work, lanes_of, makespan_seconds
from busfare.advise.finding import Finding
from busfare.advise.rules import COPY, RULES, TO_OR_FROM_HOST, WORTH_SAYING, Rule
from busfare.node import Node
from busfare.trace import Trace
from busfare.trace.beside import several

if TYPE_CHECKING:
    from busfare.replay import Timeline

__all__ = ["findings", "unions"]


def findings(trace: Trace, node: Node | None, run: Timeline | None = None) -> list[Finding]:
    """What to change in the traced program, most promising first; empty if nothing is worth doing.

    `node` is where the trace was recorded; without it, gains that need a link's rate are not known (None). `run` is the
    trace as it replays; without it, gains are upper bounds.
    """
    makespan = makespan_seconds(trace)
    # All at once: each is then known when a rule asks for it.
    lanes_of(trace.operations).lengths(*unions())
    by_rule = several(trace.operations.height, [partial(_found, rule, trace, node) for rule in RULES])
    found = [finding for of_rule in by_rule for finding in of_rule]
    if run is not None:
        from busfare.advise.by_replay import priced_by_replay

        found = priced_by_replay(run, node, found)
    kept = [f for f in found if f.gain_seconds is None or f.gain_seconds > WORTH_SAYING * makespan]
    return sorted(kept, key=lambda f: -1.0 if f.gain_seconds is None else f.gain_seconds, reverse=True)


def _found(rule: Rule, trace: Trace, node: Node | None) -> list[Finding]:
    return list(rule(trace, node))


def unions() -> list[pl.Expr]:
    """Lanes of whose unions the rules ask for the lengths."""
    copies = COPY & TO_OR_FROM_HOST
    return [pl.lit(True), is_work(), is_transfer(), is_transfer() | is_work(), copies, copies | is_work()]
