// Conjugate gradients on the Poisson equation (512×512 unknowns, a sparse matrix in ELL form).
//
//   before  both dot products of an iteration are read by blocking copies; the host divides them
//   pin     the same, into pinned memory
//   batch   the GPU divides; the dot products are copied at the end, all at once
//   async   the GPU divides; the residuals go to a pinned history in stream order, read at the end

#include "measured.h"

namespace {

constexpr int kSide = 512, kUnknowns = kSide * kSide, kWidth = 5, kBlock = 256;

const Program kProgram = {"conjugate_gradient",
                          "conjugate gradients, dot products on the host",
                          {"before", "pin", "batch", "async"},
                          2000};

/// numerator / denominator: numbers that the host knows, or that lie on the GPU.
struct Quotient {
    double value;
    const double *numerator, *denominator;
    __device__ double get() const { return numerator ? *numerator / *denominator : value; }
};

__device__ void add_to(double* total, double part) {
    __shared__ double parts[kBlock / 32];
    for (int step = 16; step; step /= 2) part += __shfl_down_sync(~0u, part, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < kBlock / 32; ++warp) part += parts[warp];
        atomicAdd(total, part);
    }
}

/// product = matrix · direction, and direction · product is added to *dot.
__global__ void multiply(const int* columns, const double* values, const double* direction, double* product,
                         double* dot) {
    const int row = static_cast<int>(blockIdx.x * kBlock + threadIdx.x);
    double sum = 0;
    for (int entry = 0; entry < kWidth; ++entry) {
        const int column = columns[entry * kUnknowns + row];
        if (column >= 0) sum += values[entry * kUnknowns + row] * direction[column];
    }
    product[row] = sum;
    add_to(dot, sum * direction[row]);
}

__global__ void advance(double* solution, double* residual, const double* direction, const double* product,
                        Quotient alpha, double* squared) {
    const int row = static_cast<int>(blockIdx.x * kBlock + threadIdx.x);
    const double step = alpha.get();
    solution[row] += step * direction[row];
    const double left = residual[row] - step * product[row];
    residual[row] = left;
    add_to(squared, left * left);
}

__global__ void turn(double* direction, const double* residual, Quotient beta) {
    const int row = static_cast<int>(blockIdx.x * kBlock + threadIdx.x);
    direction[row] = residual[row] + beta.get() * direction[row];
}

struct Matrix {
    std::vector<int> columns = std::vector<int>(size_t{kWidth} * kUnknowns, -1);
    std::vector<double> values = std::vector<double>(size_t{kWidth} * kUnknowns, 0.0);

    Matrix() {
        for (int y = 0; y < kSide; ++y) {
            for (int x = 0; x < kSide; ++x) {
                const int row = y * kSide + x;
                const auto put = [&](int entry, bool there, int column, double value) {
                    if (!there) return;
                    columns[size_t(entry) * kUnknowns + row] = column;
                    values[size_t(entry) * kUnknowns + row] = value;
                };
                put(0, true, row, 4.0);
                put(1, x > 0, row - 1, -1.0);
                put(2, x < kSide - 1, row + 1, -1.0);
                put(3, y > 0, row - kSide, -1.0);
                put(4, y < kSide - 1, row + kSide, -1.0);
            }
        }
    }

    std::vector<double> times(const std::vector<double>& vector) const {
        std::vector<double> product(kUnknowns, 0.0);
        for (size_t at = 0; at < columns.size(); ++at)
            if (columns[at] >= 0) product[at % kUnknowns] += values[at] * vector[columns[at]];
        return product;
    }
};

double norm(const std::vector<double>& vector) {
    double sum = 0;
    for (const double value : vector) sum += value * value;
    return std::sqrt(sum);
}

/// sin·sin is an eigenvector: its eigenvalue is 4 − 4 cos(π / (side + 1)).
double reference_error() {
    const double pi = std::acos(-1.0), step = pi / (kSide + 1);
    std::vector<double> wave(kUnknowns);
    for (int row = 0; row < kUnknowns; ++row)
        wave[row] = std::sin(step * (row % kSide + 1)) * std::sin(step * (row / kSide + 1));
    const std::vector<double> product = Matrix().times(wave);
    double error = 0;
    for (int row = 0; row < kUnknowns; ++row)
        error = std::max(error, std::abs(product[row] - (4 - 4 * std::cos(step)) * wave[row]));
    return error;
}

}  // namespace

