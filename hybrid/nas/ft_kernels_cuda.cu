#include <cuda_runtime.h>
#include <cufft.h>

#include <map>
#include <string>
#include <tuple>

#include "nas/cuda_kernels.h"
#include "nas/kernels.h"

namespace nas {
namespace {

constexpr int tile = 32, tile_rows = 8;

__device__ int wave_number(int index, int n) {
    return index < n / 2 ? index : index - n;
}

__global__ void evolve(EvolveArguments a) {
    const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (x >= a.nx) return;
    const int row = static_cast<int>(blockIdx.y), plane = static_cast<int>(blockIdx.z);
    const double kx = wave_number(x, a.nx), ky = wave_number(row, a.rows),
                 kz = wave_number(a.first_plane + plane, a.all_planes);
    const double factor = exp(a.decay * (kx * kx + ky * ky + kz * kz));
    auto* point =
        reinterpret_cast<double2*>(a.data) + (static_cast<std::int64_t>(plane) * a.rows + row) * a.nx + x;
    const double2 value = *point;
    *point = make_double2(value.x * factor, value.y * factor);
}

/// to[column][row] ← from[row][column] through a tile in shared memory; the tile's odd width keeps banks
/// apart.
__global__ void transpose(const double2* from, double2* to, int rows, int columns) {
    __shared__ double2 block[tile][tile + 1];
    const int column = static_cast<int>(blockIdx.x) * tile + static_cast<int>(threadIdx.x);
    const int row0 = static_cast<int>(blockIdx.y) * tile;
    for (int i = static_cast<int>(threadIdx.y); i < tile; i += tile_rows)
        if (column < columns && row0 + i < rows)
            block[i][threadIdx.x] = from[static_cast<std::int64_t>(row0 + i) * columns + column];
    __syncthreads();
    const int row = row0 + static_cast<int>(threadIdx.x), column0 = static_cast<int>(blockIdx.x) * tile;
    for (int i = static_cast<int>(threadIdx.y); i < tile; i += tile_rows)
        if (row < rows && column0 + i < columns)
            to[static_cast<std::int64_t>(column0 + i) * rows + row] = block[threadIdx.x][i];
}

constexpr int scatter_planes = 8;

/// A tile of planes × x goes through shared memory, so that reads run along x and writes along the planes:
/// eight planes are one 128-byte line of the target.
__global__ void scatter(ScatterArguments a) {
    __shared__ double2 block[scatter_planes][tile + 1];
    const int x0 = static_cast<int>(blockIdx.x) * tile, row = static_cast<int>(blockIdx.y),
              plane0 = static_cast<int>(blockIdx.z) * scatter_planes;
    const int x = x0 + static_cast<int>(threadIdx.x), plane = plane0 + static_cast<int>(threadIdx.y);
    if (x < a.nx && plane < a.planes)
        block[threadIdx.y][threadIdx.x] = reinterpret_cast<const double2*>(
            a.from)[(static_cast<std::int64_t>(plane) * a.rows + row) * a.nx + x];
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.y) * tile + static_cast<int>(threadIdx.x);
    const int plane_in_tile = thread % scatter_planes, x_in_tile = thread / scatter_planes;
    if (x0 + x_in_tile >= a.nx || plane0 + plane_in_tile >= a.planes) return;
    const int target = row / a.block_rows, row_in_block = row % a.block_rows;
    reinterpret_cast<double2*>(
        a.to[target])[(static_cast<std::int64_t>(row_in_block) * a.nx + x0 + x_in_tile) * a.lines +
                      a.first_plane + plane0 + plane_in_tile] = block[plane_in_tile][x_in_tile];
}

void launch_transpose(cudaStream_t stream, const double2* from, double2* to, int rows, int columns) {
    const dim3 blocks((columns + tile - 1) / tile, (rows + tile - 1) / tile);
    transpose<<<blocks, dim3(tile, tile_rows), 0, stream>>>(from, to, rows, columns);
}

void check(cufftResult status, const char* what) {
    if (status == CUFFT_SUCCESS) return;
    throw funnel::Error(funnel::Fault::device_failed,
                        std::string(what) + ": cuFFT error " + std::to_string(status));
}

/// Plans by shape and stream: a plan's work area serves one stream at a time. Used by one thread, the
/// owner's.
class Plans {
  public:
    cufftHandle planes(cudaStream_t stream, const PlanesArguments& a) {
        return get({stream, 2, a.rows, a.nx, a.planes}, [&](cufftHandle* plan) {
            int extent[2] = {a.rows, a.nx};
            const int all = a.rows * a.nx;
            return cufftPlanMany(plan, 2, extent, extent, 1, all, extent, 1, all, CUFFT_Z2Z, a.planes);
        });
    }
    cufftHandle strided_lines(cudaStream_t stream, const LinesArguments& a) {
        return get({stream, 1, a.length, a.columns, 0}, [&](cufftHandle* plan) {
            int extent[1] = {a.length};
            return cufftPlanMany(plan, 1, extent, extent, a.columns, 1, extent, a.columns, 1, CUFFT_Z2Z,
                                 a.columns);
        });
    }
    cufftHandle contiguous_lines(cudaStream_t stream, const LinesArguments& a) {
        return get({stream, 1, a.length, a.columns, 1}, [&](cufftHandle* plan) {
            int extent[1] = {a.length};
            return cufftPlanMany(plan, 1, extent, extent, 1, a.length, extent, 1, a.length, CUFFT_Z2Z,
                                 a.columns);
        });
    }
    static Plans& of_this_process() {
        static Plans plans;
        return plans;
    }

