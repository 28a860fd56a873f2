"""Another node: what a recorded run would take there, and predictions held against a run that was recorded there."""

from busfare.project.comparison import Comparison, compare
from busfare.project.projection import Projection, project

__all__ = ["Comparison", "Projection", "compare", "project"]
