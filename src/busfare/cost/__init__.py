"""What an operation costs on a node: one model a file, all behind `CostModel`."""

from busfare.cost.model import CostModel, model, model_names
from busfare.cost.price import price, trusted

__all__ = ["CostModel", "model", "model_names", "price", "trusted"]
