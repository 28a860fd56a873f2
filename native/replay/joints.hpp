// Sets of nodes that others await the last of: a collective transfers once every rank has come to it.
#pragma once

#include <utility>
#include <vector>

#include "timeline.hpp"

namespace busfare::replay {

struct Joint {
    std::int64_t missing = 0;  // how many have yet to arrive
    Time arrived = 0;          // the last of those that have
    Index last = kNone;        // that node
    Index waiting = kNone;     // the newest node that has started and waits for it
};

class Joints {
  public:
    explicit Joints(const Timeline& timeline) : t_(timeline) {
        const JointSets& sets = timeline.joints;
        const std::size_t joints = sets.size();
        if (joints == 0) return;
        joints_.resize(joints);
        const std::size_t nodes = timeline.calls.size() + timeline.operations.size();
        next_waiting_.assign(nodes, kNone);
        first_.assign(nodes + 1, 0);
        for (const Index node : sets.members) ++first_[node];
        Index end = 0;
        for (Index& first : first_) first = end += first;
        of_.resize(sets.members.size());
        // Backwards, so that each node's first place is where it stops.
        for (std::size_t joint = joints; joint-- > 0;) {
            const auto members = sets.of(joint);
            joints_[joint].missing = std::ssize(members);
            for (const Index node : members) of_[--first_[node]] = static_cast<Index>(joint);
        }
    }

    explicit operator bool() const { return !joints_.empty(); }
    // Those in which the node arrives.
    std::span<const Index> of(Index node) const {
        const auto first = static_cast<std::size_t>(first_[node]);
        return std::span(of_).subspan(first, static_cast<std::size_t>(first_[node + 1]) - first);
    }

    // Says whether it was the last to arrive.
    bool arrives(Index joint, Index node, Time time) {
        Joint& j = joints_[joint];
        if (j.last == kNone || time > j.arrived) {
            j.arrived = time;
            j.last = node;
        }
        return --j.missing == 0;
    }

    const Joint* awaited_by(Index node) const {
        const Index joint = joint_of(node);
        return joint == kNone ? nullptr : &joints_[joint];
    }
    // Whether somebody is missing whom the node awaits; then it is noted as waiting.
    bool waits(Index node) {
        const Index joint = joint_of(node);
        if (joint == kNone || joints_[joint].missing == 0) return false;
        next_waiting_[node] = std::exchange(joints_[joint].waiting, node);
        return true;
    }
    // One that waits no longer, or kNone.
    Index take_waiting(Index joint) {
        Index& waiting = joints_[joint].waiting;
        return waiting == kNone ? kNone : std::exchange(waiting, next_waiting_[waiting]);
    }

  private:
    Index joint_of(Index node) const {
        const auto calls = static_cast<Index>(t_.calls.size());
        return node < calls ? t_.calls.awaits[node] : t_.operations.awaits[node - calls];
    }

    const Timeline& t_;
    std::vector<Joint> joints_;
    std::vector<Index> first_, of_;    // nodes + 1 places in `of_`, the joints of each node
    std::vector<Index> next_waiting_;  // by node
};

}  // namespace busfare::replay
