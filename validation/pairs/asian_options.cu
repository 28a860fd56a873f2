// Asian options by Monte Carlo: one kernel a contract, its terms in __constant__ memory.
//
//   before  the terms of each contract are copied to the symbol before its kernel
//   async   the same from pinned memory, without blocking
//   batch   the terms of all contracts are copied at once

#include "measured.h"

namespace {

constexpr int kMost = 2000, kSteps = 64, kPaths = 1 << 18, kBlock = 256;

const Program kProgram = {
    "asian_options", "Asian options by Monte Carlo", {"before", "async", "batch"}, 2000};

struct Contract {
    float spot, strike, rate, volatility, years, pad;
};

__constant__ Contract contracts[kMost];

__host__ __device__ uint32_t scrambled(uint32_t word) {
    word = (word ^ (word >> 16)) * 0x7feb352du;
    word = (word ^ (word >> 15)) * 0x846ca68bu;
    return word ^ (word >> 16);
}

/// The discounted payoff of one path: of the mean price over kSteps dates, above the strike.
__host__ __device__ float payoff(const Contract& terms, uint32_t path) {
    const float step = terms.years / kSteps;
    const float drift = (terms.rate - 0.5f * terms.volatility * terms.volatility) * step;
    const float spread = terms.volatility * sqrtf(step);
    float level = 0, sum = 0;
    for (uint32_t pair = 0; pair < kSteps / 2; ++pair) {
        const uint32_t seed = scrambled(path * (kSteps / 2) + pair + 1);
        const float radius = sqrtf(-2 * logf((static_cast<float>(scrambled(seed) >> 8) + 1) * 0x1p-24f));
        const float angle = 6.2831853f * static_cast<float>(scrambled(seed ^ 0x9e3779b9u) >> 8) * 0x1p-24f;
        level += drift + spread * radius * cosf(angle);
        sum += expf(level);
        level += drift + spread * radius * sinf(angle);
        sum += expf(level);
    }
    return expf(-terms.rate * terms.years) * fmaxf(terms.spot * sum / kSteps - terms.strike, 0.0f);
}

__global__ void price(int contract, double* total) {
    const uint32_t path = blockIdx.x * kBlock + threadIdx.x;
    double part = payoff(contracts[contract], path);
    __shared__ double parts[kBlock / 32];
    for (int step = 16; step; step /= 2) part += __shfl_down_sync(~0u, part, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < kBlock / 32; ++warp) part += parts[warp];
        atomicAdd(total, part);
    }
}

Contract contract_of(int number) {
    const float part = static_cast<float>(number) / kMost;
    return {100.0f, 80.0f + 40 * part, 0.01f + 0.04f * part, 0.1f + 0.3f * part, 0.5f + part, 0.0f};
}

double on_host(const Contract& terms) {
    double total = 0;
    for (int path = 0; path < kPaths; ++path) total += payoff(terms, static_cast<uint32_t>(path));
    return total / kPaths;
}

/// With a strike of nothing the price is known: the discounted mean of the forwards.
double reference_error() {
    const Contract terms = {100.0f, 0.0f, 0.05f, 0.2f, 1.0f, 0.0f};
    double known = 0;
    for (int step = 1; step <= kSteps; ++step) known += std::exp(0.05 * step / kSteps) / kSteps;
    known *= 100 * std::exp(-0.05);
    return std::abs(on_host(terms) - known) / known;
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 2e-3);
    if (options.rounds > kMost) {
        std::fprintf(stderr, "asian_options: --rounds %d: at most %d contracts fit\n", options.rounds, kMost);
        return 2;
    }
    HostBuffer<Contract> terms(options.rounds, options.is("async"));
    for (int contract = 0; contract < options.rounds; ++contract) terms[contract] = contract_of(contract);
    double* totals = device_array<double>(options.rounds);
    std::vector<double> found(options.rounds);
    const auto region = [&] {
        CHECK(cudaMemsetAsync(totals, 0, options.rounds * sizeof(double)));
        if (options.is("batch")) CHECK(cudaMemcpyToSymbol(contracts, terms.data(), terms.bytes()));
        for (int contract = 0; contract < options.rounds; ++contract) {
            const size_t offset = contract * sizeof(Contract);
            if (options.is("before"))
                CHECK(cudaMemcpyToSymbol(contracts, &terms[contract], sizeof(Contract), offset));
            if (options.is("async"))
                CHECK(cudaMemcpyToSymbolAsync(contracts, &terms[contract], sizeof(Contract), offset));
            price<<<kPaths / kBlock, kBlock>>>(contract, totals + contract);
        }
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(found.data(), totals, options.rounds * sizeof(double), cudaMemcpyDeviceToHost));
    };
    const std::vector<double> seconds = measure(options, region);
    const int last = options.rounds - 1;
    const double known = on_host(terms[last]);
    const double error = std::abs(found[last] / kPaths - known) / std::max(known, 1.0);
    return report(kProgram, options, seconds, error, 1e-4);
}
