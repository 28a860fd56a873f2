"""What drives NVIDIA's GPUs, through the driver API: it needs the extra 'gpu', and is imported where there are some.

It may import the rest of `measure` but for `virtual`. It gives devices that run the cases of `probe` and the programs of
`bench`. What is measured, and what the samples say, belongs in `measure` and `measure/bench`.
"""
