// What this GPU and its link can do at best, one JSON object: the limits that the benchmarks' times are held
// against.
//
// Copies: pageable and pinned, both directions alone and together, one run of bytes and many rows; kernels:
// cuFFT alone, FT's and MG's kernels, a device copy. Every figure is the median of `repeats` timings with
// events. With `--link` only both directions, in two seconds: other guests of a shared host slow its memory
// for minutes, so a run is held against what the link did just before and after it. Of several GPUs also both
// directions of all at once: they share the host's memory.
#include <cuda_runtime.h>
#include <cufft.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "bench/loggp.h"
#include "nas/kernels.h"
#include "nas/mg_class.h"

namespace {

using Json = nlohmann::ordered_json;

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "device_limits: %s: %s\n", what, cudaGetErrorString(status));
    std::exit(3);
}
void check(cufftResult status, const char* what) {
    if (status == CUFFT_SUCCESS) return;
    std::fprintf(stderr, "device_limits: %s: cuFFT error %d\n", what, static_cast<int>(status));
    std::exit(3);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Seconds that `work` keeps the stream busy, after two untimed rounds.
double device_seconds(cudaStream_t stream, int repeats, const std::function<void()>& work) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    std::vector<double> seconds;
    for (int i = -2; i < repeats; ++i) {
        check(cudaEventRecord(begin, stream), "record");
        work();
        check(cudaEventRecord(end, stream), "record");
        check(cudaEventSynchronize(end), "the GPU's work");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin, end), "elapsed time");
        if (i >= 0) seconds.push_back(1e-3 * milliseconds);
    }
    check(cudaEventDestroy(begin), "event");
    check(cudaEventDestroy(end), "event");
    return median(seconds);
}

/// Seconds on the host's clock from the call to the end of the work.
double host_seconds(int repeats, const std::function<void()>& work) {
    std::vector<double> seconds;
    for (int i = -2; i < repeats; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        work();
        const double elapsed =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (i >= 0) seconds.push_back(elapsed);
    }
    return median(seconds);
}

struct CopyRows {
    std::vector<Json> by_size, loggp;
};

/// Pinned and pageable copies by size: one alone, and a train of them back to back (flooded) [U11 §3.2]; and
/// what they say of each path's LogGP parameters, for a node file.
CopyRows copies_by_size(cudaStream_t stream, char* device, char* pinned, char* pageable, std::size_t most) {
    constexpr int train = 16;
    CopyRows rows;
    for (const bool in : {true, false})
        for (const bool pin : {true, false}) {
            const char* direction = in ? "h2d" : "d2h";
            const char* memory = pin ? "pinned" : "pageable";
            std::vector<bench::CopyTimes> times;
            for (std::size_t bytes = 1; bytes <= most; bytes *= 8) {
                char* host = pin ? pinned : pageable;
                const auto copy_once = [&] {
                    check(in ? cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream)
                             : cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream),
                          "copy");
                };
                const bool large = bytes > (8u << 20);
                const double alone = host_seconds(large ? 7 : 31, [&] {
                    copy_once();
                    check(cudaStreamSynchronize(stream), "copy");
                });
                const double flooded = host_seconds(large ? 3 : 9, [&] {
                    for (int i = 0; i < train; ++i) copy_once();
                    check(cudaStreamSynchronize(stream), "copies");
                });
                times.push_back({static_cast<double>(bytes), alone, flooded, train});
                Json row;
                row["direction"] = direction;
                row["memory"] = memory;
                row["bytes"] = bytes;
                row["seconds"] = alone;
                row["flooded_bytes_per_second"] = static_cast<double>(bytes) * train / flooded;
                rows.by_size.push_back(row);
            }
            const bench::LogGp fit = bench::fit_loggp(times);
            Json row;
            row["direction"] = direction;
            row["memory"] = memory;
            row["latency_overhead_seconds"] = fit.latency_overhead;
            row["gap_per_byte_seconds"] = fit.gap_per_byte;
            row["gap_seconds"] = fit.gap;
            rows.loggp.push_back(row);
        }
    return rows;
}

