#include "timed_merge.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <thread>

namespace busfare {

namespace {

// From here on a second thread is worth its start.
constexpr std::size_t kForTwo = 1 << 18;

struct Rest {
    const TimedPart* part;
    std::size_t at, end;
    std::int64_t start() const { return part->starts[at]; }
};

void merge(std::vector<Rest> rests, std::size_t into, std::uint32_t* sized, std::int64_t less,
           const std::vector<std::uint8_t>& marks, const TimedWhole& whole,
           std::vector<std::vector<std::uint32_t>>& marked) {
    std::uint8_t any = 0;
    for (const std::uint8_t mark : marks) any |= mark;
    const auto put = [&](const Rest& rest) {
        const TimedPart& part = *rest.part;
        const std::uint32_t lane = part.lanes[rest.at];
        whole.starts[into] = part.starts[rest.at] - less;
        whole.ends[into] = part.ends[rest.at] - less;
        whole.lanes[into] = part.lane_of[lane];
        whole.sizes[into] = part.sizes == nullptr ? -1 : part.sizes[rest.at];
        if (part.sizes != nullptr) *sized++ = static_cast<std::uint32_t>(into);
        if ((part.marks_of[lane] & any) != 0) {
            for (std::size_t m = 0; m < marks.size(); ++m) {
                if ((part.marks_of[lane] & marks[m]) != 0)
                    marked[m].push_back(static_cast<std::uint32_t>(into));
            }
        }
        ++into;
    };
    std::erase_if(rests, [](const Rest& rest) { return rest.at == rest.end; });
    while (rests.size() > 1) {
        // Up to where some part ends: by no branch on which comes first, for that cannot be foretold.
        while (true) {
            std::size_t least = 0;
            for (std::size_t i = 1; i < rests.size(); ++i)
                least = rests[i].start() < rests[least].start() ? i : least;
            put(rests[least]);
            if (++rests[least].at == rests[least].end) {
                rests.erase(rests.begin() + static_cast<std::ptrdiff_t>(least));
                break;
            }
        }
    }
    for (Rest& rest : rests) {
        for (; rest.at != rest.end; ++rest.at) put(rest);
    }
}

}  // namespace

std::vector<std::vector<std::uint32_t>> merge_timed(const std::vector<TimedPart>& parts, std::int64_t less,
                                                    const std::vector<std::uint8_t>& marks,
                                                    const TimedWhole& whole) {
    std::size_t rows = 0;
    const TimedPart* longest = nullptr;
    for (const TimedPart& part : parts) {
        for (std::size_t i = 0; i < part.count; ++i) {
            if (part.lanes[i] >= part.lane_of.size()) throw std::out_of_range("a lane that is not there");
        }
        rows += part.count;
        if (longest == nullptr || part.count > longest->count) longest = &part;
    }
    std::vector<std::vector<std::uint32_t>> marked(marks.size()), later(marks.size());
    std::vector<Rest> first, second;
    const std::int64_t half = rows < kForTwo ? 0 : longest->starts[longest->count / 2];
    std::size_t before = 0, sized_before = 0;
    for (const TimedPart& part : parts) {
        const std::size_t split =
            rows < kForTwo ? part.count
                           : static_cast<std::size_t>(
                                 std::lower_bound(part.starts, part.starts + part.count, half) - part.starts);
        first.push_back({&part, 0, split});
        second.push_back({&part, split, part.count});
        before += split;
        sized_before += part.sizes == nullptr ? 0 : split;
    }
    if (rows < kForTwo) {
        merge(first, 0, whole.sized, less, marks, whole, marked);
        return marked;
    }
    std::exception_ptr failed;
    {
        const std::jthread beside([&] {
            try {
                merge(second, before, whole.sized + sized_before, less, marks, whole, later);
            } catch (...) {
                failed = std::current_exception();
            }
        });
        merge(first, 0, whole.sized, less, marks, whole, marked);
    }
    if (failed) std::rethrow_exception(failed);
    for (std::size_t m = 0; m < marked.size(); ++m) {
        marked[m].insert(marked[m].end(), later[m].begin(), later[m].end());
    }
    return marked;
}

}  // namespace busfare
