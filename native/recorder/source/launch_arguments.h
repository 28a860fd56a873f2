#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace busfare::recorder {

/// How a call of the driver launches a kernel.
enum class LaunchCall : uint8_t { kNone, kAlone, kTogether, kByConfiguration };

/// By the call's name without a suffix.
LaunchCall launch_call(std::string_view plain_name);

/// `name` without what says which version of a call it is.
std::string_view without_suffix(std::string_view name);

/// What a launch gives its kernel: arguments one by one, or all in one buffer.
struct LaunchArguments {
    CUfunction function;
    std::array<uint32_t, 6> shape;  ///< grid and block
    void** each;                    ///< or null
    const char* packed;             ///< or null

    /// From the parameters of such a call.
    static LaunchArguments of(LaunchCall call, const void* parameters);
};

/// Where a kernel's arguments are and how long, as the driver says.
class ArgumentPlaces {
  public:
    /// Whether the driver tells: CUDA 12.4 and newer do.
    bool find();

    /// Calls `take` with each whole word of 8 bytes of the arguments; with none where the driver does not
    /// tell.
    template <typename Take>
    void each_word(const LaunchArguments& launch, Take take) const {
        if (!of_kernel_ || (!launch.each && !launch.packed)) return;
        size_t offset = 0, size = 0;
        ParamInfo* const info =
            of_function_(launch.function, 0, &offset, &size) == CUDA_SUCCESS ? of_function_ : of_kernel_;
        for (size_t n = 0; n < kMostArguments; ++n) {
            if (info(launch.function, n, &offset, &size) != CUDA_SUCCESS) return;
            const char* const from =
                launch.packed ? launch.packed + offset : static_cast<const char*>(launch.each[n]);
            for (size_t at = 0; at + 8 <= size; at += 8) {
                uint64_t word;
                std::memcpy(&word, from + at, sizeof word);
                take(word);
            }
        }
    }

  private:
    using ParamInfo = CUresult(CUfunction, size_t, size_t*, size_t*);

    static constexpr size_t kMostArguments = 4096;

    ParamInfo* of_function_ = nullptr;
    ParamInfo* of_kernel_ = nullptr;
};

}  // namespace busfare::recorder
