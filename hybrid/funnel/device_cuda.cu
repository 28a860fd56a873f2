#include <cuda_runtime.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "funnel/device.h"

namespace funnel {
namespace {

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    throw Error(Fault::device_failed, std::string(what) + ": " + cudaGetErrorString(status));
}

/// A GPU that does not share its memory with another process, or does not reach it, goes on serving.
void refuse_or_check(cudaError_t status, const char* what) {
    if (status == cudaErrorInvalidValue || status == cudaErrorPeerAccessUnsupported ||
        status == cudaErrorMapBufferObjectFailed || status == cudaErrorNotSupported ||
        status == cudaErrorInvalidResourceHandle || status == cudaErrorTooManyPeers) {
        cudaGetLastError();
        throw Error(Fault::allocation_refused, std::string(what) + ": " + cudaGetErrorString(status));
    }
    check(status, what);
}

class CudaDevice final : public Device {
  public:
    explicit CudaDevice(int ordinal) : ordinal_(ordinal) {
        check(cudaSetDevice(ordinal_), "cudaSetDevice");
        check(cudaFree(nullptr), "creating the context");
    }

    std::string name() const override {
        cudaDeviceProp properties;
        check(cudaGetDeviceProperties(&properties, ordinal_), "cudaGetDeviceProperties");
        return properties.name;
    }

    void attach() override { check(cudaSetDevice(ordinal_), "cudaSetDevice"); }

    DeviceAddress allocate(std::size_t bytes) override {
        void* memory = nullptr;
        const cudaError_t status = cudaMalloc(&memory, bytes);
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();  // not sticky: the device goes on serving
            throw Error(Fault::allocation_refused,
                        "cudaMalloc of " + std::to_string(bytes) + " bytes was refused");
        }
        check(status, "cudaMalloc");
        return reinterpret_cast<DeviceAddress>(memory);
    }

    void release(DeviceAddress address) override {
        check(cudaFree(reinterpret_cast<void*>(address)), "cudaFree");
    }

    MemoryHandle share(DeviceAddress address) override {
        cudaIpcMemHandle_t handle;
        refuse_or_check(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(address)),
                        "sharing device memory");
        MemoryHandle shared{};
        static_assert(sizeof handle <= sizeof shared);
        std::memcpy(shared.data(), &handle, sizeof handle);
        return shared;
    }

    DeviceAddress map(const MemoryHandle& shared) override {
        cudaIpcMemHandle_t handle;
        std::memcpy(&handle, shared.data(), sizeof handle);
        void* memory = nullptr;
        refuse_or_check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
                        "mapping another process's device memory");
        return reinterpret_cast<DeviceAddress>(memory);
    }

    void unmap(DeviceAddress address) override {
        check(cudaIpcCloseMemHandle(reinterpret_cast<void*>(address)), "unmapping device memory");
    }

    void register_host(void* base, std::size_t bytes) override {
        check(cudaHostRegister(base, bytes, cudaHostRegisterPortable), "registering the staging memory");
    }
    void unregister_host(void* base) override { check(cudaHostUnregister(base), "cudaHostUnregister"); }

    StreamId make_stream() override {
        cudaStream_t stream;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
        streams_.push_back(stream);
        return static_cast<StreamId>(streams_.size() - 1);
    }

    void copy_in(StreamId stream, const ResolvedCopy& c) override {
        auto* device = reinterpret_cast<void*>(c.device);
        if (contiguous(c))
            check(cudaMemcpyAsync(device, c.host, c.width * c.rows, cudaMemcpyHostToDevice, streams_[stream]),
                  "copy to the device");
        else
            check(cudaMemcpy2DAsync(device, c.device_pitch, c.host, c.host_pitch, c.width, c.rows,
                                    cudaMemcpyHostToDevice, streams_[stream]),
                  "copy to the device");
    }

    void copy_out(StreamId stream, const ResolvedCopy& c) override {
        auto* device = reinterpret_cast<void*>(c.device);
        if (contiguous(c))
            check(cudaMemcpyAsync(c.host, device, c.width * c.rows, cudaMemcpyDeviceToHost, streams_[stream]),
                  "copy from the device");
        else
            check(cudaMemcpy2DAsync(c.host, c.host_pitch, device, c.device_pitch, c.width, c.rows,
                                    cudaMemcpyDeviceToHost, streams_[stream]),
                  "copy from the device");
    }

    void launch(StreamId stream, const Kernel& kernel, const void* arguments, std::size_t) override {
        kernel.alone(streams_[stream], arguments);
        check(cudaGetLastError(), "kernel launch");
    }
    bool merges(const Kernel& kernel) const override { return kernel.merged != nullptr; }
    void launch_merged(StreamId stream, const Kernel& kernel, const std::vector<const void*>& arguments,
                       std::size_t) override {
        kernel.merged(streams_[stream], arguments.data(), static_cast<int>(arguments.size()));
        check(cudaGetLastError(), "kernel launch");
    }

    EventId make_event(bool timed) override {
        cudaEvent_t event;
        check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
              "cudaEventCreate");
        events_.push_back(event);
        return static_cast<EventId>(events_.size() - 1);
    }
    void record(EventId event, StreamId stream) override {
        check(cudaEventRecord(events_[event], streams_[stream]), "cudaEventRecord");
    }
    void wait(StreamId stream, EventId event) override {
        check(cudaStreamWaitEvent(streams_[stream], events_[event], 0), "cudaStreamWaitEvent");
    }
    bool done(EventId event) override {
        const cudaError_t status = cudaEventQuery(events_[event]);
        if (status == cudaErrorNotReady) return false;
        check(status, "the GPU's work");
        return true;
    }
    double seconds_between(EventId first, EventId second) override {
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, events_[first], events_[second]), "cudaEventElapsedTime");
        return 1e-3 * milliseconds;
    }

  private:
    static bool contiguous(const ResolvedCopy& c) {
        return c.rows == 1 || (c.host_pitch == c.width && c.device_pitch == c.width);
    }

    int ordinal_;
    std::vector<cudaStream_t> streams_;
    std::vector<cudaEvent_t> events_;
};

/// The NUMA node of a PCI device, as Linux tells it; -1 where it does not.
int numa_node_of(int ordinal) {
    char address[32] = {};
    if (cudaDeviceGetPCIBusId(address, sizeof address, ordinal) != cudaSuccess) return -1;
    for (char* c = address; *c != 0; ++c)
        *c = static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    std::ifstream file("/sys/bus/pci/devices/" + std::string(address) + "/numa_node");
    int node = -1;
    file >> node;
    return file ? node : -1;
}

}  // namespace

std::vector<GpuPlace> visible_gpus(int queues) {
    // CUDA takes eight by default. Read by the driver at the first call, and left alone where the user has
    // set it.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(queues).c_str(), 0);
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        cudaGetLastError();
        return {};
    }
    std::vector<GpuPlace> gpus;
    for (int ordinal = 0; ordinal < count; ++ordinal) gpus.push_back({ordinal, numa_node_of(ordinal)});
    return gpus;
}

std::unique_ptr<Device> make_cuda_device(int ordinal) {
    return std::make_unique<CudaDevice>(ordinal);
}

}  // namespace funnel
