#include "nas/mg_class.h"

#include <stdexcept>

namespace nas {
namespace {

constexpr std::array<double, 4> smoother_small = {-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0, 0.0};
constexpr std::array<double, 4> smoother_large = {-3.0 / 17.0, 1.0 / 33.0, -1.0 / 61.0, 0.0};

constexpr std::array<MgClass, 7> classes = {{{'S', 5, 4, 0.5307707005734e-04, smoother_small},
                                             {'W', 7, 4, 0.6467329375339e-05, smoother_small},
                                             {'A', 8, 4, 0.2433365309069e-05, smoother_small},
                                             {'B', 8, 20, 0.1800564401355e-05, smoother_large},
                                             {'C', 9, 20, 0.5706732285740e-06, smoother_large},
                                             {'D', 10, 50, 0.1583275060440e-09, smoother_large},
                                             {'E', 11, 50, 0.5630442584711e-10, smoother_large}}};

}  // namespace

const MgClass& mg_class(const std::string& name) {
    for (const MgClass& candidate : classes)
        if (name == std::string(1, candidate.name)) return candidate;
    throw std::invalid_argument("unknown class '" + name + "': take one of S, W, A, B, C, D, E");
}

}  // namespace nas
