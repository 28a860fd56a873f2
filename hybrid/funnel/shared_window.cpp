#include "funnel/shared_window.h"

#include <cstdint>
#include <string>

#include "funnel/error.h"
#include "funnel/errors_return.h"

namespace funnel {
namespace {

std::size_t whole_pages(std::size_t bytes) {
    return (bytes + SharedWindow::page - 1) / SharedWindow::page * SharedWindow::page;
}

}  // namespace

SharedWindow::SharedWindow(MPI_Comm comm, std::size_t bytes) {
    const ErrorsReturn errors(comm);
    const std::size_t usable = whole_pages(bytes);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");  // each segment may lie near its own rank
    void* ignored = nullptr;
    const auto window_bytes = static_cast<MPI_Aint>(usable == 0 ? 0 : usable + page);
    const int status = MPI_Win_allocate_shared(window_bytes, 1, info, comm, &ignored, &window_);
    MPI_Info_free(&info);
    if (status != MPI_SUCCESS)
        throw Error(Fault::allocation_refused,
                    "MPI refused " + std::to_string(window_bytes) + " bytes of shared memory");

    int ranks = 0;
    MPI_Comm_size(comm, &ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        MPI_Aint size = 0;
        int unit = 0;
        std::byte* start = nullptr;
        MPI_Win_shared_query(window_, rank, &size, &unit, &start);
        // Mappings start on pages, so the first whole page is the same one in every process.
        const auto address = reinterpret_cast<std::uintptr_t>(start);
        if (size == 0)
            segments_.push_back({nullptr, 0});
        else
            segments_.push_back(
                {start + (whole_pages(address) - address), static_cast<std::size_t>(size) - page});
    }
}

SharedWindow::~SharedWindow() {
    MPI_Win_free(&window_);
}

}  // namespace funnel
