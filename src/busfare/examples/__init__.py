"""Traces of real programs, recorded with PyTorch's profiler on an H100 and an H200 (examples/programs)."""
