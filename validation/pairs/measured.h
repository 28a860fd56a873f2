// What the C++ programs of this folder share: options, the measured region, the check, the line of JSON.
#pragma once

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#if __has_include(<cuda_profiler_api.h>)
#include <cuda_profiler_api.h>
#else  // an installation may lack this header; the runtime's library has the calls
extern "C" cudaError_t CUDARTAPI cudaProfilerStart();
extern "C" cudaError_t CUDARTAPI cudaProfilerStop();
#endif

#define CHECK(call)                                                              \
    do {                                                                         \
        const cudaError_t status = (call);                                       \
        if (status != cudaSuccess) {                                             \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status)); \
            std::exit(3);                                                        \
        }                                                                        \
    } while (0)

struct Program {
    const char* name;
    const char* what;
    std::vector<std::string> variants;  // the first is `before`
    int rounds;  // how often the region repeats its work, unless --rounds says otherwise
};

struct Options {
    std::string variant = "before";
    int rounds = 0;
    int repeats = 3;
    int warm_ups = 2;
    bool reference = false;
    bool wait = false;

    bool is(std::string_view name) const { return variant == name; }
};

inline void print_usage(const Program& program, std::FILE* file) {
    std::fprintf(file, "%s: %s\n\n  --variant", program.name, program.what);
    for (const std::string& name : program.variants) std::fprintf(file, " %s", name.c_str());
    std::fprintf(
        file,
        "\n  --rounds N      work in the measured region (%d)\n"
        "  --repeats N     measured regions, without --wait (3)\n"
        "  --warm-ups N    regions before them (2)\n"
        "  --wait          warm up and say `ready`; then a line `measure` on standard input is one\n"
        "                  measured region, `warm` an unmeasured one, and its end asks for the check\n"
        "  --reference     check the host's reference against a known answer, without a GPU\n",
        program.rounds);
}

inline Options options_of(int count, char** words, const Program& program) {
    Options options;
    options.rounds = program.rounds;
    const auto refuse = [&](const char* why, const char* word) {
        std::fprintf(stderr, "%s: %s %s\n", program.name, why, word);
        print_usage(program, stderr);
        std::exit(2);
    };
    const auto number = [&](const char* word) {
        char* end = nullptr;
        const long value = std::strtol(word, &end, 10);
        if (end == word || *end || value < 0 || value > 1'000'000) refuse("not a number of use:", word);
        return static_cast<int>(value);
    };
    for (int at = 1; at < count; ++at) {
        const std::string_view word = words[at];
        if (word == "--help") {
            print_usage(program, stdout);
            std::exit(0);
        }
        if (word == "--reference") {
            options.reference = true;
            continue;
        }
        if (word == "--wait") {
            options.wait = true;
            continue;
        }
        if (at + 1 == count) refuse("needs a value:", words[at]);
        const char* value = words[++at];
        if (word == "--variant")
            options.variant = value;
        else if (word == "--rounds")
            options.rounds = number(value);
        else if (word == "--repeats")
            options.repeats = number(value);
        else if (word == "--warm-ups")
            options.warm_ups = number(value);
        else
            refuse("unknown option", words[at - 1]);
    }
    if (std::find(program.variants.begin(), program.variants.end(), options.variant) ==
        program.variants.end())
        refuse("unknown variant", options.variant.c_str());
    if (options.rounds < 1 || options.repeats < 1)
        refuse("at least 1 is needed of", "--rounds and --repeats");
    return options;
}

/// Seconds of one measured region. `region` leaves no work on the GPU undone in its account: the time ends
/// when the GPU is idle.
inline double measure_once(const std::function<void()>& region) {
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaProfilerStart());
    nvtxRangePushA("measured");
    const auto start = std::chrono::steady_clock::now();
    region();
    CHECK(cudaDeviceSynchronize());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    nvtxRangePop();
    CHECK(cudaProfilerStop());
    return taken.count();
}

