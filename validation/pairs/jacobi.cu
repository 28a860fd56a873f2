// Heat in a plate: Jacobi sweeps over a 2048×2048 grid, the residual of each sweep read by the host.
//
//   before  a blocking copy of each residual into a variable of the host
//   pin     the same, into pinned memory
//   batch   a hundred residuals at a time, in one blocking copy
//   async   residuals go to a pinned history in stream order; the host looks at it at the end

#include "measured.h"

namespace {

constexpr int kSide = 2048, kBatch = 100;
constexpr size_t kCells = size_t{kSide} * kSide;

const Program kProgram = {
    "jacobi", "Jacobi sweeps that report their residual", {"before", "pin", "batch", "async"}, 4000};

__global__ void sweep(const float* from, float* to, float* residual) {
    const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    const size_t at = size_t(y) * kSide + x;
    float change = 0;
    if (x > 0 && y > 0 && x < kSide - 1 && y < kSide - 1) {
        const float next = 0.25f * (from[at - 1] + from[at + 1] + from[at - kSide] + from[at + kSide]);
        change = fabsf(next - from[at]);
        to[at] = next;
    }
    __shared__ float largest[8];
    for (int step = 16; step; step /= 2) change = fmaxf(change, __shfl_down_sync(~0u, change, step));
    if (threadIdx.x == 0) largest[threadIdx.y] = change;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        for (int row = 1; row < 8; ++row) change = fmaxf(change, largest[row]);
        // Positive floats order as their bits do.
        atomicMax(reinterpret_cast<int*>(residual), __float_as_int(change));
    }
}

/// The plate's edge: 1 along the top, 0 elsewhere.
std::vector<float> plate() {
    std::vector<float> cells(kCells, 0.0f);
    std::fill(cells.begin(), cells.begin() + kSide, 1.0f);
    return cells;
}

/// One cell after `steps` sweeps, from the cells that it depends on. `cell(y, x)` is the plate at the start.
double on_host(int x, int y, int steps) {
    const int side = 2 * steps + 1;
    std::vector<double> now(size_t(side) * side), next;
    const auto fixed = [&](int i, int j) { return i <= 0 || j <= 0 || i >= kSide - 1 || j >= kSide - 1; };
    for (int j = 0; j < side; ++j)
        for (int i = 0; i < side; ++i) now[size_t(j) * side + i] = y - steps + j <= 0 ? 1.0 : 0.0;
    next = now;
    for (int step = 1; step <= steps; ++step) {
        for (int j = step; j < side - step; ++j) {
            for (int i = step; i < side - step; ++i) {
                const size_t at = size_t(j) * side + i;
                if (!fixed(x - steps + i, y - steps + j))
                    next[at] = 0.25 * (now[at - 1] + now[at + 1] + now[at - side] + now[at + side]);
            }
        }
        std::swap(now, next);
    }
    return now[size_t(steps) * side + steps];
}

/// Beside the hot edge, far from the others: after one sweep a quarter, after two a quarter and a sixteenth
/// more from either side.
double reference_error() {
    return std::abs(on_host(1000, 1, 1) - 0.25) + std::abs(on_host(1000, 1, 2) - 0.375) +
           std::abs(on_host(1000, 0, 3) - 1.0);
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-12);
    const std::vector<float> start = plate();
    float* fields[2] = {device_array<float>(kCells), device_array<float>(kCells)};
    float* residuals = device_array<float>(options.rounds);
    HostBuffer<float> history(options.rounds, options.is("pin") || options.is("async"));
    const dim3 block(32, 8), grid(kSide / 32, kSide / 8);
    const auto sweeps = [&](int rounds, bool read) {
        for (int round = 0; round < rounds; ++round) {
            sweep<<<grid, block>>>(fields[round % 2], fields[(round + 1) % 2], residuals + round);
            CHECK(cudaGetLastError());
            if (!read) continue;
            if (options.is("async")) {
                CHECK(cudaMemcpyAsync(&history[round], residuals + round, sizeof(float),
                                      cudaMemcpyDeviceToHost));
            } else if (options.is("batch")) {
                if ((round + 1) % kBatch && round + 1 < rounds) continue;
                const int first = round / kBatch * kBatch;
                CHECK(cudaMemcpy(&history[first], residuals + first, (round + 1 - first) * sizeof(float),
                                 cudaMemcpyDeviceToHost));
            } else {
                CHECK(cudaMemcpy(&history[round], residuals + round, sizeof(float), cudaMemcpyDeviceToHost));
                if (history[round] == 0.0f) return;  // converged
            }
        }
    };
    const auto reset = [&] {
        for (float* field : fields)
            CHECK(cudaMemcpy(field, start.data(), kCells * sizeof(float), cudaMemcpyHostToDevice));
        CHECK(cudaMemset(residuals, 0, options.rounds * sizeof(float)));
    };
    reset();
    // Residuals only grow in place (atomicMax), so later regions may start from where the earlier ended.
    const std::vector<double> seconds = measure(options, [&] { sweeps(options.rounds, true); });
    double error = 0;
    reset();
    const int steps = std::min(options.rounds, 40);
    sweeps(steps, true);
    CHECK(cudaDeviceSynchronize());
    // The first sweep warms the row beside the hot edge by a quarter, and nothing more.
    error = std::max(error, std::abs(history[0] - 0.25));
    std::vector<float> found(kCells);
    CHECK(cudaMemcpy(found.data(), fields[steps % 2], kCells * sizeof(float), cudaMemcpyDeviceToHost));
    for (const int y : {1, 2, 5, 30}) {
        for (const int x : {1, 700, kSide - 2})
            error = std::max(error, std::abs(found[size_t(y) * kSide + x] - on_host(x, y, steps)));
    }
    return report(kProgram, options, seconds, error, 1e-5);
}
