// A stack of layers of which the first stay on the GPU and the others are paged in from pinned memory.
//
//   before     a stream for copies, but the host sends each layer when it is its turn, and waits for it
//   depth-1    sent one streamed layer ahead into two buffers; the streams wait for each other
//   depth-2    two ahead, into three buffers

#include "measured.h"

namespace {

constexpr int kLayers = 12, kResident = 4, kWeights = 1 << 22, kPoints = 1 << 20, kSweeps = 24;
const Program kProgram = {
    "paged_layers", "layers of which some are paged in", {"before", "depth-1", "depth-2"}, 6};

/// Each point is moved by weights that lie a stride of its own apart.
__global__ void layer(const float* weights, float* points, int sweeps) {
    const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (at >= kPoints) return;
    float value = points[at];
    for (int sweep = 0; sweep < sweeps; ++sweep)
        value = 0.5f * value + weights[(size_t(at) * 4 + size_t(sweep) * 65537) % kWeights];
    points[at] = value;
}

__global__ void settle(float* points) {
    const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (at < kPoints) points[at] = points[at] / (1.0f + fabsf(points[at]));
}

float weight(int number, size_t place) {
    return static_cast<float>((number * 31 + place * 7) % 101) * 0.02f - 1.0f;
}

double through(int layers, int at, double value) {
    for (int number = 0; number < layers; ++number) {
        for (int sweep = 0; sweep < kSweeps; ++sweep)
            value = 0.5 * value + weight(number, (size_t(at) * 4 + size_t(sweep) * 65537) % kWeights);
        value = value / (1 + std::abs(value));
    }
    return value;
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, std::abs(through(0, 3, 0.25) - 0.25), 1e-12);
    const int depth = options.is("before") ? 0 : options.is("depth-1") ? 1 : 2;
    constexpr size_t kBytes = size_t{kWeights} * sizeof(float);
    HostBuffer<float> weights(size_t{kLayers} * kWeights, true), result(kPoints, true);
    for (int number = 0; number < kLayers; ++number)
        for (size_t place = 0; place < kWeights; ++place)
            weights.data()[size_t(number) * kWeights + place] = weight(number, place);
    std::vector<float*> resident, slots;
    for (int number = 0; number < kResident; ++number) {
        resident.push_back(device_array<float>(kWeights));
        CHECK(cudaMemcpy(resident[number], weights.data() + size_t(number) * kWeights, kBytes,
                         cudaMemcpyHostToDevice));
    }
    for (int slot = 0; slot <= depth; ++slot) slots.push_back(device_array<float>(kWeights));
    float* points = device_array<float>(kPoints);
    cudaStream_t computing, copying;
    CHECK(cudaStreamCreateWithFlags(&computing, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&copying, cudaStreamNonBlocking));
    std::vector<cudaEvent_t> ready(slots.size()), free(slots.size());
    for (size_t slot = 0; slot < slots.size(); ++slot) {
        CHECK(cudaEventCreateWithFlags(&ready[slot], cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&free[slot], cudaEventDisableTiming));
    }
    constexpr int kStreamed = kLayers - kResident;
    const auto region = [&] {
        const int total = options.rounds * kStreamed;
        const auto send = [&](int number) {
            if (number >= total) return;
            const size_t slot = static_cast<size_t>(number) % slots.size();
            if (number >= static_cast<int>(slots.size())) CHECK(cudaStreamWaitEvent(copying, free[slot], 0));
            CHECK(cudaMemcpyAsync(slots[slot],
                                  weights.data() + size_t(kResident + number % kStreamed) * kWeights, kBytes,
                                  cudaMemcpyHostToDevice, copying));
            CHECK(cudaEventRecord(ready[slot], copying));
        };
        for (int number = 0; number < depth; ++number) send(number);
        int next = 0;
        for (int round = 0; round < options.rounds; ++round) {
            CHECK(cudaMemsetAsync(points, 0, kPoints * sizeof(float), computing));
            for (int number = 0; number < kLayers; ++number) {
                const size_t slot = static_cast<size_t>(next) % slots.size();
                if (number >= kResident) {
                    send(next + depth);
                    if (depth)
                        CHECK(cudaStreamWaitEvent(computing, ready[slot], 0));
                    else
                        CHECK(cudaStreamSynchronize(copying));
                }
                layer<<<kPoints / 256, 256, 0, computing>>>(
                    number < kResident ? resident[size_t(number)] : slots[slot], points, kSweeps);
                settle<<<kPoints / 256, 256, 0, computing>>>(points);
                if (number >= kResident) {
                    CHECK(cudaEventRecord(free[slot], computing));
                    ++next;
                }
            }
            CHECK(cudaMemcpyAsync(result.data(), points, kPoints * sizeof(float), cudaMemcpyDeviceToHost,
                                  computing));
        }
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(computing));
    };
    const std::vector<double> seconds = measure(options, region);
    double error = 0;
    for (int at = 0; at < kPoints; at += 4099)
        error = std::max(error, std::abs(through(kLayers, at, 0.0) - result.data()[at]));
    return report(kProgram, options, seconds, error, 1e-3);
}
