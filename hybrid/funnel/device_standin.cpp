#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "funnel/device.h"

namespace funnel {
namespace {

using Clock = std::chrono::steady_clock;

/// A host thread that takes operations from queues as a GPU takes them from streams: in order within a
/// stream, in any order between streams, later than the call that asked.
class StandinDevice final : public Device {
  public:
    explicit StandinDevice(std::size_t memory_bytes)
        : free_bytes_(memory_bytes), worker_([this] { run(); }) {}

    ~StandinDevice() override {
        {
            std::lock_guard lock(mutex_);
            stop_ = true;
        }
        wake_.notify_one();
        worker_.join();
        for (const auto& [address, allocation] : allocations_) give_back(address, allocation);
        for (const auto& [address, bytes] : mapped_) munmap(reinterpret_cast<void*>(address), bytes);
    }

    std::string name() const override { return "stand-in (host thread)"; }
    void attach() override {}

    DeviceAddress allocate(std::size_t bytes) override {
        std::lock_guard lock(mutex_);
        if (bytes > free_bytes_)
            throw Error(Fault::allocation_refused, "the stand-in has " + std::to_string(free_bytes_) +
                                                       " bytes free, not " + std::to_string(bytes));
        // A file without a name, so that another process can map it.
        const int file = memfd_create("stand-in", MFD_CLOEXEC);
        void* memory =
            file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0 ? mapping(file, bytes) : MAP_FAILED;
        if (memory == MAP_FAILED) {
            if (file >= 0) close(file);
            throw Error(Fault::allocation_refused, "the host refused the stand-in's memory");
        }
        const auto address = reinterpret_cast<DeviceAddress>(memory);
        allocations_[address] = {bytes, file};
        free_bytes_ -= bytes;
        return address;
    }

    void release(DeviceAddress address) override {
        std::lock_guard lock(mutex_);
        const auto allocation = allocations_.find(address);
        if (allocation == allocations_.end())
            throw Error(Fault::wrong_use, "release of memory that is not allocated");
        free_bytes_ += allocation->second.bytes;
        give_back(address, allocation->second);
        allocations_.erase(allocation);
    }

    MemoryHandle share(DeviceAddress address) override {
        std::lock_guard lock(mutex_);
        const Allocation& allocation = allocations_.at(address);
        const Shared shared{getpid(), allocation.file, allocation.bytes};
        MemoryHandle handle{};
        static_assert(sizeof shared <= sizeof handle);
        std::memcpy(handle.data(), &shared, sizeof shared);
        return handle;
    }

    DeviceAddress map(const MemoryHandle& handle) override {
        Shared shared;
        std::memcpy(&shared, handle.data(), sizeof shared);
        const std::string path =
            "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
        const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
        void* memory = file >= 0 ? mapping(file, shared.bytes) : MAP_FAILED;
        if (file >= 0) close(file);
        if (memory == MAP_FAILED)
            throw Error(Fault::allocation_refused, "the stand-in cannot map another one's memory");
        std::lock_guard lock(mutex_);
        mapped_[reinterpret_cast<DeviceAddress>(memory)] = shared.bytes;
        return reinterpret_cast<DeviceAddress>(memory);
    }

    void unmap(DeviceAddress address) override {
        std::lock_guard lock(mutex_);
        const auto mapping = mapped_.find(address);
        if (mapping == mapped_.end()) throw Error(Fault::wrong_use, "unmapping of memory that is not mapped");
        munmap(reinterpret_cast<void*>(address), mapping->second);
        mapped_.erase(mapping);
    }

    void register_host(void* base, std::size_t bytes) override {
        registered_[static_cast<char*>(base)] = bytes;
    }
    void unregister_host(void* base) override { registered_.erase(static_cast<char*>(base)); }

    StreamId make_stream() override {
        std::lock_guard lock(mutex_);
        streams_.emplace_back();
        return static_cast<StreamId>(streams_.size() - 1);
    }

    void copy_in(StreamId stream, const ResolvedCopy& c) override {
        check_registered(c);
        enqueue(stream, [c] {
            for (std::size_t row = 0; row < c.rows; ++row)
                std::memcpy(reinterpret_cast<char*>(c.device) + row * c.device_pitch,
                            static_cast<char*>(c.host) + row * c.host_pitch, c.width);
        });
    }

    void copy_out(StreamId stream, const ResolvedCopy& c) override {
        check_registered(c);
        enqueue(stream, [c] {
            for (std::size_t row = 0; row < c.rows; ++row)
                std::memcpy(static_cast<char*>(c.host) + row * c.host_pitch,
                            reinterpret_cast<char*>(c.device) + row * c.device_pitch, c.width);
        });
    }

