"""Measurements on a real GPU, or on a virtual one that plays a node of the catalogue.

It may import `planning`, `timeline`, `cost`, `nodes`, and of `trace` the files that `record` writes; `cli` and `answers`
alone import it. It gives the node of a machine, benchmarks beside their predictions, and recordings of programs. Words
about the results belong in `show`.
"""
