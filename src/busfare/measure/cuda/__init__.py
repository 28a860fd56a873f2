"""Measuring through CUDA: the driver API of `cuda-bindings`, kernels compiled by NVRTC at run time."""
