// A mesh that the host animates: in each frame its points come over, the GPU finds the normals, which go
// back, and the host moves some of the points.
//
//   before     points and normals in pageable memory, blocking copies
//   pin        the same in pinned memory
//   pin-async  pinned memory; points come over without blocking

#include "measured.h"

namespace {

constexpr int kWide = 640, kHigh = 480, kMoved = 4000;
constexpr size_t kPoints = size_t{kWide} * kHigh;
const Program kProgram = {
    "mesh_deform", "normals of a mesh that the host moves", {"before", "pin", "pin-async"}, 60};

/// What the slope of a height field makes the normal: (−slope along x, −slope along y, 1), not normalised.
template <typename Height>
__device__ __host__ float3 normal_at(const Height& height, int x, int y) {
    const int left = x > 0 ? x - 1 : 0, right = x < kWide - 1 ? x + 1 : x, up = y > 0 ? y - 1 : 0,
              down = y < kHigh - 1 ? y + 1 : y;
    return make_float3((height(left, y) - height(right, y)) / static_cast<float>(right - left),
                       (height(x, up) - height(x, down)) / static_cast<float>(down - up), 1.0f);
}

__global__ void normals(const float3* points, float3* found) {
    const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), y = static_cast<int>(blockIdx.y);
    if (x >= kWide) return;
    const auto height = [&](int i, int j) { return points[size_t(j) * kWide + i].z; };
    const float3 slope = normal_at(height, x, y);
    const float length = rsqrtf(slope.x * slope.x + slope.y * slope.y + 1);
    found[size_t(y) * kWide + x] = make_float3(slope.x * length, slope.y * length, length);
}

/// Of a plane that rises by a half along x and falls by a quarter along y the slope is the same everywhere.
double reference_error() {
    const auto plane = [](int x, int y) { return 0.5f * x - 0.25f * y; };
    double error = 0;
    for (const int x : {0, 5, kWide - 1}) {
        const float3 slope = normal_at(plane, x, 7);
        error = std::max<double>(error, std::abs(slope.x + 0.5f) + std::abs(slope.y - 0.25f));
    }
    return error;
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-4);
    const bool pinned = !options.is("before");
    HostBuffer<float3> points(kPoints, pinned), found(kPoints, pinned);
    Uniform uniform(11);
    for (size_t at = 0; at < kPoints; ++at)
        points[at] = make_float3(static_cast<float>(at % kWide), static_cast<float>(at / kWide),
                                 static_cast<float>(uniform()));
    float3 *on_gpu = device_array<float3>(kPoints), *result = device_array<float3>(kPoints);
    const auto region = [&] {
        for (int round = 0; round < options.rounds; ++round) {
            for (int each = 0; each < kMoved; ++each) {
                const size_t at = (size_t(each) * 7919 + size_t(round) * 104'729) % kPoints;
                points[at].z = 0.5f * points[at].z + 0.1f;
            }
            if (options.is("pin-async"))
                CHECK(cudaMemcpyAsync(on_gpu, points.data(), points.bytes(), cudaMemcpyHostToDevice));
            else
                CHECK(cudaMemcpy(on_gpu, points.data(), points.bytes(), cudaMemcpyHostToDevice));
            normals<<<dim3((kWide + 255) / 256, kHigh), 256>>>(on_gpu, result);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpy(found.data(), result, found.bytes(), cudaMemcpyDeviceToHost));
        }
    };
    const std::vector<double> seconds = measure(options, region);
    const auto height = [&](int x, int y) { return points[size_t(y) * kWide + x].z; };
    double error = 0;
    for (size_t at = 0; at < kPoints; at += 37) {
        const float3 slope = normal_at(height, static_cast<int>(at % kWide), static_cast<int>(at / kWide));
        const float length = 1 / std::sqrt(slope.x * slope.x + slope.y * slope.y + 1);
        error = std::max<double>(error,
                                 std::abs(slope.x * length - found[at].x) + std::abs(length - found[at].z));
    }
    return report(kProgram, options, seconds, error, 1e-4);
}
