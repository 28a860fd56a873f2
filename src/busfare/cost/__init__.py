"""What an operation costs on a node: copies (`models`), kernels (`kernels`), collectives, each with its prediction interval.

Imports `nodes` and `trace`. Gives `model` by name, `price` of one copy, `price_kernels` and `price_collectives`. What waits
for what belongs in `timeline`.
"""

from busfare.cost.models import CostModel, model, model_names, price, trusted

__all__ = ["CostModel", "model", "model_names", "price", "trusted"]
