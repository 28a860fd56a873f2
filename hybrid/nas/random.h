#pragma once

#include <cstdint>

namespace nas {

/// The NAS random numbers: x ← 5¹³·x mod 2⁴⁶, delivered as x·2⁻⁴⁶ in (0, 1). The product of two 46-bit
/// numbers modulo 2⁴⁶ needs only the low 64 bits, so integers give exactly what the reference computes in
/// split doubles.
class Random {
  public:
    static constexpr std::uint64_t multiplier = 1220703125;  // 5¹³
    static constexpr std::uint64_t seed = 314159265;         // FT and MG

    /// Positioned so that the next number is number `skip` of the sequence (from 0).
    explicit Random(std::uint64_t skip) : x_(seed * power(skip) & mask) {}

    double next() {
        x_ = x_ * multiplier & mask;
        return static_cast<double>(x_) * 0x1p-46;
    }

  private:
    static constexpr std::uint64_t mask = (std::uint64_t{1} << 46) - 1;

    static std::uint64_t power(std::uint64_t exponent) {
        std::uint64_t result = 1;
        for (std::uint64_t base = multiplier; exponent > 0; exponent >>= 1, base = base * base & mask)
            if (exponent & 1) result = result * base & mask;
        return result;
    }

    std::uint64_t x_;
};

}  // namespace nas
