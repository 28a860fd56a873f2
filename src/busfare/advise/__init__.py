"""Advice: findings in a trace, each with its evidence, the change to make and what it gains."""

from busfare.advise.call_sites import CallSite
from busfare.advise.finding import Finding, RangedFinding, ranged
from busfare.advise.findings import findings, rebuilt, unions
from busfare.advise.recorded_on import guess_node, where_recorded

__all__ = [
    "CallSite", "Finding", "RangedFinding", "findings", "guess_node", "ranged", "rebuilt", "unions", "where_recorded",
]  # fmt: skip
