// Curves through control points: of each curve the points, the knots, the weights and a few numbers are
// copies of their own, then a kernel samples it; the host wants the length of each.
//
//   before  four small copies a curve from pageable memory, asked for without blocking
//   batch   packed by the host and sent in one copy, from pageable memory
//   pin     four copies, from pinned memory

#include "measured.h"

namespace {

constexpr int kPoints = 256, kSamples = 4096, kCurves = 64, kThreads = 256;
const Program kProgram = {"curve_batches", "lengths of curves", {"before", "batch", "pin"}, 1500};

struct Curve {
    float x[kPoints], y[kPoints];
    float weights[kPoints];
    float numbers[4];  // scale, shift along x and y, unused
};

__device__ __host__ inline void place(const Curve& curve, float at, float& x, float& y) {
    const float along = at * (kPoints - 1);
    const int first = static_cast<int>(along) < kPoints - 2 ? static_cast<int>(along) : kPoints - 2;
    const float part = along - first;
    const float a = (1 - part) * curve.weights[first], b = part * curve.weights[first + 1];
    x = curve.numbers[0] * (a * curve.x[first] + b * curve.x[first + 1]) / (a + b) + curve.numbers[1];
    y = curve.numbers[0] * (a * curve.y[first] + b * curve.y[first + 1]) / (a + b) + curve.numbers[2];
}

__global__ void length(const Curve* curve, float* result) {
    __shared__ float parts[kThreads];
    float own = 0;
    for (int at = static_cast<int>(threadIdx.x); at < kSamples; at += kThreads) {
        float x0, y0, x1, y1;
        place(*curve, float(at) / kSamples, x0, y0);
        place(*curve, float(at + 1) / kSamples, x1, y1);
        own += sqrtf((x1 - x0) * (x1 - x0) + (y1 - y0) * (y1 - y0));
    }
    parts[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (static_cast<int>(threadIdx.x) < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) *result = parts[0];
}

double on_host(const Curve& curve) {
    double sum = 0;
    for (int at = 0; at < kSamples; ++at) {
        float x0, y0, x1, y1;
        place(curve, float(at) / kSamples, x0, y0);
        place(curve, float(at + 1) / kSamples, x1, y1);
        sum += std::hypot(double(x1) - x0, double(y1) - y0);
    }
    return sum;
}

void fill(Curve& curve, uint64_t seed) {
    Uniform uniform(seed);
    for (int point = 0; point < kPoints; ++point) {
        curve.x[point] = static_cast<float>(point + uniform());
        curve.y[point] = static_cast<float>(4 * uniform());
        curve.weights[point] = static_cast<float>(1 + uniform());
    }
    curve.numbers[0] = static_cast<float>(0.5 + uniform());
    curve.numbers[1] = curve.numbers[2] = curve.numbers[3] = 0;
}

/// Points on a straight line are as far apart as its ends.
double reference_error() {
    Curve straight;
    for (int point = 0; point < kPoints; ++point) {
        straight.x[point] = 3.0f * point / (kPoints - 1);
        straight.y[point] = 4.0f * point / (kPoints - 1);
        straight.weights[point] = 1;
    }
    straight.numbers[0] = 2;
    straight.numbers[1] = straight.numbers[2] = 0;
    return std::abs(on_host(straight) - 10);
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-3);
    const bool pinned = options.is("pin");
    HostBuffer<Curve> curves(kCurves, pinned);
    HostBuffer<float> lengths(kCurves, true);
    for (int each = 0; each < kCurves; ++each) fill(curves[each], 20 + each);
    Curve* on_gpu = device_array<Curve>(1);
    float* results = device_array<float>(kCurves);
    Curve packed;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const auto send = [&](void* to, const void* from, size_t bytes) {
        CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
    };
    const auto region = [&] {
        for (int round = 0; round < options.rounds; ++round) {
            const Curve& curve = curves[round % kCurves];
            if (options.is("batch")) {
                std::memcpy(&packed, &curve, sizeof curve);
                send(on_gpu, &packed, sizeof packed);
            } else {
                send(on_gpu->x, curve.x, sizeof curve.x);
                send(on_gpu->y, curve.y, sizeof curve.y);
                send(on_gpu->weights, curve.weights, sizeof curve.weights);
                send(on_gpu->numbers, curve.numbers, sizeof curve.numbers);
            }
            length<<<1, kThreads, 0, stream>>>(on_gpu, results + round % kCurves);
        }
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(lengths.data(), results, lengths.bytes(), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
    };
    const std::vector<double> seconds = measure(options, region);
    double error = 0;
    for (int each = 0; each < std::min(kCurves, options.rounds); each += 7)
        error = std::max(error, std::abs(lengths[each] / on_host(curves[each]) - 1));
    return report(kProgram, options, seconds, error, 1e-3);
}
