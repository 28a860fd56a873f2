"""Advice: findings in a trace, each with its evidence, the change to make and what it gains.

It may import `jobs`, `planning` and whatever they import, and `trace`. It gives findings as ids and figures, priced by the
replay of the run. Sentences belong to `show`, and changes to the timeline to `timeline.changes`.
"""

from busfare.advise.finding import CallSite, Finding, RangedFinding, ranged
from busfare.advise.search import findings, guess_node, rebuilt, unions, where_recorded

__all__ = [
    "CallSite", "Finding", "RangedFinding", "findings", "guess_node", "ranged", "rebuilt", "unions", "where_recorded",
]  # fmt: skip
