#include "nas/mg_points.h"

#include <algorithm>

#include "nas/random.h"

namespace nas {
namespace {

constexpr std::size_t most_charges = 10;

struct Candidate {
    double value;
    std::int64_t place;  ///< in the whole grid, x fastest
};

/// Keeps the best ten in order; almost every candidate fails the first comparison.
template <class Better>
class Best {
  public:
    void offer(const Candidate& candidate) {
        if (kept_.size() == most_charges && !better_(candidate, kept_.back())) return;
        kept_.insert(std::upper_bound(kept_.begin(), kept_.end(), candidate, better_), candidate);
        if (kept_.size() > most_charges) kept_.pop_back();
    }
    /// The best ten of all ranks.
    std::vector<Candidate> of_all(MPI_Comm world) const {
        int ranks = 0;
        MPI_Comm_size(world, &ranks);
        std::vector<Candidate> mine(kept_), all(most_charges * static_cast<std::size_t>(ranks));
        while (mine.size() < most_charges) mine.push_back({0, -1});
        MPI_Allgather(mine.data(), most_charges * sizeof(Candidate), MPI_BYTE, all.data(),
                      most_charges * sizeof(Candidate), MPI_BYTE, world);
        std::erase_if(all, [](const Candidate& c) { return c.place < 0; });
        std::sort(all.begin(), all.end(), better_);
        all.resize(std::min(all.size(), most_charges));
        return all;
    }

  private:
    Better better_;
    std::vector<Candidate> kept_;
};

struct Larger {
    bool operator()(const Candidate& a, const Candidate& b) const { return a.value > b.value; }
};
struct Smaller {
    bool operator()(const Candidate& a, const Candidate& b) const { return a.value < b.value; }
};

}  // namespace

std::vector<Charge> mg_charges(const MgClass& size, const RankBox& box, const Grid& grid, MPI_Comm world) {
    const std::int64_t n = size.n();
    const std::int64_t x0 = static_cast<std::int64_t>(box.x) * grid.nx,
                       y0 = static_cast<std::int64_t>(box.y) * grid.ny,
                       z0 = static_cast<std::int64_t>(box.z) * grid.nz;
    Best<Larger> largest;
    Best<Smaller> smallest;
    for (int z = 0; z < grid.nz; ++z)
        for (int y = 0; y < grid.ny; ++y) {
            const std::int64_t row = x0 + n * (y0 + y + n * (z0 + z));
            Random random(static_cast<std::uint64_t>(row));
            for (int x = 0; x < grid.nx; ++x) {
                const Candidate candidate{random.next(), row + x};
                largest.offer(candidate);
                smallest.offer(candidate);
            }
        }

    std::vector<Charge> charges;
    const auto take_mine = [&](const std::vector<Candidate>& candidates, double value) {
        for (const Candidate& c : candidates) {
            const std::int64_t x = c.place % n - x0, y = c.place / n % n - y0, z = c.place / (n * n) - z0;
            if (x < 0 || x >= grid.nx || y < 0 || y >= grid.ny || z < 0 || z >= grid.nz) continue;
            charges.push_back(
                {grid.at(static_cast<int>(x) + 1, static_cast<int>(y) + 1, static_cast<int>(z) + 1), value});
        }
    };
    take_mine(smallest.of_all(world), -1);
    take_mine(largest.of_all(world), 1);
    return charges;
}

}  // namespace nas
