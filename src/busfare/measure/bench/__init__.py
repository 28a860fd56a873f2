"""Benchmarks that are run for real, and the predictions held against them: migration methods [S16] and overlap
strategies [W14].

It may import `measure` but for `cuda` and `virtual`, which run its programs, and `planning`, which predicts them. It gives
a benchmark's result; `answers/measure.py` chooses what runs it.
"""
