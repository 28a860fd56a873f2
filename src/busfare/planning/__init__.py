"""Overlap strategies ranked before any is written [W14]: which one, with how many streams, and what bounds it.

It may import timeline, cost, nodes and trace. It gives strategies as programs of the engine and as closed forms, the
roofline and sweeps; what is shown of them, and options, belong to `answers` and above.
"""

from busfare.planning.machine import Machine, machine_of
from busfare.planning.problem import Prediction, Problem
from busfare.planning.rank import Plan, plan, plans, ranked

__all__ = ["Machine", "Plan", "Prediction", "Problem", "machine_of", "plan", "plans", "ranked"]