/// Bytes per second each way when both directions run at once, in chunks on several streams as FT moves them.
Json duplex(char* device, char* pinned, std::size_t total, std::size_t chunk, std::size_t run) {
    constexpr int streams = 6;
    std::vector<cudaStream_t> stream(streams);
    for (auto& s : stream) check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
    const std::size_t rows = chunk / run;
    const auto move = [&](bool in, bool out) {
        return host_seconds(3, [&] {
            for (std::size_t at = 0, number = 0; at + chunk <= total; at += chunk, ++number) {
                // Rows lie `4 · run` apart in host memory, as blocks of four ranks do.
                const std::size_t pitch = run == chunk ? run : 4 * run;
                char* host = pinned + (run == chunk ? at : at % (total / 4));
                if (in)
                    check(cudaMemcpy2DAsync(device + at, run, host, pitch, run, rows, cudaMemcpyHostToDevice,
                                            stream[number % 3]),
                          "copy");
                if (out)
                    check(cudaMemcpy2DAsync(host + total, pitch, device + total + at, run, run, rows,
                                            cudaMemcpyDeviceToHost, stream[3 + number % 3]),
                          "copy");
            }
            check(cudaDeviceSynchronize(), "copies");
        });
    };
    const double moved = static_cast<double>(total / chunk * chunk);
    Json row;
    row["chunk_bytes"] = chunk;
    row["run_bytes"] = run;
    row["h2d_alone_bytes_per_second"] = moved / move(true, false);
    row["d2h_alone_bytes_per_second"] = moved / move(false, true);
    row["each_way_together_bytes_per_second"] = moved / move(true, true);
    for (auto& s : stream) check(cudaStreamDestroy(s), "stream");
    return row;
}

/// Bytes per second each way of each GPU when all `gpus` copy both ways at once: of the slowest.
Json all_at_once(int gpus) {
    constexpr std::size_t total = 256u << 20, chunk = 8u << 20;
    struct GpuBuffers {
        char *device = nullptr, *pinned = nullptr;
        cudaStream_t in = nullptr, out = nullptr;
    };
    std::vector<GpuBuffers> all(static_cast<std::size_t>(gpus));
    for (int gpu = 0; gpu < gpus; ++gpu) {
        GpuBuffers& buffers = all[static_cast<std::size_t>(gpu)];
        check(cudaSetDevice(gpu), "device");
        check(cudaMalloc(&buffers.device, 2 * total), "device memory");
        check(cudaMemset(buffers.device, 0x11, 2 * total), "device memory");
        check(cudaMallocHost(&buffers.pinned, 2 * total), "pinned memory");
        std::fill_n(buffers.pinned, 2 * total, static_cast<char>(0x22));
        check(cudaStreamCreateWithFlags(&buffers.in, cudaStreamNonBlocking), "stream");
        check(cudaStreamCreateWithFlags(&buffers.out, cudaStreamNonBlocking), "stream");
        check(cudaDeviceSynchronize(), "device memory");
    }
    const double seconds = host_seconds(3, [&] {
        for (std::size_t at = 0; at < total; at += chunk)
            for (int gpu = 0; gpu < gpus; ++gpu) {
                const GpuBuffers& buffers = all[static_cast<std::size_t>(gpu)];
                check(cudaSetDevice(gpu), "device");
                check(cudaMemcpyAsync(buffers.device + at, buffers.pinned + at, chunk, cudaMemcpyHostToDevice,
                                      buffers.in),
                      "copy");
                check(cudaMemcpyAsync(buffers.pinned + total + at, buffers.device + total + at, chunk,
                                      cudaMemcpyDeviceToHost, buffers.out),
                      "copy");
            }
        for (int gpu = 0; gpu < gpus; ++gpu) {
            check(cudaSetDevice(gpu), "device");
            check(cudaDeviceSynchronize(), "copies");
        }
    });
    for (int gpu = 0; gpu < gpus; ++gpu) {
        const GpuBuffers& buffers = all[static_cast<std::size_t>(gpu)];
        check(cudaSetDevice(gpu), "device");
        check(cudaStreamDestroy(buffers.in), "stream");
        check(cudaStreamDestroy(buffers.out), "stream");
        check(cudaFree(buffers.device), "device memory");
        check(cudaFreeHost(buffers.pinned), "pinned memory");
    }
    check(cudaSetDevice(0), "device");
    Json row;
    row["gpus"] = gpus;
    row["each_way_together_bytes_per_second"] = static_cast<double>(total) / seconds;
    return row;
}

Json timing(const std::string& name, double seconds, double bytes) {
    Json row;
    row["name"] = name;
    row["seconds"] = seconds;
    row["bytes_per_second"] = bytes / seconds;
    return row;
}

