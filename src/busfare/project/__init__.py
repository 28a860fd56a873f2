"""Another node: what a recorded run would take there, and predictions held against a run that was recorded there."""

from busfare.project.comparison import compare, compared
from busfare.project.projection import project, projected

__all__ = ["compare", "compared", "project", "projected"]
