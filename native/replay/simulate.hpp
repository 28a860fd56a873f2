// Plays a timeline: every call and operation starts as soon as all that it waits for has happened.
#pragma once

#include <functional>
#include <vector>

#include "dependencies.hpp"

namespace busfare::replay {

// When everything happens, from 0, and what decided it. A binding is a node (see Dependencies) or kNone.
struct Played {
    std::vector<Time> call_start, call_end, operation_start, operation_end;
    // Empty where nobody asked for them.
    std::vector<Index>
        start_bound_by;  // of calls: the call before on the thread, or the one that handed over
    std::vector<Index> return_bound_by;     // of calls: the operation waited for; kNone: the call's own time
    std::vector<Index> operation_bound_by;  // the launching call, or an operation that had to end first
    std::vector<Index> joined_by;  // of nodes, empty without joints: who arrived last, after the node itself
    Time makespan = 0;
};

// Linear in calls, operations and edges, but for operations that share an engine or a link: those pass
// through a queue of as many entries as are under way.
//
// An engine takes whoever is ready, and of several the one of the least turn. Between two operations that
// take all of it it needs the order lag of the second; a slot that is freed is else used at once.
//
// An operation that finds fewer free slots than it takes begins with those, at as much of its pace, and gets
// the next that are freed until it has them all: so a GPU hands the blocks of kernels to its multiprocessors.
// Nobody gets a slot before it has. One that shares links waits for all of its slots.
//
// Whoever awaits a joint holds its stream or thread meanwhile.
//
// `poll` is called now and then, and may throw to cancel. Throws std::invalid_argument naming the column
// whose values make the run longer than times can be, or joint_members where joints wait for each other.
Played simulate(const Timeline& timeline, Dependencies dependencies, const std::function<void()>& poll,
                bool with_bindings);

}  // namespace busfare::replay
