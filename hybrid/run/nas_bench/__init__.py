"""NAS FT and MG in the modes and numbers of ranks that a machine has, beside the limit of its link and memory.

Run as a program: `python3 hybrid/run/nas_bench ft|mg`. Python's standard library is all it needs.
"""
