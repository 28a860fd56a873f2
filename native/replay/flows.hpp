// The copies under way that share links, from one change of their paces to the next.
#pragma once

#include <optional>
#include <vector>

#include "links.hpp"

namespace busfare::replay {

class Flows {
  public:
    // When the first of them is done if nothing changes, and which change of paces that was foreseen in.
    struct Foreseen {
        Time time;
        Time change;
        Index operation;
    };

    Flows(const Operations& operations, const Links& links) : share_(operations, links) {}

    bool share(Index operation) const { return share_.shares(operation); }
    std::size_t count() const { return flows_.size(); }
    // Until then all that happens to them has been looked at.
    Time looked_at() const { return now_; }
    // Whether nothing has changed since that was foreseen.
    bool holds(Time change) const { return change == changes_; }

    // A copy that would end at `alone_until` if it were alone.
    std::optional<Foreseen> begin(Index operation, Time now, Time alone_until);
    std::optional<Foreseen> end(Index operation, Time now);

  private:
    void advance(Time now);
    // Throws std::invalid_argument where the first one would take longer than times can be.
    std::optional<Foreseen> foresee();

    Sharing share_;
    std::vector<Flow> flows_;
    Time now_ = 0, changes_ = 0;
};

}  // namespace busfare::replay
