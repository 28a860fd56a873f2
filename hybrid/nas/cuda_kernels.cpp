#include "nas/cuda_kernels.h"

#include "nas/kernels.h"

namespace nas {

void add_cuda_kernels(funnel::KernelTable& table) {
    add_ft_cuda_kernels(table);
    add_mg_cuda_kernels(table);
    add_mg_correction_cuda_kernels(table);
    add_mg_coarse_cuda_kernels(table);
}

}  // namespace nas