/// Seconds of each measured region: --repeats of them, or one for each that is asked for.
inline std::vector<double> measure(const Options& options, const std::function<void()>& region) {
    for (int each = 0; each < options.warm_ups; ++each) region();
    std::vector<double> seconds;
    if (!options.wait) {
        for (int each = 0; each < options.repeats; ++each) seconds.push_back(measure_once(region));
        return seconds;
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("ready\n");
    std::fflush(stdout);
    char line[16];
    while (std::fgets(line, sizeof line, stdin)) {
        double taken = 0;
        if (std::string_view(line) == "measure\n") {
            taken = measure_once(region);
            seconds.push_back(taken);
        } else {
            region();
            CHECK(cudaDeviceSynchronize());
        }
        std::printf("{\"region\": %.9g}\n", taken);
        std::fflush(stdout);
    }
    if (seconds.empty()) {
        std::fprintf(stderr, "no region was asked for\n");
        std::exit(1);
    }
    return seconds;
}

/// Prints the result; the exit status is 1 where the check failed.
inline int report(const Program& program, const Options& options, const std::vector<double>& seconds,
                  double error, double tolerance) {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    const size_t half = sorted.size() / 2;
    const double median = sorted.size() % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
    const bool right = error <= tolerance;  // false for a NaN
    std::printf(
        "{\"program\": \"%s\", \"variant\": \"%s\", \"rounds\": %d, \"median_seconds\": %.9g, \"seconds\": [",
        program.name, options.variant.c_str(), options.rounds, median);
    for (size_t at = 0; at < seconds.size(); ++at) std::printf("%s%.9g", at ? ", " : "", seconds[at]);
    std::printf("], \"error\": %.6g, \"tolerance\": %.6g, \"right\": %s}\n",
                std::isfinite(error) ? error : 1e300, tolerance, right ? "true" : "false");
    return right ? 0 : 1;
}

/// Prints what the host's reference is off a known answer by; the exit status is 1 beyond the tolerance.
inline int report_reference(const Program& program, double error, double tolerance) {
    const bool right = error <= tolerance;
    std::printf("{\"program\": \"%s\", \"reference_error\": %.6g, \"tolerance\": %.6g, \"right\": %s}\n",
                program.name, std::isfinite(error) ? error : 1e300, tolerance, right ? "true" : "false");
    return right ? 0 : 1;
}

/// `count` values on the host, pageable or pinned, touched once.
template <typename T>
class HostBuffer {
  public:
    HostBuffer(size_t count, bool pinned) : count_(count), pinned_(pinned) {
        if (pinned_)
            CHECK(cudaMallocHost(reinterpret_cast<void**>(&data_), count * sizeof(T)));
        else
            data_ = static_cast<T*>(std::aligned_alloc(4096, (count * sizeof(T) + 4095) / 4096 * 4096));
        if (!data_) {
            std::fprintf(stderr, "no memory for %zu bytes\n", count * sizeof(T));
            std::exit(3);
        }
        std::memset(static_cast<void*>(data_), 0, count * sizeof(T));
    }
    ~HostBuffer() {
        if (pinned_)
            cudaFreeHost(data_);
        else
            std::free(data_);
    }
    HostBuffer(const HostBuffer&) = delete;
    HostBuffer& operator=(const HostBuffer&) = delete;

    T* data() { return data_; }
    size_t size() const { return count_; }
    size_t bytes() const { return count_ * sizeof(T); }
    T& operator[](size_t at) { return data_[at]; }

  private:
    T* data_ = nullptr;
    size_t count_;
    bool pinned_;
};

template <typename T>
T* device_array(size_t count) {
    T* data = nullptr;
    CHECK(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(T)));
    return data;
}

/// The same numbers in every run: uniform in [0, 1).
class Uniform {
  public:
    explicit Uniform(uint64_t seed) : state_(seed * 2 + 1) {}
    double operator()() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<double>(state_ >> 11) * 0x1.0p-53;
    }

  private:
    uint64_t state_;
};
