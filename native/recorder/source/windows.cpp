#include "windows.h"

#include <algorithm>

namespace busfare::recorder {

void Windows::switch_to(bool on, uint64_t time) {
    const std::lock_guard lock(mutex_);
    if ((turns_.size() % 2 == 0) == on)
        turns_.push_back(turns_.empty() ? time : std::max(time, turns_.back()));
}

bool Windows::hold(uint64_t time) const {
    const std::lock_guard lock(mutex_);
    return (std::upper_bound(turns_.begin(), turns_.end(), time) - turns_.begin()) % 2 == 1;
}

void Windows::drain(const std::function<void(uint64_t time, bool on)>& take) {
    const std::lock_guard lock(mutex_);
    for (; drained_ < turns_.size(); ++drained_) take(turns_[drained_], drained_ % 2 == 0);
}

}  // namespace busfare::recorder