    void launch(StreamId stream, const Kernel& kernel, const void* arguments, std::size_t bytes) override {
        std::array<std::byte, KernelCall::most_bytes> copy;
        std::memcpy(copy.data(), arguments, bytes);
        enqueue(stream, [function = kernel.alone, copy, stream] {
            function(reinterpret_cast<void*>(static_cast<std::intptr_t>(stream)), copy.data());
        });
    }
    /// One host thread runs the ranks' kernels one after the other, so any kernel will do.
    bool merges(const Kernel&) const override { return true; }
    void launch_merged(StreamId stream, const Kernel& kernel, const std::vector<const void*>& arguments,
                       std::size_t bytes) override {
        for (const void* of_rank : arguments) launch(stream, kernel, of_rank, bytes);
    }

    EventId make_event(bool) override {
        std::lock_guard lock(mutex_);
        events_.emplace_back();
        return static_cast<EventId>(events_.size() - 1);
    }

    void record(EventId event, StreamId stream) override {
        std::lock_guard lock(mutex_);
        const std::uint64_t count = ++events_[event].recorded;
        streams_[stream].push_back({[this, event, count] {
                                        std::lock_guard inner(mutex_);
                                        events_[event].completed = count;
                                        events_[event].time = Clock::now();
                                    },
                                    -1, 0});
        wake_.notify_one();
    }

    void wait(StreamId stream, EventId event) override {
        std::lock_guard lock(mutex_);
        streams_[stream].push_back({{}, event, events_[event].recorded});
        wake_.notify_one();
    }

    bool done(EventId event) override {
        std::lock_guard lock(mutex_);
        if (!failure_.empty()) throw Error(Fault::device_failed, failure_);
        return events_[event].completed >= events_[event].recorded;
    }

    double seconds_between(EventId first, EventId second) override {
        std::lock_guard lock(mutex_);
        return std::chrono::duration<double>(events_[second].time - events_[first].time).count();
    }

  private:
    struct Operation {
        std::function<void()> run;  ///< empty for a wait
        EventId waits_for;
        std::uint64_t record_count;
    };
    struct Allocation {
        std::size_t bytes;
        int file;
    };
    struct Shared {
        pid_t process;
        int file;
        std::size_t bytes;
    };
    struct Event {
        std::uint64_t recorded = 0, completed = 0;
        Clock::time_point time;
    };

    static void* mapping(int file, std::size_t bytes) {
        return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    static void give_back(DeviceAddress address, const Allocation& allocation) {
        munmap(reinterpret_cast<void*>(address), allocation.bytes);
        close(allocation.file);
    }

    void check_registered(const ResolvedCopy& c) const {
        const char* first = static_cast<char*>(c.host);
        const char* end = first + (c.rows - 1) * c.host_pitch + c.width;
        auto after = registered_.upper_bound(const_cast<char*>(first));
        if (after == registered_.begin() || end > std::prev(after)->first + std::prev(after)->second)
            throw Error(Fault::out_of_range,
                        "a copy touches host memory that is not registered with the device");
    }

    void enqueue(StreamId stream, std::function<void()> run) {
        std::lock_guard lock(mutex_);
        streams_[stream].push_back({std::move(run), -1, 0});
        wake_.notify_one();
    }

    /// Takes the next operation that may run, one stream after the other.
    bool take(Operation& next) {
        for (std::size_t step = 0; step < streams_.size(); ++step) {
            auto& stream = streams_[next_stream_++ % streams_.size()];
            while (!stream.empty() && !stream.front().run &&
                   events_[stream.front().waits_for].completed >= stream.front().record_count)
                stream.pop_front();
            if (stream.empty() || !stream.front().run) continue;
            next = std::move(stream.front());
            stream.pop_front();
            return true;
        }
        return false;
    }

    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            Operation next;
            if (failure_.empty() && take(next)) {
                lock.unlock();
                std::string failure;
                try {
                    next.run();
                } catch (const std::exception& problem) {
                    failure = problem.what();
                }
                lock.lock();
                if (!failure.empty()) failure_ = failure;
            } else if (stop_) {
                return;
            } else {
                wake_.wait(lock);
            }
        }
    }

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::size_t free_bytes_;
    std::map<DeviceAddress, Allocation> allocations_;
    std::map<DeviceAddress, std::size_t> mapped_;
    std::map<char*, std::size_t> registered_;
    std::deque<std::deque<Operation>> streams_;
    std::deque<Event> events_;
    std::size_t next_stream_ = 0;
    std::string failure_;
    bool stop_ = false;
    std::thread worker_;
};

}  // namespace

std::unique_ptr<Device> make_standin_device(std::size_t memory_bytes) {
    return std::make_unique<StandinDevice>(memory_bytes);
}

}  // namespace funnel
