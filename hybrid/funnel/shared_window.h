#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace funnel {

/// Memory that the ranks of one communicator share, one segment a rank, each on pages of its own.
///
/// MPI promises no alignment (Open MPI hands out addresses that are 8 bytes past a multiple of 16), but
/// devices register whole pages and vectors want theirs, so every segment starts at the first whole page of a
/// slightly larger one.
class SharedWindow {
  public:
    static constexpr std::size_t page = 4096;

    /// Collective. Throws Fault::allocation_refused.
    SharedWindow(MPI_Comm comm, std::size_t bytes);
    ~SharedWindow();
    SharedWindow(const SharedWindow&) = delete;
    SharedWindow& operator=(const SharedWindow&) = delete;

    struct Segment {
        std::byte* base;
        std::size_t bytes;  ///< a multiple of the page
    };
    const std::vector<Segment>& segments() const { return segments_; }

  private:
    MPI_Win window_ = MPI_WIN_NULL;
    std::vector<Segment> segments_;
};

}  // namespace funnel