/// cuFFT by itself, and the same transforms through the owner's kernel functions, for an n × n × n problem.
std::vector<Json> fft_kernels(const funnel::KernelTable& table, cudaStream_t stream, char* data,
                              char* scratch, int n, int planes) {
    std::vector<Json> rows;
    const double bytes = 2.0 * 16 * n * n * planes;
    const auto address = reinterpret_cast<std::uint64_t>(data);
    auto* points = reinterpret_cast<cufftDoubleComplex*>(data);
    const auto add = [&](const std::string& name, const std::function<void()>& work) {
        rows.push_back(timing(name, device_seconds(stream, 9, work), bytes));
    };
    const auto from_table = [&](std::uint32_t kernel, const auto& arguments) {
        return [&table, kernel, arguments, stream] { table.at(kernel).alone(stream, &arguments); };
    };
    int square[2] = {n, n}, line[1] = {n};
    cufftHandle plan;
    check(cufftPlanMany(&plan, 2, square, square, 1, n * n, square, 1, n * n, CUFFT_Z2Z, planes), "plan");
    check(cufftSetStream(plan, stream), "stream");
    add("cufft_planes", [&] { check(cufftExecZ2Z(plan, points, points, CUFFT_INVERSE), "transform"); });
    check(cufftDestroy(plan), "plan");
    check(cufftPlanMany(&plan, 1, line, line, 1, n, line, 1, n, CUFFT_Z2Z, n * planes), "plan");
    check(cufftSetStream(plan, stream), "stream");
    add("cufft_contiguous_lines",
        [&] { check(cufftExecZ2Z(plan, points, points, CUFFT_INVERSE), "transform"); });
    check(cufftDestroy(plan), "plan");
    add("ft_planes", from_table(nas::ft_planes, nas::PlanesArguments{address, planes, n, n, 1}));
    add("ft_lines_strided", from_table(nas::ft_lines, nas::LinesArguments{address, 0, n, n * planes, 1, 0}));
    add("ft_lines_transposed",
        from_table(nas::ft_lines, nas::LinesArguments{address, reinterpret_cast<std::uint64_t>(scratch), n,
                                                      n * planes, 1, 0}));
    add("ft_lines_contiguous",
        from_table(nas::ft_lines, nas::LinesArguments{address, 0, n, n * planes, 1, 1}));
    nas::ScatterArguments scatter{address, planes, n, n, 0, n, n, {}};
    scatter.to.fill(reinterpret_cast<std::uint64_t>(scratch));
    add("ft_scatter", from_table(nas::ft_scatter, scatter));
    const double decay = -4e-6 * std::numbers::pi * std::numbers::pi;
    add("ft_evolve", from_table(nas::ft_evolve, nas::EvolveArguments{address, planes, n, n, 0, n, decay}));
    return rows;
}

/// MG's kernels on an n³ grid; bytes are the fewest that each must move (every array read or written once).
std::vector<Json> mg_kernels(const funnel::KernelTable& table, cudaStream_t stream, char* memory, int n) {
    const nas::Grid fine = nas::Grid::of(n, n, n, true), coarse = nas::Grid::of(n / 2, n / 2, n / 2, true);
    const auto step = static_cast<std::uint64_t>(fine.doubles() + 255) / 256 * 256 * 8;
    const auto u = reinterpret_cast<std::uint64_t>(memory), v = u + step, r = v + step, c = r + step;
    // A periodic field without ghost cells: around it lies itself.
    const auto around = [](const nas::Grid& grid, std::uint64_t data) {
        nas::Around all;
        for (int dz = -1; dz <= 1; ++dz)
            for (int dy = -1; dy <= 1; ++dy)
                all.data[(dy + 1) + 3 * (dz + 1)] = nas::beyond(grid, data, dy, dz);
        return all;
    };
    const nas::Around all_u = around(fine, u), all_r = around(fine, r), all_c = around(coarse, c);
    const double points = static_cast<double>(fine.points());
    std::vector<Json> rows;
    // Kernels of a few microseconds are timed in a row, for between two events a single one takes longer.
    const int train = n >= 512 ? 1 : 16;
    const auto time = [&](const std::string& name, double words, const std::function<void()>& work) {
        const double seconds = device_seconds(stream, 9, [&] {
            for (int i = 0; i < train; ++i) work();
        });
        rows.push_back(timing(name, seconds / train, 8 * points * words));
    };
    const auto add = [&](const std::string& name, double words, std::uint32_t kernel, const auto& arguments) {
        time(name, words, [&] { table.at(kernel).alone(stream, &arguments); });
    };
    // A small grid lies in the GPU's cache, so its kernels are held against a copy as small: of as many bytes
    // as mg_correct_and_smooth_replace moves.
    const double copied = 2 + 0.125;
    time("mg_copy", copied, [&] {
        check(cudaMemcpyAsync(reinterpret_cast<void*>(u), reinterpret_cast<const void*>(r),
                              static_cast<std::size_t>(8 * points * copied / 2), cudaMemcpyDeviceToDevice,
                              stream),
              "copy");
    });
    add("mg_resid", 3, nas::mg_stencil, nas::StencilArguments{fine, v, r, all_u, {2.0, 0, -0.1, -0.05}});
    add("mg_psinv", 3, nas::mg_stencil, nas::StencilArguments{fine, u, u, all_r, {-0.3, 0.03, -0.01, 0}});
    add("mg_rprj3", 1 + 0.125, nas::mg_restrict, nas::RestrictArguments{fine, coarse, c, all_r});
    add("mg_interp", 2 + 0.125, nas::mg_interpolate, nas::InterpolateArguments{coarse, fine, c, u, 0});
    add("mg_correct_residual", 2 + 0.125, nas::mg_correct_residual,
        nas::CorrectResidualArguments{coarse, fine, r, all_c, nas::mg_operator});
    add("mg_correct_and_smooth", 3 + 0.125, nas::mg_correct_and_smooth,
        nas::CorrectAndSmoothArguments{coarse, fine, u, all_c, all_r, 0, {-0.3, 0.03, -0.01, 0}});
    add("mg_correct_and_smooth_replace", 2 + 0.125, nas::mg_correct_and_smooth,
        nas::CorrectAndSmoothArguments{coarse, fine, u, all_c, all_r, 1, {-0.3, 0.03, -0.01, 0}});
    nas::SolveCoarseArguments solve{nas::Grid::of(16, 16, 16, true), 4,  1, 1, 1,
                                    {-0.3, 0.03, -0.01, 0},          {}, {}};
    solve.residual[0] = r;
    solve.correction[0] = u;
    add("mg_solve_coarse_16", 2 * 4096.0 / points, nas::mg_solve_coarse, solve);
    nas::FillArguments fill{fine, u, 0, {}};
    fill.source.fill(u);
    add("mg_fill_ghosts", 2 * 6.0 / n, nas::mg_fill_ghosts, fill);
    return rows;
}

}  // namespace

