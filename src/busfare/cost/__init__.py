"""What an operation costs on a node: one model a file, all behind `CostModel`."""

from busfare.cost.model import CostModel
from busfare.cost.price import price, trusted
from busfare.cost.registry import model, model_names

__all__ = ["CostModel", "model", "model_names", "price", "trusted"]
