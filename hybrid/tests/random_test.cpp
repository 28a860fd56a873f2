// The integer random numbers against NPB's own way: products of split doubles.
#include "nas/random.h"

#include "tests/check.h"

namespace {

/// x ← a·x mod 2⁴⁶ in doubles split into 23-bit halves, as NPB's randlc defines it.
double next_in_doubles(double& x, double a) {
    constexpr double r23 = 0x1p-23, r46 = 0x1p-46, t23 = 0x1p23, t46 = 0x1p46;
    const double a1 = static_cast<double>(static_cast<long long>(r23 * a)), a2 = a - t23 * a1;
    const double x1 = static_cast<double>(static_cast<long long>(r23 * x)), x2 = x - t23 * x1;
    const double t1 = a1 * x2 + a2 * x1;
    const double z = t1 - t23 * static_cast<double>(static_cast<long long>(r23 * t1));
    const double t3 = t23 * z + a2 * x2;
    x = t3 - t46 * static_cast<double>(static_cast<long long>(r46 * t3));
    return r46 * x;
}

}  // namespace

int main() {
    double x = nas::Random::seed;
    nas::Random sequence(0);
    bool same = true, skips = true;
    for (int i = 0; i < 100000; ++i) {
        if (i % 9973 == 0) {
            double ahead = x;
            skips = skips && nas::Random(i).next() == next_in_doubles(ahead, nas::Random::multiplier);
        }
        same = same && sequence.next() == next_in_doubles(x, nas::Random::multiplier);
    }
    CHECK(same);
    CHECK(skips);
    return check::failures;
}
