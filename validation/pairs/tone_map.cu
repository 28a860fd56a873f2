// Tone mapping of an image that is larger than the GPU's share of memory: strips come over from pinned
// memory, the mean of each strip's logarithms is found, its brightness is mapped by that mean, and the strip
// goes back.
//
//   before       one stream and one buffer; the host waits for each strip
//   fewer-syncs  the same without waits but the last
//   streams      four streams, each with buffers of its own

#include "measured.h"

namespace {

constexpr int kStrip = 160'000, kStrips = 48, kThreads = 256, kBlocks = 128;
const Program kProgram = {
    "tone_map", "tone mapping, strip by strip", {"before", "fewer-syncs", "streams"}, 8};

/// Adds the logarithms of all values to `sum`.
__global__ void add_logarithms(const float* values, int count, double* sum) {
    __shared__ double parts[kThreads];
    double own = 0;
    for (int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); at < count;
         at += static_cast<int>(gridDim.x * blockDim.x))
        own += logf(values[at] + 1e-4f);
    parts[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (static_cast<int>(threadIdx.x) < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(sum, parts[0]);
}

__global__ void map(const float* values, float* mapped, int count, const double* sum) {
    const float key = 0.18f / expf(static_cast<float>(*sum / count));
    for (int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); at < count;
         at += static_cast<int>(gridDim.x * blockDim.x)) {
        const float scaled = key * values[at];
        mapped[at] = scaled * (1 + scaled / 9) / (1 + scaled);
    }
}

/// The mapped values of one strip.
std::vector<double> on_host(const float* values, int count) {
    double sum = 0;
    for (int at = 0; at < count; ++at) sum += std::log(double(values[at]) + 1e-4);
    const double key = 0.18 / std::exp(sum / count);
    std::vector<double> mapped(count);
    for (int at = 0; at < count; ++at) {
        const double scaled = key * values[at];
        mapped[at] = scaled * (1 + scaled / 9) / (1 + scaled);
    }
    return mapped;
}

/// A strip of one brightness has that brightness for its mean: all of it is mapped from 0.18.
double reference_error() {
    const std::vector<float> even(100, 7.0f);
    return std::abs(on_host(even.data(), 100)[50] - 0.18 * (1 + 0.18 / 9) / 1.18);
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-5);
    HostBuffer<float> image(size_t{kStrip} * kStrips, true), mapped(size_t{kStrip} * kStrips, true);
    Uniform uniform(3);
    for (size_t at = 0; at < image.size(); ++at)
        image[at] = static_cast<float>(std::exp(6 * uniform() - 3) * (1 + double(at / kStrip)));
    const int lanes = options.is("streams") ? 4 : 1;
    std::vector<cudaStream_t> streams(lanes);
    std::vector<float*> values(lanes), results(lanes);
    std::vector<double*> sums(lanes);
    for (int lane = 0; lane < lanes; ++lane) {
        CHECK(cudaStreamCreateWithFlags(&streams[lane], cudaStreamNonBlocking));
        values[lane] = device_array<float>(kStrip);
        results[lane] = device_array<float>(kStrip);
        sums[lane] = device_array<double>(1);
    }
    constexpr size_t kBytes = kStrip * sizeof(float);
    const auto region = [&] {
        for (int round = 0; round < options.rounds; ++round) {
            for (int strip = 0; strip < kStrips; ++strip) {
                const int lane = strip % lanes;
                const cudaStream_t stream = streams[lane];
                const size_t at = size_t(strip) * kStrip;
                CHECK(
                    cudaMemcpyAsync(values[lane], image.data() + at, kBytes, cudaMemcpyHostToDevice, stream));
                CHECK(cudaMemsetAsync(sums[lane], 0, sizeof(double), stream));
                add_logarithms<<<kBlocks, kThreads, 0, stream>>>(values[lane], kStrip, sums[lane]);
                map<<<kBlocks, kThreads, 0, stream>>>(values[lane], results[lane], kStrip, sums[lane]);
                CHECK(cudaMemcpyAsync(mapped.data() + at, results[lane], kBytes, cudaMemcpyDeviceToHost,
                                      stream));
                if (options.is("before")) CHECK(cudaStreamSynchronize(stream));
            }
        }
        CHECK(cudaGetLastError());
        for (const cudaStream_t stream : streams) CHECK(cudaStreamSynchronize(stream));
    };
    const std::vector<double> seconds = measure(options, region);
    double error = 0;
    for (int strip = 0; strip < kStrips; strip += 7) {
        const std::vector<double> known = on_host(image.data() + size_t(strip) * kStrip, kStrip);
        for (int at = 0; at < kStrip; at += 13)
            error = std::max(error, std::abs(known[at] - mapped[size_t(strip) * kStrip + at]) / known[at]);
    }
    return report(kProgram, options, seconds, error, 1e-4);
}