int main(int count, char** words) {
    const Options options = options_of(count, words, kProgram);
    if (options.reference) return report_reference(kProgram, reference_error(), 1e-12);
    const Matrix matrix;
    std::vector<double> right(kUnknowns);
    Uniform uniform(3);
    for (double& value : right) value = uniform() - 0.5;
    const double start_squared = norm(right) * norm(right);
    int* columns = device_array<int>(matrix.columns.size());
    double* values = device_array<double>(matrix.values.size());
    double *solution = device_array<double>(kUnknowns), *residual = device_array<double>(kUnknowns),
           *direction = device_array<double>(kUnknowns), *product = device_array<double>(kUnknowns),
           *b = device_array<double>(kUnknowns);
    CHECK(cudaMemcpy(columns, matrix.columns.data(), matrix.columns.size() * sizeof(int),
                     cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(values, matrix.values.data(), matrix.values.size() * sizeof(double),
                     cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b, right.data(), kUnknowns * sizeof(double), cudaMemcpyHostToDevice));
    // Two numbers an iteration: squares[n] is the squared residual after n, dots[n] belongs to iteration n.
    double *squares = device_array<double>(options.rounds + 1), *dots = device_array<double>(options.rounds);
    // Dot products as the host sees them; history[n] is the squared residual after n iterations.
    const bool pinned = options.is("pin") || options.is("async");
    HostBuffer<double> history(options.rounds + 1, pinned), seen_dots(options.rounds, pinned);
    const int blocks = kUnknowns / kBlock;
    const bool host_divides = options.is("before") || options.is("pin");
    const auto read = [&](double* to, const double* from) {
        if (host_divides) CHECK(cudaMemcpy(to, from, sizeof(double), cudaMemcpyDeviceToHost));
        if (options.is("async")) CHECK(cudaMemcpyAsync(to, from, sizeof(double), cudaMemcpyDeviceToHost));
    };
    const auto region = [&] {
        CHECK(cudaMemsetAsync(solution, 0, kUnknowns * sizeof(double)));
        CHECK(cudaMemsetAsync(squares + 1, 0, options.rounds * sizeof(double)));
        CHECK(cudaMemsetAsync(dots, 0, options.rounds * sizeof(double)));
        CHECK(cudaMemcpyAsync(residual, b, kUnknowns * sizeof(double), cudaMemcpyDeviceToDevice));
        CHECK(cudaMemcpyAsync(direction, b, kUnknowns * sizeof(double), cudaMemcpyDeviceToDevice));
        for (int round = 0; round < options.rounds; ++round) {
            Quotient alpha{0.0, squares + round, dots + round};
            multiply<<<blocks, kBlock>>>(columns, values, direction, product, dots + round);
            read(&seen_dots[round], dots + round);
            if (host_divides) alpha = {history[round] / seen_dots[round], nullptr, nullptr};
            advance<<<blocks, kBlock>>>(solution, residual, direction, product, alpha, squares + round + 1);
            Quotient beta{0.0, squares + round + 1, squares + round};
            read(&history[round + 1], squares + round + 1);
            if (host_divides) beta = {history[round + 1] / history[round], nullptr, nullptr};
            turn<<<blocks, kBlock>>>(direction, residual, beta);
        }
        CHECK(cudaGetLastError());
        if (options.is("batch")) {
            const size_t bytes = options.rounds * sizeof(double);
            CHECK(cudaMemcpy(seen_dots.data(), dots, bytes, cudaMemcpyDeviceToHost));
            CHECK(cudaMemcpy(&history[1], squares + 1, bytes, cudaMemcpyDeviceToHost));
        }
    };
    history[0] = start_squared;
    CHECK(cudaMemcpy(squares, &start_squared, sizeof(double), cudaMemcpyHostToDevice));
    const std::vector<double> seconds = measure(options, region);
    std::vector<double> found(kUnknowns);
    CHECK(cudaMemcpy(found.data(), solution, kUnknowns * sizeof(double), cudaMemcpyDeviceToHost));
    // What is left of the equation, recomputed here, against what the iteration believes; and the residual
    // has shrunk.
    std::vector<double> left = matrix.times(found);
    for (int row = 0; row < kUnknowns; ++row) left[row] = right[row] - left[row];
    const double believed = std::sqrt(history[options.rounds]), started = std::sqrt(start_squared);
    double error = std::abs(norm(left) - believed) / started;
    if (options.rounds >= 1500 && !(believed < 0.1 * started)) error = 1;
    return report(kProgram, options, seconds, error, 1e-9);
}
