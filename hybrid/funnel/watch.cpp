#include "funnel/watch.h"

#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace funnel {
namespace {

using Clock = std::chrono::steady_clock;

/// A process that was killed stays a zombie until its parent looks, so the process number alone proves
/// nothing.
bool lives(long process) {
    std::ifstream status("/proc/" + std::to_string(process) + "/stat");
    std::string line;
    if (!std::getline(status, line)) return false;
    const std::size_t name_end = line.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= line.size()) return false;
    const char state = line[name_end + 2];
    return state != 'Z' && state != 'X';
}

[[noreturn]] void end_job(const Node& node, const std::string& message) {
    std::fprintf(stderr, "funnel: rank %d: %s; ending the job\n", node.world_rank(), message.c_str());
    std::fflush(stderr);
    MPI_Abort(node.world(), lost_rank_status);
    std::_Exit(lost_rank_status);  // where MPI_Abort itself cannot reach the others
}

}  // namespace

Watch::Watch(const Node& node, std::chrono::seconds limit) : node_(node), limit_(limit) {
    if (const char* set = std::getenv("FUNNEL_WAIT_LIMIT_S")) limit_ = std::chrono::seconds(std::atol(set));
    const long process = getpid();
    process_of_rank_.resize(node.local_size());
    MPI_Allgather(&process, 1, MPI_LONG, process_of_rank_.data(), 1, MPI_LONG, node.local());
}

void Watch::look(Clock::time_point began, const std::string& waiting_for) const {
    for (int rank = 0; rank < node_.local_size(); ++rank)
        if (!lives(process_of_rank_[rank]))
            end_job(node_, "rank " + std::to_string(node_.world_rank_of(rank)) + " (process " +
                               std::to_string(process_of_rank_[rank]) + ") died while this rank waited for " +
                               waiting_for);
    if (Clock::now() - began > limit_)
        end_job(node_, "waited over " + std::to_string(limit_.count()) + " s for " + waiting_for);
}

void Watch::until(const std::function<bool()>& ready, const std::string& waiting_for) const {
    constexpr auto between_looks = std::chrono::milliseconds(100);
    constexpr int spins = 200;
    for (int spin = 0; spin < spins; ++spin) {
        if (ready()) return;
        if (work_) work_();
    }
    const auto began = Clock::now();
    auto last_look = began;
    while (!ready()) {
        sched_yield();
        if (work_) work_();
        const auto now = Clock::now();
        if (now - last_look < between_looks) continue;
        last_look = now;
        look(began, waiting_for);
    }
}

}  // namespace funnel
