// Windows over frames of a signal: each frame comes from pinned memory, is weighed by a window and smoothed,
// and goes back as it is long.
//
//   before    one stream and one buffer; the host waits for each frame
//   streams   three streams, each with buffers of its own
//   streams-eight  eight of them

#include "measured.h"

namespace {

constexpr int kFrame = 80'000, kFrames = 96, kThreads = 256, kReach = 4;
const Program kProgram = {"window_frames", "windows over frames", {"before", "streams", "streams-eight"}, 6};

__host__ __device__ float weight(int at) {
    return 0.5f - 0.5f * cosf(6.28318530718f * (static_cast<float>(at) + 0.5f) / kFrame);
}

__global__ void weigh(const float* frame, float* weighed) {
    const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (at < kFrame) weighed[at] = frame[at] * weight(at);
}

__global__ void smooth(const float* weighed, float* smoothed) {
    const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (at >= kFrame) return;
    float sum = 0;
    for (int near = max(at - kReach, 0); near <= min(at + kReach, kFrame - 1); ++near) sum += weighed[near];
    smoothed[at] = sum / (2 * kReach + 1);
}

double on_host(const float* frame, int at) {
    double sum = 0;
    for (int near = std::max(at - kReach, 0); near <= std::min(at + kReach, kFrame - 1); ++near)
        sum += double(frame[near]) * (0.5 - 0.5 * std::cos(2 * M_PI * (near + 0.5) / kFrame));
    return sum / (2 * kReach + 1);
}

/// In the middle of an even frame the window is 1, and so is all that is near.
double reference_error() {
    const std::vector<float> even(kFrame, 1.0f);
    return std::abs(on_host(even.data(), kFrame / 2) - 1.0);
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-5);
    HostBuffer<float> signal(size_t{kFrame} * kFrames, true), result(size_t{kFrame} * kFrames, true);
    Uniform uniform(5);
    for (size_t at = 0; at < signal.size(); ++at) signal[at] = static_cast<float>(uniform() - 0.5);
    const int lanes = options.is("streams-eight") ? 8 : options.is("streams") ? 3 : 1;
    std::vector<cudaStream_t> streams(lanes);
    std::vector<float*> frames(lanes), weighed(lanes), smoothed(lanes);
    for (int lane = 0; lane < lanes; ++lane) {
        CHECK(cudaStreamCreateWithFlags(&streams[lane], cudaStreamNonBlocking));
        for (auto* const buffer : {&frames, &weighed, &smoothed})
            (*buffer)[lane] = device_array<float>(kFrame);
    }
    constexpr size_t kBytes = kFrame * sizeof(float);
    constexpr int kBlocks = (kFrame + kThreads - 1) / kThreads;
    const auto region = [&] {
        for (int round = 0; round < options.rounds; ++round) {
            for (int frame = 0; frame < kFrames; ++frame) {
                const int lane = frame % lanes;
                const cudaStream_t stream = streams[lane];
                const size_t at = size_t(frame) * kFrame;
                CHECK(cudaMemcpyAsync(frames[lane], signal.data() + at, kBytes, cudaMemcpyHostToDevice,
                                      stream));
                weigh<<<kBlocks, kThreads, 0, stream>>>(frames[lane], weighed[lane]);
                smooth<<<kBlocks, kThreads, 0, stream>>>(weighed[lane], smoothed[lane]);
                CHECK(cudaMemcpyAsync(result.data() + at, smoothed[lane], kBytes, cudaMemcpyDeviceToHost,
                                      stream));
                if (options.is("before")) CHECK(cudaStreamSynchronize(stream));
            }
        }
        CHECK(cudaGetLastError());
        for (const cudaStream_t stream : streams) CHECK(cudaStreamSynchronize(stream));
    };
    const std::vector<double> seconds = measure(options, region);
    double error = 0;
    for (int frame = 0; frame < kFrames; frame += 11) {
        for (int at = 0; at < kFrame; at += 997) {
            const double known = on_host(signal.data() + size_t(frame) * kFrame, at);
            error = std::max(error, std::abs(known - result[size_t(frame) * kFrame + at]));
        }
    }
    return report(kProgram, options, seconds, error, 1e-5);
}
