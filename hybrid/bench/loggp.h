#pragma once

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

namespace bench {

/// Copies of one size: one alone, and a train of them issued back to back.
struct CopyTimes {
    double bytes, alone_seconds, train_seconds;
    int train;
};

/// A path's parameters [W14 §V]: one copy of k bytes takes `latency_overhead + k · gap_per_byte`, and each
/// further one of a train adds `gap` to what its bytes take. Seconds, and seconds per byte.
struct LogGp {
    double latency_overhead, gap_per_byte, gap;
};

/// L+o is the time of the smallest copy; G what all copies take beyond it, over all their bytes; g the median
/// step of trains of copies up to 4 KiB, where bytes count for nothing. Expects the sizes in rising order,
/// the first of them small.
inline LogGp fit_loggp(std::span<const CopyTimes> times) {
    if (times.size() < 2 || times.front().bytes > 64)
        throw std::invalid_argument("a fit wants small copies and large");
    LogGp fit{times.front().alone_seconds, 0, 0};
    double beyond = 0, bytes = 0;
    for (const CopyTimes& t : times) {
        beyond += t.alone_seconds - fit.latency_overhead;
        bytes += t.bytes;
    }
    fit.gap_per_byte = beyond / bytes;
    std::vector<double> steps;
    for (const CopyTimes& t : times)
        if (t.bytes <= 4096)
            steps.push_back((t.train_seconds - t.alone_seconds) / (t.train - 1) - t.bytes * fit.gap_per_byte);
    std::nth_element(steps.begin(), steps.begin() + steps.size() / 2, steps.end());
    fit.gap = steps[steps.size() / 2];
    return fit;
}

}  // namespace bench
