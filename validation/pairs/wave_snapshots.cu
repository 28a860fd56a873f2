// A wave on a membrane, of which the host keeps a picture every few steps.
//
//   before     pictures into pageable memory, blocking copies
//   pin        the same into pinned memory
//   pin-async  pinned memory; the host goes on while a picture comes back, and waits at the end

#include "measured.h"

namespace {

constexpr int kSide = 1280, kStepsAPicture = 6, kPictures = 8;
constexpr size_t kCells = size_t{kSide} * kSide;
constexpr float kSquare = 0.2f;  // (speed · step / spacing)²
const Program kProgram = {
    "wave_snapshots", "a wave, with pictures for the host", {"before", "pin", "pin-async"}, 12};

/// The next state in place of the one before; the membrane wraps around.
__global__ void step(const float* now, float* before) {
    const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x),
              y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= kSide || y >= kSide) return;
    const int left = (x + kSide - 1) % kSide, right = (x + 1) % kSide, up = (y + kSide - 1) % kSide,
              down = (y + 1) % kSide;
    const float own = now[size_t(y) * kSide + x];
    const float around = now[size_t(y) * kSide + left] + now[size_t(y) * kSide + right] +
                         now[size_t(up) * kSide + x] + now[size_t(down) * kSide + x];
    float& cell = before[size_t(y) * kSide + x];
    cell = 2 * own - cell + kSquare * (around - 4 * own);
}

/// A standing wave: its shape, and the angle by which each step turns it.
double shape(int x, int y) {
    const double turn = 2 * std::acos(-1.0);
    return std::cos(turn * 3 * x / kSide) * std::cos(turn * 5 * y / kSide);
}

double angle() {
    const double turn = 2 * std::acos(-1.0);
    return std::acos(1 + kSquare * (std::cos(turn * 3 / kSide) + std::cos(turn * 5 / kSide) - 2));
}

/// Three states of one cell, in a row, keep to the step's own rule.
double reference_error() {
    double error = 0;
    for (int n = 1; n < 50; ++n) {
        const double around = shape(10, 7) * std::cos(n * angle()) + shape(12, 7) * std::cos(n * angle()) +
                              shape(11, 6) * std::cos(n * angle()) + shape(11, 8) * std::cos(n * angle());
        const double own = shape(11, 7) * std::cos(n * angle());
        const double next =
            2 * own - shape(11, 7) * std::cos((n - 1) * angle()) + kSquare * (around - 4 * own);
        error = std::max(error, std::abs(next - shape(11, 7) * std::cos((n + 1) * angle())));
    }
    return error;
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-8);
    HostBuffer<float> pictures(kPictures * kCells, !options.is("before")), start(kCells, false),
        old(kCells, false);
    for (int y = 0; y < kSide; ++y) {
        for (int x = 0; x < kSide; ++x) {
            start[size_t(y) * kSide + x] = static_cast<float>(shape(x, y));
            old[size_t(y) * kSide + x] = static_cast<float>(shape(x, y) * std::cos(angle()));
        }
    }
    float *now = device_array<float>(kCells), *before = device_array<float>(kCells);
    float *first = device_array<float>(kCells), *second = device_array<float>(kCells);
    CHECK(cudaMemcpy(first, start.data(), start.bytes(), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(second, old.data(), old.bytes(), cudaMemcpyHostToDevice));
    const dim3 block(32, 8), grid(kSide / 32, kSide / 8);
    constexpr size_t kBytes = kCells * sizeof(float);
    const auto region = [&] {
        CHECK(cudaMemcpyAsync(now, first, kBytes, cudaMemcpyDeviceToDevice));
        CHECK(cudaMemcpyAsync(before, second, kBytes, cudaMemcpyDeviceToDevice));
        for (int round = 0; round < options.rounds; ++round) {
            for (int each = 0; each < kStepsAPicture; ++each) {
                step<<<grid, block>>>(now, before);
                std::swap(now, before);
            }
            float* picture = pictures.data() + size_t(round % kPictures) * kCells;
            if (options.is("pin-async"))
                CHECK(cudaMemcpyAsync(picture, now, kBytes, cudaMemcpyDeviceToHost));
            else
                CHECK(cudaMemcpy(picture, now, kBytes, cudaMemcpyDeviceToHost));
        }
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    };
    const std::vector<double> seconds = measure(options, region);
    double error = 0;
    for (int round = std::max(options.rounds - kPictures, 0); round < options.rounds; ++round) {
        const double turned = std::cos(kStepsAPicture * (round + 1) * angle());
        for (size_t at = 0; at < kCells; at += 1009) {
            const double known = shape(static_cast<int>(at % kSide), static_cast<int>(at / kSide)) * turned;
            error = std::max(error, std::abs(known - pictures[size_t(round % kPictures) * kCells + at]));
        }
    }
    return report(kProgram, options, seconds, error, 1e-2);
}
