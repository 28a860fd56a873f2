#pragma once

#include <cstdint>
#include <vector>

#include "nas/grid.h"
#include "nas/halo.h"
#include "nas/mg_class.h"

namespace nas {

/// A point of MG's right-hand side that is not 0.
struct Charge {
    std::int64_t index;  ///< into this rank's array
    double value;        ///< -1 or 1
};

/// Of all random numbers on the grid, the ten largest get 1 and the ten smallest -1 [NPB MG, zran3].
/// Collective; returns those on this rank.
std::vector<Charge> mg_charges(const MgClass& size, const RankBox& box, const Grid& grid, MPI_Comm world);

}  // namespace nas
