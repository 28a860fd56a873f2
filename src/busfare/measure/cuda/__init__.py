"""Measuring through CUDA: the driver API of `cuda-bindings`, kernels compiled by NVRTC at run time."""

from busfare.measure.cuda.device import CudaDevice, open_cuda

__all__ = ["CudaDevice", "open_cuda"]
