"""Overlap strategies ranked before any is written [W14]: which one, with how many streams, and what bounds it."""

from busfare.planning.machine import Machine, machine_of
from busfare.planning.problem import Prediction, Problem, Step
from busfare.planning.rank import Plan, plan, plans, ranked

__all__ = ["Machine", "Plan", "Prediction", "Problem", "Step", "machine_of", "plan", "plans", "ranked"]
