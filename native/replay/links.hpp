// Copies that share links: each gets its weighted max-min fair part of every link on its way.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "timeline.hpp"

namespace busfare::replay {

// A copy under way. `left` is the time it still needs alone; `rate_share` what part of its own rate it has
// now.
struct Flow {
    Index operation = kNone;
    double left = 0, rate_share = 1;
};

class Sharing {
  public:
    Sharing(const Operations& operations, const Links& links);

    bool shares(Index operation) const {
        const auto [first, last] = places_of(operation);
        return first != last;
    }
    // Sets the pace of every flow: rates grow together, each by its weight, until a link is full or a flow
    // has all that it can use. A link whose opposite is in use carries `duplex_share` of its rate. Flows
    // without links keep a rate_share of 1.
    void operator()(std::vector<Flow>& flows);

  private:
    // Places in `links` of the operations.
    std::pair<std::size_t, std::size_t> places_of(Index operation) const;

    const Operations& o_;
    const Links& l_;
    // By link: the rate that is not given away yet, how many flows still grow, and how much of the link they
    // take as each grows by its weight; the last two are 0 between calls.
    std::vector<double> left_, growth_;
    std::vector<Index> users_;
    std::vector<std::size_t> growing_, fixed_;
};

// How long each operation would have taken alone, from when it was recorded and who ran beside it, in
// nanoseconds. `poll` is called now and then, and may throw to cancel. Throws std::invalid_argument naming
// the column and row that is out of range.
std::vector<Time> alone(const Timeline& timeline, std::span<const Time> start, std::span<const Time> end,
                        const std::function<void()>& poll);

}  // namespace busfare::replay