  private:
    using Key = std::tuple<cudaStream_t, int, int, int, int>;

    template <class Make>
    cufftHandle get(Key key, Make make) {
        const auto entry = plans_.find(key);
        if (entry != plans_.end()) return entry->second;
        cufftHandle plan;
        check(make(&plan), "making an FFT plan");
        check(cufftSetStream(plan, std::get<0>(key)), "cufftSetStream");
        plans_[key] = plan;
        return plan;
    }

    std::map<Key, cufftHandle> plans_;
};

void execute(cufftHandle plan, std::uint64_t data, int sign) {
    auto* points = reinterpret_cast<cufftDoubleComplex*>(data);
    check(cufftExecZ2Z(plan, points, points, sign < 0 ? CUFFT_FORWARD : CUFFT_INVERSE), "cufftExecZ2Z");
}

}  // namespace

void add_ft_cuda_kernels(funnel::KernelTable& table) {
    table.add(ft_evolve, [](void* stream, const void* arguments) {
        const auto& a = *static_cast<const EvolveArguments*>(arguments);
        constexpr int threads = 256;
        const dim3 blocks((a.nx + threads - 1) / threads, a.rows, a.planes);
        evolve<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(a);
    });
    table.add(ft_planes, [](void* stream, const void* arguments) {
        const auto& a = *static_cast<const PlanesArguments*>(arguments);
        execute(Plans::of_this_process().planes(static_cast<cudaStream_t>(stream), a), a.data, a.sign);
    });
    table.add(ft_lines, [](void* stream_, const void* arguments) {
        const auto& a = *static_cast<const LinesArguments*>(arguments);
        auto* stream = static_cast<cudaStream_t>(stream_);
        if (a.contiguous) {
            execute(Plans::of_this_process().contiguous_lines(stream, a), a.data, a.sign);
            return;
        }
        if (a.scratch == 0) {
            execute(Plans::of_this_process().strided_lines(stream, a), a.data, a.sign);
            return;
        }
        auto* data = reinterpret_cast<double2*>(a.data);
        auto* scratch = reinterpret_cast<double2*>(a.scratch);
        launch_transpose(stream, data, scratch, a.length, a.columns);
        execute(Plans::of_this_process().contiguous_lines(stream, a), a.scratch, a.sign);
        launch_transpose(stream, scratch, data, a.columns, a.length);
    });
    table.add(ft_scatter, [](void* stream, const void* arguments) {
        const auto& a = *static_cast<const ScatterArguments*>(arguments);
        const dim3 blocks((a.nx + tile - 1) / tile, a.rows, (a.planes + scatter_planes - 1) / scatter_planes);
        scatter<<<blocks, dim3(tile, scatter_planes), 0, static_cast<cudaStream_t>(stream)>>>(a);
    });
}

}  // namespace nas
