#pragma once

#include "nas/kernels.h"

namespace nas {

/// MG's kernels on a core; the stand-in device and the coarse levels run the same ones.

void stencil(const StencilArguments& arguments);
void restrict_residual(const RestrictArguments& arguments);
void interpolate(const InterpolateArguments& arguments);
void correct_residual(const CorrectResidualArguments& arguments);
void correct_and_smooth(const CorrectAndSmoothArguments& arguments);
void solve_coarse(const SolveCoarseArguments& arguments);
void pack_ghosts(const PackArguments& arguments);
void fill_ghosts(const FillArguments& arguments);
void copy_dense(const DenseArguments& arguments, bool gather);
void norm(const NormArguments& arguments);

void add_mg_host_kernels(funnel::KernelTable& table);

}  // namespace nas
