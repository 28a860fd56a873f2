// The brightest points of tiles: each tile of two megabytes comes from pinned memory, its rows are summed and
// divided by their mean, and the largest of each row goes back, a two-hundredth of what came.
//
//   before   one stream and one buffer; the host waits for each tile
//   streams  two streams, each with buffers of its own

#include "measured.h"

namespace {

constexpr int kRows = 1024, kColumns = 512, kTiles = 60, kThreads = 128;
const Program kProgram = {"peak_tiles", "the brightest points of tiles", {"before", "streams"}, 6};

__device__ float over_block(float own, bool largest, float* parts) {
    parts[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (static_cast<int>(threadIdx.x) < half) {
            const float other = parts[threadIdx.x + half];
            parts[threadIdx.x] = largest ? fmaxf(parts[threadIdx.x], other) : parts[threadIdx.x] + other;
        }
        __syncthreads();
    }
    const float whole = parts[0];
    __syncthreads();
    return whole;
}

/// Of each row, a block: its largest value over its mean, and the mean.
__global__ void peaks(const float* tile, float2* found) {
    __shared__ float parts[kThreads];
    const float* const row = tile + size_t(blockIdx.x) * kColumns;
    float sum = 0, most = 0;
    for (int at = static_cast<int>(threadIdx.x); at < kColumns; at += kThreads) {
        sum += row[at];
        most = fmaxf(most, row[at]);
    }
    const float mean = over_block(sum, false, parts) / kColumns;
    most = over_block(most, true, parts);
    if (threadIdx.x == 0) found[blockIdx.x] = make_float2(most / mean, mean);
}

double on_host(const float* row) {
    double sum = 0, most = 0;
    for (int at = 0; at < kColumns; ++at) {
        sum += row[at];
        most = std::max(most, double(row[at]));
    }
    return most * kColumns / sum;
}

/// A row with one bright point.
double reference_error() {
    std::vector<float> row(kColumns, 0.0f);
    row[7] = 3.0f;
    return std::abs(on_host(row.data()) - kColumns);
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-5);
    constexpr size_t kTile = size_t{kRows} * kColumns;
    HostBuffer<float> image(kTile * kTiles, true);
    HostBuffer<float2> result(size_t{kRows} * kTiles, true);
    Uniform uniform(9);
    for (size_t at = 0; at < image.size(); ++at) image[at] = static_cast<float>(0.1 + uniform());
    const int lanes = options.is("streams") ? 2 : 1;
    std::vector<cudaStream_t> streams(lanes);
    std::vector<float*> tiles(lanes);
    std::vector<float2*> found(lanes);
    for (int lane = 0; lane < lanes; ++lane) {
        CHECK(cudaStreamCreateWithFlags(&streams[lane], cudaStreamNonBlocking));
        tiles[lane] = device_array<float>(kTile);
        found[lane] = device_array<float2>(kRows);
    }
    const auto region = [&] {
        for (int round = 0; round < options.rounds; ++round) {
            for (int tile = 0; tile < kTiles; ++tile) {
                const int lane = tile % lanes;
                const cudaStream_t stream = streams[lane];
                CHECK(cudaMemcpyAsync(tiles[lane], image.data() + tile * kTile, kTile * sizeof(float),
                                      cudaMemcpyHostToDevice, stream));
                peaks<<<kRows, kThreads, 0, stream>>>(tiles[lane], found[lane]);
                CHECK(cudaMemcpyAsync(result.data() + size_t(tile) * kRows, found[lane],
                                      kRows * sizeof(float2), cudaMemcpyDeviceToHost, stream));
                if (options.is("before")) CHECK(cudaStreamSynchronize(stream));
            }
        }
        CHECK(cudaGetLastError());
        for (const cudaStream_t stream : streams) CHECK(cudaStreamSynchronize(stream));
    };
    const std::vector<double> seconds = measure(options, region);
    double error = 0;
    for (int tile = 0; tile < kTiles; tile += 7) {
        for (int row = 0; row < kRows; row += 31) {
            const double known = on_host(image.data() + tile * kTile + size_t(row) * kColumns);
            error = std::max(error, std::abs(known - result[size_t(tile) * kRows + row].x) / known);
        }
    }
    return report(kProgram, options, seconds, error, 1e-4);
}
