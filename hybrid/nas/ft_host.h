#pragma once

#include <complex>
#include <cstddef>

#include "nas/kernels.h"

namespace nas {

/// FT's kernels on a core (FFTW); the stand-in device runs the same ones.

void evolve_planes(const std::complex<double>* from, std::complex<double>* to,
                   const EvolveArguments& arguments);

void transform_planes(std::complex<double>* data, int planes, int rows, int nx, int sign);

/// Transforms `columns` lines: point i of line c is read at `data[i · pitch + c]` and written to
/// `to[c · column_pitch + i · length_pitch]`. Lines are gathered a tile at a time, so that each cache line of
/// the strided side is used whole.
void transform_lines(std::complex<double>* data, int length, std::size_t pitch, std::size_t columns, int sign,
                     std::complex<double>* to, std::size_t column_pitch, std::size_t length_pitch);

void add_ft_host_kernels(funnel::KernelTable& table);

}  // namespace nas
