#pragma once

#include <complex>
#include <span>
#include <string>

namespace nas {

/// One problem size of NAS FT, with the official checksums (NPB 3.4, FT/verify).
struct FtClass {
    char name;
    int nx, ny, nz;
    std::span<const std::complex<double>> checksums;  ///< one an iteration

    int iterations() const { return static_cast<int>(checksums.size()); }
    double points() const { return static_cast<double>(nx) * ny * nz; }
};

/// Throws for a class that is not S, W, A, B, C, D or E.
const FtClass& ft_class(const std::string& name);

/// The largest relative difference from the official checksums.
double largest_error(std::span<const std::complex<double>> computed,
                     std::span<const std::complex<double>> official);

/// What NPB accepts.
inline constexpr double ft_tolerance = 1e-12;

/// Floating-point operations as NPB counts them for FT's rate.
double ft_operations(const FtClass& size);

}  // namespace nas