int main(int argc, char** argv) {
    constexpr std::size_t total = 1ull << 30;
    const bool link_only = argc == 2 && std::string(argv[1]) == "--link";
    if (argc > 1 && !link_only) {
        std::fprintf(stderr, "usage: device_limits [--link]\n");
        return 2;
    }
    int driver = 0, runtime = 0;
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "properties");
    check(cudaDriverGetVersion(&driver), "driver version");
    check(cudaRuntimeGetVersion(&runtime), "runtime version");
    char *device = nullptr, *pinned = nullptr;
    const std::size_t on_device = (link_only ? 2 : 8) * total;
    check(cudaMalloc(&device, on_device), "device memory");
    check(cudaMemset(device, 0x11, on_device), "device memory");
    check(cudaMallocHost(&pinned, 2 * total), "pinned memory");
    std::fill_n(pinned, 2 * total, static_cast<char>(0x22));
    Json result;
    result["schema"] = "busfare.hybrid.limits/1";
    result["device"] = std::string(properties.name);
    result["driver"] = driver;
    result["runtime"] = runtime;
    int gpus = 0;
    check(cudaGetDeviceCount(&gpus), "number of GPUs");
    if (gpus > 1) result["all_at_once"] = all_at_once(gpus);
    if (link_only) {
        std::vector<Json> duplex_rows;
        for (const std::size_t chunk : {std::size_t{8} << 20, std::size_t{32} << 20})
            duplex_rows.push_back(duplex(device, pinned, total, chunk, chunk));
        result["both_directions"] = duplex_rows;
        std::printf("%s\n", result.dump().c_str());
        return 0;
    }
    std::vector<char> pageable(64u << 20, static_cast<char>(0x33));
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    funnel::KernelTable table;
    nas::add_cuda_kernels(table);

    const CopyRows copies = copies_by_size(stream, device, pinned, pageable.data(), 64u << 20);
    result["copies"] = copies.by_size;
    result["loggp"] = copies.loggp;
    std::vector<Json> duplex_rows;
    for (const std::size_t chunk : {std::size_t{2} << 20, std::size_t{8} << 20, std::size_t{32} << 20})
        for (const std::size_t run : {std::size_t{8} << 10, std::size_t{32} << 10, chunk})
            duplex_rows.push_back(duplex(device, pinned, total, chunk, run));
    result["both_directions"] = duplex_rows;
    const double copy = device_seconds(stream, 9, [&] {
        check(cudaMemcpyAsync(device, device + 4 * total, 2 * total, cudaMemcpyDeviceToDevice, stream),
              "copy");
    });
    result["device_copy_bytes_per_second"] = 4.0 * static_cast<double>(total) / copy;
    check(cudaMemset(device, 0, 8 * total), "device memory");
    result["fft_512_4_planes"] = fft_kernels(table, stream, device, device + total, 512, 4);
    result["fft_512_64_planes"] = fft_kernels(table, stream, device, device + total, 512, 64);
    result["mg_512"] = mg_kernels(table, stream, device, 512);
    result["mg_256"] = mg_kernels(table, stream, device, 256);
    result["mg_128"] = mg_kernels(table, stream, device, 128);
    result["mg_64"] = mg_kernels(table, stream, device, 64);
    result["mg_32"] = mg_kernels(table, stream, device, 32);
    std::printf("%s\n", result.dump().c_str());
    return 0;
}
