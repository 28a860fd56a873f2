// Histograms of sensor readings in managed memory, that the host renews before each.
//
//   before       pages move when they are touched, by the kernel and by the host
//   fewer-syncs  the same, with one wait a histogram in place of two
//   prefetch     readings are prefetched to the GPU before the kernel, and to the host before it writes

#include "measured.h"

namespace {

constexpr int kBins = 256;
constexpr size_t kReadings = size_t{12} << 20;  // 48 MiB

const Program kProgram = {
    "histogram_managed", "histograms of managed memory", {"before", "fewer-syncs", "prefetch"}, 5};

__global__ void histogram(const uint32_t* readings, unsigned* bins) {
    __shared__ unsigned own[kBins];
    own[threadIdx.x] = 0;
    __syncthreads();
    for (size_t at = blockIdx.x * size_t{blockDim.x} + threadIdx.x; at < kReadings;
         at += size_t{gridDim.x} * blockDim.x)
        atomicAdd(&own[readings[at] >> 24], 1u);
    __syncthreads();
    if (own[threadIdx.x]) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

/// A reading of a round; an odd factor visits every 32-bit number once.
uint32_t reading(size_t at, int round) {
    return (static_cast<uint32_t>(at) + static_cast<uint32_t>(round) * 0x01000193u) * 2654435761u;
}

std::vector<unsigned> on_host(size_t readings, int round) {
    std::vector<unsigned> bins(kBins, 0);
    for (size_t at = 0; at < readings; ++at) ++bins[reading(at, round) >> 24];
    return bins;
}

/// Of numbers that the multiplier spreads evenly each bin gets its share, and none is lost.
double reference_error() {
    const size_t many = size_t{1} << 22;
    double error = 0, total = 0;
    for (const unsigned bin : on_host(many, 7)) {
        error = std::max(error, std::abs(bin * double{kBins} / many - 1));
        total += bin;
    }
    return error + std::abs(total - many);
}

void prefetch(void* data, size_t bytes, bool to_gpu) {
    int device = 0;
    CHECK(cudaGetDevice(&device));
#if CUDART_VERSION >= 13000
    const cudaMemLocation place = {to_gpu ? cudaMemLocationTypeDevice : cudaMemLocationTypeHost,
                                   to_gpu ? device : 0};
    CHECK(cudaMemPrefetchAsync(data, bytes, place, 0, nullptr));
#else
    CHECK(cudaMemPrefetchAsync(data, bytes, to_gpu ? device : cudaCpuDeviceId, nullptr));
#endif
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-2);
    uint32_t* readings = nullptr;
    CHECK(cudaMallocManaged(reinterpret_cast<void**>(&readings), kReadings * sizeof(uint32_t)));
    unsigned* bins = device_array<unsigned>(kBins);
    std::vector<unsigned> found(size_t(options.rounds) * kBins);
    const auto region = [&] {
        for (int round = 0; round < options.rounds; ++round) {
            if (options.is("prefetch")) {
                prefetch(readings, kReadings * sizeof(uint32_t), false);
                CHECK(cudaDeviceSynchronize());
            }
            for (size_t at = 0; at < kReadings; ++at) readings[at] = reading(at, round);
            if (options.is("prefetch")) prefetch(readings, kReadings * sizeof(uint32_t), true);
            CHECK(cudaMemsetAsync(bins, 0, kBins * sizeof(unsigned)));
            histogram<<<264, kBins>>>(readings, bins);
            CHECK(cudaGetLastError());
            if (options.is("before")) CHECK(cudaDeviceSynchronize());
            CHECK(cudaMemcpy(&found[size_t(round) * kBins], bins, kBins * sizeof(unsigned),
                             cudaMemcpyDeviceToHost));
        }
    };
    const std::vector<double> seconds = measure(options, region);
    double error = 0;
    for (const int round : {0, options.rounds - 1}) {
        const std::vector<unsigned> known = on_host(kReadings, round);
        for (int bin = 0; bin < kBins; ++bin)
            error += std::abs(double(known[bin]) - found[size_t(round) * kBins + bin]);
    }
    return report(kProgram, options, seconds, error, 0);
}
