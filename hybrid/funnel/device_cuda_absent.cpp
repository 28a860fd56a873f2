#include "funnel/device.h"

namespace funnel {

std::vector<GpuPlace> visible_gpus(int) {
    return {};
}

std::unique_ptr<Device> make_cuda_device(int) {
    throw Error(Fault::wrong_use,
                "this build has no CUDA: configure with nvcc in reach, or use --device standin");
}

}  // namespace funnel
