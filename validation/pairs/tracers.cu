// Tracers in a flow: two million particles carried through a velocity field on a grid, Runge-Kutta of fourth
// order.
//
//   before  the field, which does not change, is copied to the GPU at each step, from pageable memory
//   pin     the same from pinned memory
//   dedupe  the field is copied once

#include "measured.h"

namespace {

constexpr int kSide = 128, kParticles = 1 << 21;
constexpr size_t kNodes = size_t{kSide} * kSide * kSide;
constexpr float kStep = 0.02f;

const Program kProgram = {"tracers", "particles in a steady flow", {"before", "pin", "dedupe"}, 60};

__host__ __device__ float3 along(float3 place, float by, float3 velocity) {
    return {place.x + by * velocity.x, place.y + by * velocity.y, place.z + by * velocity.z};
}

/// Velocity at a place, in cells, the grid repeating itself; between nodes it is trilinear.
__host__ __device__ float3 velocity_at(const float4* field, float3 place) {
    const float cell_x = floorf(place.x), cell_y = floorf(place.y), cell_z = floorf(place.z);
    const float part[3] = {place.x - cell_x, place.y - cell_y, place.z - cell_z};
    const int low[3] = {static_cast<int>(cell_x), static_cast<int>(cell_y), static_cast<int>(cell_z)};
    float3 sum = {0, 0, 0};
    for (int corner = 0; corner < 8; ++corner) {
        float share = 1;
        size_t at = 0;
        for (int axis = 2; axis >= 0; --axis) {
            const int high = corner >> axis & 1;
            share *= high ? part[axis] : 1 - part[axis];
            at = at * kSide + static_cast<size_t>((low[axis] + high) & (kSide - 1));
        }
        sum = along(sum, share, {field[at].x, field[at].y, field[at].z});
    }
    return sum;
}

__host__ __device__ float3 moved(const float4* field, float3 place) {
    const float3 a = velocity_at(field, place);
    const float3 b = velocity_at(field, along(place, kStep / 2, a));
    const float3 c = velocity_at(field, along(place, kStep / 2, b));
    const float3 d = velocity_at(field, along(place, kStep, c));
    return along(along(along(along(place, kStep / 6, a), kStep / 3, b), kStep / 3, c), kStep / 6, d);
}

__global__ void move(const float4* field, float3* places) {
    const int particle = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    places[particle] = moved(field, places[particle]);
}

/// In a flow that is the same everywhere, a particle goes straight on.
double reference_error() {
    const std::vector<float4> field(kNodes, float4{1.0f, -2.0f, 0.5f, 0.0f});
    float3 place = {5.25f, 60.5f, 127.75f};
    for (int step = 0; step < 50; ++step) place = moved(field.data(), place);
    return std::abs(place.x - 6.25) + std::abs(place.y - 58.5) + std::abs(place.z - 128.25);
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 2e-3);
    HostBuffer<float4> field(kNodes, options.is("pin"));
    const float turn = 2 * std::acos(-1.0f) / kSide;
    for (size_t at = 0; at < kNodes; ++at) {  // a flow of Arnold, Beltrami and Childress
        const float x = turn * static_cast<float>(at % kSide),
                    y = turn * static_cast<float>(at / kSide % kSide),
                    z = turn * static_cast<float>(at / kSide / kSide);
        field[at] = {std::sin(z) + std::cos(y), std::sin(x) + std::cos(z), std::sin(y) + std::cos(x), 0.0f};
    }
    std::vector<float3> start(kParticles), found(kParticles);
    Uniform uniform(4);
    for (float3& place : start) {
        place.x = static_cast<float>(uniform() * kSide);
        place.y = static_cast<float>(uniform() * kSide);
        place.z = static_cast<float>(uniform() * kSide);
    }
    float4* grid = device_array<float4>(kNodes);
    float3* places = device_array<float3>(kParticles);
    const auto reset = [&] {
        CHECK(cudaMemcpy(places, start.data(), kParticles * sizeof(float3), cudaMemcpyHostToDevice));
    };
    const auto region = [&] {
        for (int round = 0; round < options.rounds; ++round) {
            if (round == 0 || !options.is("dedupe"))
                CHECK(cudaMemcpy(grid, field.data(), field.bytes(), cudaMemcpyHostToDevice));
            move<<<kParticles / 256, 256>>>(grid, places);
            CHECK(cudaGetLastError());
        }
    };
    reset();
    const std::vector<double> seconds = measure(options, region);
    reset();
    region();
    CHECK(cudaMemcpy(found.data(), places, kParticles * sizeof(float3), cudaMemcpyDeviceToHost));
    double error = 0;
    for (int particle = 0; particle < kParticles; particle += kParticles / 500) {
        float3 place = start[particle];
        for (int round = 0; round < options.rounds; ++round) place = moved(field.data(), place);
        for (const float off :
             {place.x - found[particle].x, place.y - found[particle].y, place.z - found[particle].z})
            error = std::max(error, static_cast<double>(std::abs(off)));
    }
    return report(kProgram, options, seconds, error, 1e-2);
}
