"""Kernel times on another GPU: class and work of a kernel, limits of both GPUs, and the moved time with its range.

Imports `nodes` and `trace`, and of `cost` the ranges. `price_kernels` prices those of a trace, `price_kernel` a single one.
Copies belong in `busfare.cost.copies`, collectives in `busfare.cost.collectives`.
"""
