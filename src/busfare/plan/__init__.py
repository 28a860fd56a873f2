"""Overlap strategies ranked before any is written [W14]: which one, with how many streams, and what bounds it."""

from busfare.plan.machine import Machine, machine_of
from busfare.plan.problem import Prediction, Problem, Step
from busfare.plan.rank import Plan, plan, plans, ranked

__all__ = ["Machine", "Plan", "Prediction", "Problem", "Step", "machine_of", "plan", "plans", "ranked"]
