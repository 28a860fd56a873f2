// Tiles of a picture: the GPU draws each from a list of discs that the host sorts, and the tile goes into the
// picture.
//
//   before       the host waits for a tile, then sorts the next list, then places the tile
//   wait-at-use  it sorts the next list first, and waits when it places the tile

#include "measured.h"

namespace {

constexpr int kSide = 1024, kDiscs = 6000, kTiles = 60;
constexpr size_t kPixels = size_t{kSide} * kSide;

const Program kProgram = {
    "tile_scenes", "draw tiles while the host sorts the next", {"before", "wait-at-use"}, 2};

struct Disc {
    float x, y, radius, depth;
};

/// The depth of the nearest disc over a pixel, 1 where there is none; discs from near to far.
__host__ __device__ float nearest(const Disc* discs, int x, int y) {
    for (int d = 0; d < kDiscs; ++d) {
        const float dx = x - discs[d].x, dy = y - discs[d].y;
        if (dx * dx + dy * dy < discs[d].radius * discs[d].radius) return discs[d].depth;
    }
    return 1;
}

__global__ void draw(const Disc* discs, float* tile) {
    const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    tile[size_t(y) * kSide + x] = nearest(discs, x, y);
}

void scene(int tile, Disc* discs) {
    Uniform random(7 + static_cast<uint64_t>(tile));
    for (int d = 0; d < kDiscs; ++d)
        discs[d] = {static_cast<float>(random() * kSide), static_cast<float>(random() * kSide),
                    static_cast<float>(2 + 6 * random()), static_cast<float>(random())};
    std::sort(discs, discs + kDiscs, [](const Disc& a, const Disc& b) { return a.depth < b.depth; });
}

double reference_error() {
    std::vector<Disc> discs(kDiscs, Disc{-100, -100, 1, 0.5f});
    discs[3] = {10, 10, 3, 0.25f};
    return std::abs(nearest(discs.data(), 11, 10) - 0.25) + std::abs(nearest(discs.data(), 500, 500) - 1.0);
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 0);
    HostBuffer<Disc> next(kDiscs, true);
    HostBuffer<float> tile(kPixels, true), picture(4 * kPixels, false);
    Disc* discs = device_array<Disc>(kDiscs);
    float* drawn = device_array<float>(kPixels);
    std::vector<Disc> fresh(kDiscs);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const dim3 block(32, 8), grid(kSide / 32, kSide / 8);
    const bool later = options.is("wait-at-use");
    const auto region = [&] {
        for (int each = 0; each < options.rounds * kTiles; ++each) {
            if (each == 0) scene(0, next.data());
            CHECK(cudaMemcpyAsync(discs, next.data(), next.bytes(), cudaMemcpyHostToDevice, stream));
            draw<<<grid, block, 0, stream>>>(discs, drawn);
            CHECK(cudaMemcpyAsync(tile.data(), drawn, tile.bytes(), cudaMemcpyDeviceToHost, stream));
            if (!later) CHECK(cudaStreamSynchronize(stream));
            slack.copied();
            scene((each + 1) % kTiles, fresh.data());
            if (later) CHECK(cudaStreamSynchronize(stream));
            slack.used();
            std::memcpy(picture.data() + each % 4 * kPixels, tile.data(), tile.bytes());
            std::memcpy(next.data(), fresh.data(), next.bytes());
        }
        CHECK(cudaGetLastError());
    };
    const std::vector<double> seconds = measure(options, region);
    const int last = options.rounds * kTiles - 1;
    scene(last % kTiles, fresh.data());
    double error = 0;
    Uniform choose(5);
    for (int each = 0; each < 2000; ++each) {
        const int x = static_cast<int>(choose() * kSide), y = static_cast<int>(choose() * kSide);
        const float shown = picture[last % 4 * kPixels + size_t(y) * kSide + x];
        error += shown != nearest(fresh.data(), x, y);
    }
    return report(kProgram, options, seconds, error, 20);  // pixels at a disc's very edge
}
