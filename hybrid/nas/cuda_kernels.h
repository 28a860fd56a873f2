#pragma once

#include "funnel/kernel_table.h"

namespace nas {

void add_ft_cuda_kernels(funnel::KernelTable& table);
void add_mg_cuda_kernels(funnel::KernelTable& table);
void add_mg_correction_cuda_kernels(funnel::KernelTable& table);
void add_mg_coarse_cuda_kernels(funnel::KernelTable& table);

}  // namespace nas
