// C = A·B of matrices that stay on the host: tiles of A and B come over, tiles of C go back.
//
//   before   pinned memory, blocking copies
//   async    asynchronous copies in one stream, one wait at the end
//   streams  the same with three streams, each with its own tile of C and buffers of its own

#include "measured.h"

namespace {

constexpr int kTile = 512, kTiles = 6, kSide = kTile * kTiles, kBlock = 64, kPart = 16;
constexpr size_t kTileSize = size_t{kTile} * kTile;

const Program kProgram = {
    "matrix_tiles", "a product of matrices, tile by tile", {"before", "async", "streams"}, 6};

/// c += a·b (c = a·b the first time) of row-major tiles; a block makes 64×64 of c, a thread 4×4.
__global__ void multiply(const float* a, const float* b, float* c, bool first) {
    __shared__ float a_part[kPart][kBlock + 1], b_part[kPart][kBlock];
    const int thread = static_cast<int>(threadIdx.x), row0 = static_cast<int>(blockIdx.y) * kBlock,
              column0 = static_cast<int>(blockIdx.x) * kBlock;
    const int row = thread / 16 * 4, column = thread % 16 * 4;
    float sums[4][4] = {};
    for (int start = 0; start < kTile; start += kPart) {
        for (int at = thread; at < kBlock * kPart; at += 256) {
            a_part[at % kPart][at / kPart] = a[size_t(row0 + at / kPart) * kTile + start + at % kPart];
            b_part[at / kBlock][at % kBlock] = b[size_t(start + at / kBlock) * kTile + column0 + at % kBlock];
        }
        __syncthreads();
        for (int k = 0; k < kPart; ++k) {
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) sums[i][j] += a_part[k][row + i] * b_part[k][column + j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            float& cell = c[size_t(row0 + row + i) * kTile + column0 + column + j];
            cell = (first ? 0.0f : cell) + sums[i][j];
        }
    }
}

/// Tiles lie one after the other, so that each is one copy.
size_t tile_at(int row, int column) {
    return (size_t(row) * kTiles + column) * kTileSize;
}

float& element(HostBuffer<float>& matrix, int row, int column) {
    return matrix[tile_at(row / kTile, column / kTile) + size_t(row % kTile) * kTile + column % kTile];
}

double on_host(HostBuffer<float>& a, HostBuffer<float>& b, int row, int column) {
    double sum = 0;
    for (int k = 0; k < kSide; ++k) sum += double(element(a, row, k)) * element(b, k, column);
    return sum;
}

/// A matrix times the identity is itself.
double reference_error() {
    HostBuffer<float> a(size_t{kSide} * kSide, false), one(size_t{kSide} * kSide, false);
    Uniform uniform(6);
    for (size_t at = 0; at < a.size(); ++at) a[at] = static_cast<float>(uniform());
    for (int at = 0; at < kSide; ++at) element(one, at, at) = 1;
    double error = 0;
    for (int at = 0; at < kSide; at += 111)
        error =
            std::max(error, std::abs(on_host(a, one, at, kSide - 1 - at) - element(a, at, kSide - 1 - at)));
    return error;
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 0);
    const size_t bytes = kTileSize * sizeof(float);
    HostBuffer<float> a(size_t{kSide} * kSide, true), b(size_t{kSide} * kSide, true),
        c(size_t{kSide} * kSide, true);
    Uniform uniform(7);
    for (size_t at = 0; at < a.size(); ++at) {
        a[at] = static_cast<float>(uniform() - 0.5);
        b[at] = static_cast<float>(uniform() - 0.5);
    }
    const int lanes = options.is("streams") ? 3 : 1;
    std::vector<cudaStream_t> streams(lanes);
    std::vector<float*> a_tile(lanes), b_tile(lanes), c_tile(lanes);
    for (int lane = 0; lane < lanes; ++lane) {
        CHECK(cudaStreamCreateWithFlags(&streams[lane], cudaStreamNonBlocking));
        for (float** tile : {&a_tile[lane], &b_tile[lane], &c_tile[lane]})
            *tile = device_array<float>(kTileSize);
    }
    const dim3 grid(kTile / kBlock, kTile / kBlock);
    const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind, cudaStream_t stream) {
        if (options.is("before"))
            CHECK(cudaMemcpy(to, from, bytes, kind));
        else
            CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream));
    };
    const auto region = [&] {
        for (int round = 0; round < options.rounds; ++round) {
            for (int tile = 0; tile < kTiles * kTiles; ++tile) {
                const int row = tile / kTiles, column = tile % kTiles, lane = tile % lanes;
                // `before` computes in the default stream, as blocking copies do.
                const cudaStream_t stream = options.is("before") ? nullptr : streams[lane];
                for (int k = 0; k < kTiles; ++k) {
                    copy(a_tile[lane], a.data() + tile_at(row, k), cudaMemcpyHostToDevice, stream);
                    copy(b_tile[lane], b.data() + tile_at(k, column), cudaMemcpyHostToDevice, stream);
                    multiply<<<grid, 256, 0, stream>>>(a_tile[lane], b_tile[lane], c_tile[lane], k == 0);
                }
                copy(c.data() + tile_at(row, column), c_tile[lane], cudaMemcpyDeviceToHost, stream);
            }
        }
        CHECK(cudaGetLastError());
        for (const cudaStream_t stream : streams) CHECK(cudaStreamSynchronize(stream));
    };
    const std::vector<double> seconds = measure(options, region);
    double error = 0;
    Uniform choose(8);
    for (int each = 0; each < 300; ++each) {
        const int row = static_cast<int>(choose() * kSide), column = static_cast<int>(choose() * kSide);
        error = std::max(error, std::abs(on_host(a, b, row, column) - element(c, row, column)));
    }
    return report(kProgram, options, seconds, error, 1e-2);
}
