#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "funnel/node.h"

namespace funnel {

/// Keeps a wait from becoming a hang: it looks, now and then, whether the processes of this node still live
/// and whether the wait has outlasted its limit, and ends the whole job with a message when not.
class Watch {
  public:
    /// Collective over the node. `limit` is the longest wait; the environment's FUNNEL_WAIT_LIMIT_S overrides
    /// it.
    explicit Watch(const Node& node, std::chrono::seconds limit = std::chrono::seconds(600));

    /// Returns once `ready()` is true; yields the core meanwhile. `waiting_for` is worded for the message.
    void until(const std::function<bool()>& ready, const std::string& waiting_for) const;

    /// What every wait does between two looks at its condition; none for an empty function.
    void while_waiting(std::function<void()> work) { work_ = std::move(work); }

  private:
    void look(std::chrono::steady_clock::time_point began, const std::string& waiting_for) const;

    const Node& node_;
    std::chrono::seconds limit_;
    std::function<void()> work_;
    std::vector<long> process_of_rank_;
};

/// The exit status of a job that a `Watch` ended.
inline constexpr int lost_rank_status = 70;

}  // namespace funnel
