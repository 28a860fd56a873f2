#include <cuda_runtime.h>

#include "examples/kernels.h"

namespace examples {
namespace {

template <class K>
__global__ void run_items(K kernel) {
    const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (item < kernel.items()) kernel.run(item);
}

struct OnCuda {
    /// The owner calls this with the stream on which the task's copies lie, and checks for errors itself.
    template <class K>
    static void add(funnel::KernelTable& table) {
        table.add(K::number, [](void* stream, const void* arguments) {
            const auto& kernel = *static_cast<const K*>(arguments);
            constexpr int threads = 128;
            const auto blocks = static_cast<unsigned>((kernel.items() + threads - 1) / threads);
            run_items<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(kernel);
        });
    }
};

}  // namespace

void add_cuda_kernels(funnel::KernelTable& table) {
    add_kernels<OnCuda>(table);
}

}  // namespace examples
