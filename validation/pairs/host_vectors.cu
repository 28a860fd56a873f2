// Power iteration whose vector lives on the host, as where a library that knows only the host normalises it:
// in each step it comes over, a sparse matrix is applied, and the product goes back.
//
//   before     pageable vectors, blocking copies
//   pin        the same in pinned memory
//   pin-async  pinned memory; vectors come over without blocking

#include "measured.h"

namespace {

// A grid's Laplacian, shifted so that its largest eigenvalue is the one of the even vector.
constexpr int kSide = 320;
constexpr int kRows = kSide * kSide;
constexpr float kShift = 8.5f;
const Program kProgram = {
    "host_vectors", "power iteration with vectors on the host", {"before", "pin", "pin-async"}, 200};

template <typename Vector>
__device__ __host__ float product_at(const Vector& vector, int row) {
    const int x = row % kSide, y = row / kSide;
    const float around = vector[y * kSide + (x + 1) % kSide] + vector[y * kSide + (x + kSide - 1) % kSide] +
                         vector[(y + 1) % kSide * kSide + x] + vector[(y + kSide - 1) % kSide * kSide + x];
    return kShift * vector[row] + around - 4 * vector[row];
}

__global__ void apply(const float* vector, float* product) {
    const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (row < kRows) product[row] = product_at(vector, row);
}

/// An even vector is only multiplied.
double reference_error() {
    const std::vector<float> even(kRows, 2.0f);
    double error = 0;
    for (int row = 0; row < kRows; row += 1001)
        error = std::max<double>(error, std::abs(product_at(even, row) - 2 * kShift));
    return error;
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-5);
    const bool pinned = !options.is("before");
    HostBuffer<float> vector(kRows, pinned), start(kRows, false);
    Uniform uniform(12);
    for (int row = 0; row < kRows; ++row) start[row] = static_cast<float>(0.5 + uniform());
    float *here = device_array<float>(kRows), *product = device_array<float>(kRows);
    const auto region = [&] {
        std::memcpy(vector.data(), start.data(), start.bytes());
        for (int round = 0; round < options.rounds; ++round) {
            if (options.is("pin-async"))
                CHECK(cudaMemcpyAsync(here, vector.data(), vector.bytes(), cudaMemcpyHostToDevice));
            else
                CHECK(cudaMemcpy(here, vector.data(), vector.bytes(), cudaMemcpyHostToDevice));
            apply<<<(kRows + 255) / 256, 256>>>(here, product);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpy(vector.data(), product, vector.bytes(), cudaMemcpyDeviceToHost));
            for (int row = 0; row < kRows; ++row) vector[row] *= 1 / kShift;
        }
    };
    const std::vector<double> seconds = measure(options, region);
    std::vector<float> known(start.data(), start.data() + kRows), next(kRows);
    for (int round = 0; round < options.rounds; ++round) {
        for (int row = 0; row < kRows; ++row) next[row] = product_at(known, row) * (1 / kShift);
        known.swap(next);
    }
    double error = 0;
    for (int row = 0; row < kRows; row += 17)
        error = std::max<double>(error, std::abs(known[row] - vector[row]));
    return report(kProgram, options, seconds, error, 1e-3);
}
