// Particles that attract each other: after some steps their positions come to the host, which packs the last
// ones for a log.
//
//   before       the host waits for the positions, then packs those that came before, then takes the new ones
//   wait-at-use  it packs first, and waits when it takes the new ones

#include "measured.h"

namespace {

constexpr int kParticles = 32768, kFrames = 40, kNear = 4096;

const Program kProgram = {
    "particle_log", "log where particles are, frame by frame", {"before", "wait-at-use"}, 2};

__host__ __device__ float4 pull(const float4* at, float4 here, int count) {
    float4 sum = {0, 0, 0, 0};
    for (int other = 0; other < count; ++other) {
        const float x = at[other].x - here.x, y = at[other].y - here.y, z = at[other].z - here.z;
        const float near = rsqrtf(x * x + y * y + z * z + 0.01f), weight = near * near * near;
        sum.x += weight * x, sum.y += weight * y, sum.z += weight * z;
    }
    return sum;
}

__global__ void move(const float4* at, float4* to) {
    const int p = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const float4 here = at[p], sum = pull(at, here, kNear);
    to[p] = {here.x + 1e-6f * sum.x, here.y + 1e-6f * sum.y, here.z + 1e-6f * sum.z, here.w};
}

/// Differences to the frame before in 16 bits, and what they sum up to.
uint64_t pack(const std::vector<float4>& frame, const std::vector<float4>& before,
              std::vector<int16_t>& out) {
    uint64_t sum = 0;
    for (size_t p = 0; p < frame.size(); ++p) {
        const float moved[3] = {frame[p].x - before[p].x, frame[p].y - before[p].y, frame[p].z - before[p].z};
        for (int axis = 0; axis < 3; ++axis) {
            out[3 * p + axis] = static_cast<int16_t>(std::lround(1e5 * std::sin(std::atan(moved[axis]))));
            sum = sum * 31 + static_cast<uint16_t>(out[3 * p + axis]);
        }
    }
    return sum;
}

double reference_error() {
    const std::vector<float4> at(2, float4{1, 0, 0, 0});
    const float4 sum = pull(at.data(), {0, 0, 0, 0}, 2);
    return std::abs(sum.x - 2 / std::pow(1.01, 1.5)) + std::abs(sum.y);
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-4);
    HostBuffer<float4> came(kParticles, true);
    float4* places[2] = {device_array<float4>(kParticles), device_array<float4>(kParticles)};
    std::vector<float4> start(kParticles), frame(kParticles), before(kParticles);
    std::vector<int16_t> packed(3 * kParticles);
    Uniform random(3);
    for (float4& p : start)
        p = {static_cast<float>(random()), static_cast<float>(random()), static_cast<float>(random()), 1};
    const bool later = options.is("wait-at-use");
    uint64_t logged = 0;
    const auto region = [&] {
        CHECK(cudaMemcpy(places[0], start.data(), came.bytes(), cudaMemcpyHostToDevice));
        frame = before = start;
        for (int each = 0; each < options.rounds * kFrames; ++each) {
            for (int half = 0; half < 2; ++half)
                move<<<kParticles / 256, 256>>>(places[half], places[1 - half]);
            CHECK(cudaMemcpyAsync(came.data(), places[0], came.bytes(), cudaMemcpyDeviceToHost));
            if (!later) CHECK(cudaStreamSynchronize(nullptr));
            slack.copied();
            for (int pass = 0; pass < 3; ++pass) logged += pack(frame, before, packed);
            if (later) CHECK(cudaStreamSynchronize(nullptr));
            slack.used();
            std::swap(frame, before);
            std::memcpy(frame.data(), came.data(), came.bytes());
        }
        CHECK(cudaGetLastError());
    };
    const std::vector<double> seconds = measure(options, region);
    // The first step of the host's own, for a few particles.
    CHECK(cudaMemcpy(places[0], start.data(), came.bytes(), cudaMemcpyHostToDevice));
    move<<<kParticles / 256, 256>>>(places[0], places[1]);
    CHECK(cudaMemcpy(came.data(), places[1], came.bytes(), cudaMemcpyDeviceToHost));
    double error = logged == 1;
    for (int p = 0; p < kParticles; p += 1000) {
        const float4 sum = pull(start.data(), start[p], kNear);
        error = std::max(error, std::abs(double(came[p].x) - (start[p].x + 1e-6f * sum.x)));
    }
    return report(kProgram, options, seconds, error, 1e-3);
}
