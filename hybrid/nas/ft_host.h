#pragma once

#include <complex>
#include <cstddef>

#include "nas/kernels.h"

namespace nas {

/// FT's kernels on a core (FFTW); the stand-in device runs the same ones.

void evolve_planes(const std::complex<double>* from, std::complex<double>* to,
                   const EvolveArguments& arguments);

/// Transforms planes of rows × nx points; `from` and `to` are the same or do not overlap.
void transform_planes(const std::complex<double>* from, std::complex<double>* to, int planes, int rows,
                      int nx, int sign);

/// Transforms `columns` lines: point i of line c is read at `from[i · from_pitch + c]` and written to
/// `to[i · to_pitch + c]`. A tile of lines at a time is copied together, so that each cache line of the wide
/// side is moved whole and once each way.
void transform_lines(const std::complex<double>* from, std::size_t from_pitch, std::complex<double>* to,
                     std::size_t to_pitch, int length, std::size_t columns, int sign);

/// The transpose on the stand-in's memory.
void scatter_rows(const ScatterArguments& arguments);

void add_ft_host_kernels(funnel::KernelTable& table);

}  // namespace nas
