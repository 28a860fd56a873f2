#pragma once

#include <cupti.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "journal.h"
#include "launch_arguments.h"

namespace busfare::recorder {

/// How much memory of the GPU the arguments of kernels reach: looked up at the first launch of each kernel
/// with each grid and block.
///
/// A pointer that lies in other memory, as in a table of pointers, is not seen, nor are variables of the GPU.
class ArgumentMemory {
  public:
    /// Whether the driver tells what arguments kernels have, and where memory begins and ends.
    bool start();

    /// From the end of a launch that succeeded.
    void note(LaunchCall call, const CUpti_CallbackData& data);

    /// What was found since the last time.
    void write(Journal& journal);

  private:
    using AddressRange = CUresult(CUdeviceptr*, size_t*, CUdeviceptr);

    /// A kernel with its grid and block, of one recording.
    struct Launch {
        uint64_t recording;
        CUfunction function;
        std::array<uint32_t, 6> shape;

        bool operator==(const Launch&) const = default;
        size_t hash() const;
    };
    struct Hash {
        size_t operator()(const Launch& launch) const { return launch.hash(); }
    };

    /// A launch that was looked at.
    struct Reached {
        std::string kernel;  ///< mangled
        std::array<uint32_t, 6> shape;
        uint64_t bytes;    ///< from the first pointer into each allocation to its end
        uint64_t buffers;  ///< how many allocations
        uint64_t inside;   ///< how far into its allocation a pointer lies, in 1/1000 of that, at most
    };

    bool is_new(const Launch& launch);

    const uint64_t recording_ = next_recording_++;
    ArgumentPlaces places_;
    AddressRange* range_ = nullptr;
    decltype(&::cuThreadExchangeStreamCaptureMode) exchange_mode_ = nullptr;
    std::mutex mutex_;  ///< guards what follows
    std::unordered_set<Launch, Hash> known_;
    std::vector<Reached> reached_;

    static inline std::atomic<uint64_t> next_recording_{1};
    /// Those that this thread saw last, by their hashes: most launches are one of them.
    static thread_local std::array<Launch, 256> t_known_;
};

}  // namespace busfare::recorder
