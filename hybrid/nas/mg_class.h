#pragma once

#include <array>
#include <string>

namespace nas {

/// One problem size of NAS MG, with the official norm (NPB 3.4, MG/verify).
struct MgClass {
    char name;
    int log2_points;  ///< along each axis
    int iterations;
    double norm;                     ///< of the last residual
    std::array<double, 4> smoother;  ///< c of psinv

    int n() const { return 1 << log2_points; }
    double points() const { return static_cast<double>(n()) * n() * n(); }
};

/// Throws for a class that is not S, W, A, B, C, D or E.
const MgClass& mg_class(const std::string& name);

/// What NPB accepts, relative.
inline constexpr double mg_tolerance = 1e-8;

/// a of resid.
inline constexpr std::array<double, 4> mg_operator = {-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0};

/// Floating-point operations as NPB counts them for MG's rate.
inline double mg_operations(const MgClass& size) {
    return 58.0 * size.iterations * size.points();
}

}  // namespace nas
