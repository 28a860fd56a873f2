// The fit gives back the parameters that made the times, and leaves one disturbed train aside.
#include "bench/loggp.h"

#include <cmath>

#include "tests/check.h"

int main() {
    constexpr double latency = 9.42e-6, per_byte = 8.318392e-11, gap = 2.503e-6;  // a GTX Titan's [W14 §V]
    constexpr int train = 16;
    std::vector<bench::CopyTimes> times;
    for (double bytes = 1; bytes <= 1 << 26; bytes *= 8) {
        const double alone = latency + bytes * per_byte;
        times.push_back({bytes, alone, alone + (train - 1) * (gap + bytes * per_byte), train});
    }
    times[1].train_seconds *= 3;
    const bench::LogGp fit = bench::fit_loggp(times);
    const auto close = [](double a, double b) { return std::abs(a / b - 1) < 0.01; };
    CHECK(close(fit.latency_overhead, latency));
    CHECK(close(fit.gap_per_byte, per_byte));
    CHECK(close(fit.gap, gap));

    bool refused = false;
    try {
        bench::fit_loggp(std::span(times).subspan(4));
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    CHECK(refused);
    return check::failures;
}
