"""Prices of collectives: by NCCL's own model from data sheets, as probed, and by a line through a job's own times."""

from busfare.cost.collectives.fabric import Fabric
from busfare.cost.collectives.price import (
    KINDS,
    CollectivePrices,
    bus_factor,
    fit_collectives,
    price_collectives,
)

__all__ = [
    "KINDS",
    "CollectivePrices",
    "Fabric",
    "bus_factor",
    "fit_collectives",
    "price_collectives",
]
