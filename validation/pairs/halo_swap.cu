// Heat in a box whose faces pass through the host in each step, as they do where neighbours are other
// processes and MPI knows nothing of GPUs: four faces go back, the host hands each to the neighbour's side,
// and four come over. Here the box is its own neighbour on all sides.
//
//   before     faces in pageable memory, blocking copies (two of the four are rows with gaps between them)
//   pin        the same in pinned memory
//   pin-async  pinned memory; faces come over without blocking

#include "measured.h"

namespace {

// Cells along x, y and z; two more in y and z hold the neighbours' faces.
constexpr int kX = 512, kY = 96, kZ = 96, kWide = kY + 2, kDeep = kZ + 2;
constexpr size_t kCells = size_t{kX} * kWide * kDeep;
constexpr float kRate = 0.1f;

const Program kProgram = {
    "halo_swap", "heat in a box whose faces pass through the host", {"before", "pin", "pin-async"}, 150};

size_t cell(int x, int y, int z) {
    return (size_t(z) * kWide + y) * kX + x;
}

/// One step of all inner cells; x wraps around here.
__global__ void step(const float* now, float* next) {
    const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(blockIdx.x) + 1,
              z = static_cast<int>(blockIdx.y) + 1;
    const auto at = [&](int i, int j, int k) { return now[(size_t(k) * kWide + j) * kX + (i + kX) % kX]; };
    const float own = at(x, y, z);
    next[(size_t(z) * kWide + y) * kX + x] =
        own + kRate * (at(x - 1, y, z) + at(x + 1, y, z) + at(x, y - 1, z) + at(x, y + 1, z) +
                       at(x, y, z - 1) + at(x, y, z + 1) - 6 * own);
}

/// The wave that the box begins with, and how much of it each step leaves: a cosine of all three directions.
double wave(int x, int y, int z) {
    const double turn = 2 * std::acos(-1.0);
    return std::cos(turn * x / kX) * std::cos(turn * (y - 1) / kY) * std::cos(turn * (z - 1) / kZ);
}

double left_by_a_step() {
    const double turn = 2 * std::acos(-1.0);
    return 1 + 2 * kRate * (std::cos(turn / kX) + std::cos(turn / kY) + std::cos(turn / kZ) - 3);
}

/// A step of one cell by the host is what `left_by_a_step` says of it.
double reference_error() {
    double error = 0;
    for (int y = 2; y < kY; y += 7) {
        const double sum = wave(4, y, 8) + wave(6, y, 8) + wave(5, y - 1, 8) + wave(5, y + 1, 8) +
                           wave(5, y, 7) + wave(5, y, 9) - 6 * wave(5, y, 8);
        error = std::max(error, std::abs(wave(5, y, 8) * left_by_a_step() - (wave(5, y, 8) + kRate * sum)));
    }
    return error;
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-7);
    const bool pinned = !options.is("before");
    // Faces of z are one piece, those of y a row of each z.
    constexpr size_t kRow = kX * sizeof(float), kPlane = kRow * kWide;
    HostBuffer<float> sent_z(2 * size_t{kX} * kWide, pinned), sent_y(2 * size_t{kX} * kDeep, pinned);
    HostBuffer<float> got_z(sent_z.size(), pinned), got_y(sent_y.size(), pinned);
    HostBuffer<float> box(kCells, false);
    for (int z = 0; z < kDeep; ++z)
        for (int y = 0; y < kWide; ++y)
            for (int x = 0; x < kX; ++x) box[cell(x, y, z)] = static_cast<float>(wave(x, y, z));
    float *now = device_array<float>(kCells), *next = device_array<float>(kCells);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    const auto plane = [&](void* to, const void* from, cudaMemcpyKind kind) {
        if (options.is("pin-async") && kind == cudaMemcpyHostToDevice)
            CHECK(cudaMemcpyAsync(to, from, kPlane, kind, stream));
        else
            CHECK(cudaMemcpy(to, from, kPlane, kind));
    };
    const auto rows = [&](void* to, size_t to_pitch, const void* from, size_t from_pitch,
                          cudaMemcpyKind kind) {
        if (options.is("pin-async") && kind == cudaMemcpyHostToDevice)
            CHECK(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, kRow, kDeep, kind, stream));
        else
            CHECK(cudaMemcpy2D(to, to_pitch, from, from_pitch, kRow, kDeep, kind));
    };
    const auto region = [&] {
        CHECK(cudaMemcpyAsync(now, box.data(), box.bytes(), cudaMemcpyHostToDevice, stream));
        for (int round = 0; round < options.rounds; ++round) {
            step<<<dim3(kY, kZ), kX, 0, stream>>>(now, next);
            CHECK(cudaGetLastError());
            std::swap(now, next);
            float *low_z = sent_z.data(), *high_z = low_z + sent_z.size() / 2;
            float *low_y = sent_y.data(), *high_y = low_y + sent_y.size() / 2;
            rows(low_y, kRow, now + cell(0, 1, 0), kPlane, cudaMemcpyDeviceToHost);
            rows(high_y, kRow, now + cell(0, kY, 0), kPlane, cudaMemcpyDeviceToHost);
            plane(low_z, now + cell(0, 0, 1), cudaMemcpyDeviceToHost);
            plane(high_z, now + cell(0, 0, kZ), cudaMemcpyDeviceToHost);
            // What MPI would do: the low face is the neighbour's high one, and the other way round.
            std::memcpy(got_y.data(), high_y, sent_y.bytes() / 2);
            std::memcpy(got_y.data() + got_y.size() / 2, low_y, sent_y.bytes() / 2);
            std::memcpy(got_z.data(), high_z, sent_z.bytes() / 2);
            std::memcpy(got_z.data() + got_z.size() / 2, low_z, sent_z.bytes() / 2);
            rows(now + cell(0, 0, 0), kPlane, got_y.data(), kRow, cudaMemcpyHostToDevice);
            rows(now + cell(0, kY + 1, 0), kPlane, got_y.data() + got_y.size() / 2, kRow,
                 cudaMemcpyHostToDevice);
            plane(now + cell(0, 0, 0), got_z.data(), cudaMemcpyHostToDevice);
            plane(now + cell(0, 0, kZ + 1), got_z.data() + got_z.size() / 2, cudaMemcpyHostToDevice);
        }
        CHECK(cudaStreamSynchronize(stream));
    };
    const std::vector<double> seconds = measure(options, region);
    HostBuffer<float> result(kCells, false);
    CHECK(cudaMemcpy(result.data(), now, result.bytes(), cudaMemcpyDeviceToHost));
    const double left = std::pow(left_by_a_step(), options.rounds);
    double error = 0;
    for (int z = 1; z <= kZ; z += 5)
        for (int y = 1; y <= kY; ++y)
            for (int x = 0; x < kX; x += 31)
                error = std::max(error, std::abs(result[cell(x, y, z)] - left * wave(x, y, z)));
    return report(kProgram, options, seconds, error, 1e-3);
}
