"""Benchmarks that are run for real, and the predictions held against them: migration methods [S16] and overlap
strategies [W14].
"""
