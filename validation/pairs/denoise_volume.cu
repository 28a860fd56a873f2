// Denoises a CT-like volume larger than we keep on the GPU: a 3D bilateral filter (radius 2), slab by slab.
//
//   before       pinned, one stream; the host waits for each slab before it sends the next
//   fewer-syncs  one stream, one wait at the end
//   streams      three streams with buffers of their own, one wait at the end

#include "measured.h"

namespace {

constexpr int kRadius = 2, kWidth = 512, kHeight = 512, kSlab = 8, kSlabs = 24;
constexpr int kDepth = kSlab * kSlabs;
constexpr size_t kPlane = size_t{kWidth} * kHeight;
constexpr float kRangeWeight = 8.0f, kDistanceWeight = 0.125f;

const Program kProgram = {"denoise_volume",
                          "3D bilateral filter of a volume, slab by slab",
                          {"before", "fewer-syncs", "streams"},
                          8};

__host__ __device__ float weight(int distance_squared, float difference) {
    return expf(-kDistanceWeight * static_cast<float>(distance_squared) -
                kRangeWeight * difference * difference);
}

__host__ __device__ int clamped(int value, int last) {
    return value < 0 ? 0 : value > last ? last : value;
}

/// `slab` holds `planes` planes, of which those from `first` on are denoised into `result`.
__global__ void denoise(const float* slab, float* result, int planes, int first) {
    const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    const int z = static_cast<int>(blockIdx.z) + first;
    const float centre = slab[z * kPlane + size_t(y) * kWidth + x];
    float sum = 0, total = 0;
    for (int dz = -kRadius; dz <= kRadius; ++dz) {
        const float* plane = slab + clamped(z + dz, planes - 1) * kPlane;
        for (int dy = -kRadius; dy <= kRadius; ++dy) {
            const float* row = plane + size_t(clamped(y + dy, kHeight - 1)) * kWidth;
            for (int dx = -kRadius; dx <= kRadius; ++dx) {
                const float value = row[clamped(x + dx, kWidth - 1)];
                const float part = weight(dx * dx + dy * dy + dz * dz, value - centre);
                sum += part * value;
                total += part;
            }
        }
    }
    result[size_t(blockIdx.z) * kPlane + size_t(y) * kWidth + x] = sum / total;
}

double on_host(const float* volume, int x, int y, int z) {
    const auto at = [&](int i, int j, int k) {
        return volume[clamped(k, kDepth - 1) * kPlane + size_t(clamped(j, kHeight - 1)) * kWidth +
                      clamped(i, kWidth - 1)];
    };
    double sum = 0, total = 0;
    for (int dz = -kRadius; dz <= kRadius; ++dz) {
        for (int dy = -kRadius; dy <= kRadius; ++dy) {
            for (int dx = -kRadius; dx <= kRadius; ++dx) {
                const float value = at(x + dx, y + dy, z + dz);
                const double part = weight(dx * dx + dy * dy + dz * dz, value - at(x, y, z));
                sum += part * value;
                total += part;
            }
        }
    }
    return sum / total;
}

/// A volume of one value stays as it is.
double reference_error() {
    std::vector<float> volume(kPlane * kDepth, 0.75f);
    return std::abs(on_host(volume.data(), 0, 5, kDepth - 1) - 0.75) +
           std::abs(on_host(volume.data(), 9, 9, 9) - 0.75);
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-6);
    HostBuffer<float> volume(kPlane * kDepth, true), clean(kPlane * kDepth, true);
    Uniform uniform(1);
    for (size_t at = 0; at < volume.size(); ++at) {
        const bool inside = (at / 64 + at / kPlane / 4) % 2;
        volume[at] = static_cast<float>((inside ? 0.8 : 0.2) + 0.1 * uniform());
    }
    const int lanes = options.is("streams") ? 3 : 1;
    const size_t planes_in = kSlab + 2 * kRadius;
    std::vector<cudaStream_t> streams(lanes);
    std::vector<float*> in(lanes), out(lanes);
    for (int lane = 0; lane < lanes; ++lane) {
        CHECK(cudaStreamCreateWithFlags(&streams[lane], cudaStreamNonBlocking));
        in[lane] = device_array<float>(planes_in * kPlane);
        out[lane] = device_array<float>(kSlab * kPlane);
    }
    const dim3 block(32, 8), grid(kWidth / 32, kHeight / 8, kSlab);
    const auto region = [&] {
        for (int round = 0; round < options.rounds; ++round) {
            for (int slab = 0; slab < kSlabs; ++slab) {
                const int lane = slab % lanes;
                const int first = std::max(slab * kSlab - kRadius, 0);
                const int last = std::min((slab + 1) * kSlab + kRadius, kDepth);
                CHECK(cudaMemcpyAsync(in[lane], volume.data() + first * kPlane,
                                      (last - first) * kPlane * sizeof(float), cudaMemcpyHostToDevice,
                                      streams[lane]));
                denoise<<<grid, block, 0, streams[lane]>>>(in[lane], out[lane], last - first,
                                                           slab * kSlab - first);
                CHECK(cudaGetLastError());
                CHECK(cudaMemcpyAsync(clean.data() + slab * kSlab * kPlane, out[lane],
                                      kSlab * kPlane * sizeof(float), cudaMemcpyDeviceToHost, streams[lane]));
                if (options.is("before")) CHECK(cudaStreamSynchronize(streams[lane]));
            }
        }
        for (const cudaStream_t stream : streams) CHECK(cudaStreamSynchronize(stream));
    };
    const std::vector<double> seconds = measure(options, region);
    double error = 0;
    Uniform choose(2);
    for (int each = 0; each < 400; ++each) {
        const int x = static_cast<int>(choose() * kWidth), y = static_cast<int>(choose() * kHeight);
        // Also where slabs meet, and at both ends.
        const int z = each % 4 ? static_cast<int>(choose() * kDepth) : each / 4 % kSlabs * kSlab;
        const double found = clean[z * kPlane + size_t(y) * kWidth + x];
        error = std::max(error, std::abs(found - on_host(volume.data(), x, y, z)));
    }
    return report(kProgram, options, seconds, error, 1e-4);
}
