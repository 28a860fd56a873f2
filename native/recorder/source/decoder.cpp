#include "decoder.h"

#include <cstdlib>

#include "kinds.h"
#include "landed_copies.h"
#include "messages.h"

namespace busfare::recorder {
namespace {

constexpr uint32_t kCuda12_3 = 21;      // overheads name their call
constexpr uint32_t kCuda12_4 = 22;      // overheads own a block of memory
constexpr uint32_t kCuda12_8 = 26;      // copies count their parts; events and waits share a number
constexpr uint32_t kCuda13_2 = 130200;  // NVLink records own their ports

constexpr size_t kCopyCountOffset = 88;
constexpr size_t kEventDeviceOffset = 24;
constexpr size_t kEventSyncOffset = 48;
constexpr size_t kWaitSyncOffset = 40;
constexpr size_t kOverheadCallOffset = 40;
constexpr size_t kOverheadDataOffset = 48;
constexpr size_t kNvlinkPortsOffset = 56;
constexpr size_t kNvlinkBandwidthOffset = 72;

constexpr uint64_t kLeftOut = ~uint64_t{0};  // of a call's name
constexpr uint64_t kNoNumber = 0xFFFFFFFF;   // CUPTI's 'does not apply' of 32-bit numbers

template <typename T>
const T& as(const CUpti_Activity* record) {
    return *reinterpret_cast<const T*>(record);
}

/// An end before its start (a clock that was corrected in between) becomes no time at all.
uint64_t duration(uint64_t start, uint64_t end) {
    return end > start ? end - start : 0;
}

uint64_t signed64(int64_t value) {
    return static_cast<uint64_t>(value);
}

uint64_t eight_bytes(const CUuuid& uuid, size_t from) {
    uint64_t value = 0;
    for (size_t byte = 0; byte < 8; ++byte)
        value = value << 8 | static_cast<unsigned char>(uuid.bytes[from + byte]);
    return value;
}

}  // namespace

Decoder::Decoder(const CuptiLibrary& cupti, Journal& journal, const Windows& windows, const Options& options)
    : cupti_(cupti),
      journal_(journal),
      windows_(windows),
      all_calls_(options.kinds & kAllCalls),
      hashing_left_out_(options.fingerprint && options.calls == Calls::kProgram) {}

void Decoder::decode(const FullBuffer& buffer) {
    CUpti_Activity* record = nullptr;
    while (cupti_.next_record(buffer.data, buffer.bytes, &record) == CUPTI_SUCCESS) decode_record(record);
    size_t dropped = 0;
    if (cupti_.dropped_records(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped > 0) {
        uint64_t now = 0;
        cupti_.timestamp(&now);
        journal_.append(TableId::kLosses, {static_cast<uint64_t>(Loss::kCuptiDropped), now, dropped});
    }
}

void Decoder::decode_record(const CUpti_Activity* record) {
    switch (record->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        case CUPTI_ACTIVITY_KIND_KERNEL:
            return kernel(record);
        case CUPTI_ACTIVITY_KIND_MEMCPY:
            return copy(record);
        case CUPTI_ACTIVITY_KIND_MEMCPY2:
            return peer_copy(record);
        case CUPTI_ACTIVITY_KIND_MEMSET:
            return set(record);
        case CUPTI_ACTIVITY_KIND_RUNTIME:
            return call(record, CUPTI_CB_DOMAIN_RUNTIME_API);
        case CUPTI_ACTIVITY_KIND_DRIVER:
            return call(record, CUPTI_CB_DOMAIN_DRIVER_API);
        case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
            return wait(record);
        case CUPTI_ACTIVITY_KIND_CUDA_EVENT:
            return event(record);
        case CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER:
            return managed(record);
        case CUPTI_ACTIVITY_KIND_MARKER:
            return marker(record);
        case CUPTI_ACTIVITY_KIND_OVERHEAD:
            return overhead(record);
        case CUPTI_ACTIVITY_KIND_MEMORY2:
            return allocation(record);
        case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
            return graph_launch(record);
        case CUPTI_ACTIVITY_KIND_DEVICE:
            return device(record);
        case CUPTI_ACTIVITY_KIND_PCIE:
            return pcie_link(record);
        case CUPTI_ACTIVITY_KIND_NVLINK:
            return nvlink(record);
        case CUPTI_ACTIVITY_KIND_STREAM: {
            const auto& stream = as<CUpti_ActivityStream>(record);
            return journal_.append(TableId::kStreams,
                                   {stream.contextId, stream.streamId,
                                    signed64(static_cast<int32_t>(stream.priority)), uint64_t(stream.flag)});
        }
        case CUPTI_ACTIVITY_KIND_CONTEXT: {
            const auto& context = as<CUpti_ActivityContext>(record);
            return journal_.append(TableId::kContexts, {context.contextId, context.deviceId,
                                                        context.nullStreamId, context.computeApiKind});
        }
        // Attributes of devices come along with the devices; nothing in them is wanted.
        case CUPTI_ACTIVITY_KIND_DEVICE_ATTRIBUTE:
            return;
        default:
            return journal_.append(TableId::kLosses, {static_cast<uint64_t>(Loss::kUnknownRecord), 0, 1});
    }
}

void Decoder::kernel(const CUpti_Activity* record) {
    const auto& kernel = as<CUpti_ActivityKernel9>(record);
    journal_.append(TableId::kKernels,
                    {kernel.start, duration(kernel.start, kernel.end), kernel.correlationId, kernel.deviceId,
                     kernel.contextId, kernel.streamId, journal_.kernel_name(kernel.name), kernel.graphNodeId,
                     kernel.graphId, signed64(kernel.gridX), signed64(kernel.gridY), signed64(kernel.gridZ),
                     signed64(kernel.blockX), signed64(kernel.blockY), signed64(kernel.blockZ),
                     kernel.registersPerThread, signed64(kernel.staticSharedMemory),
                     signed64(kernel.dynamicSharedMemory), kernel.localMemoryPerThread});
}

void Decoder::copy(const CUpti_Activity* record) {
    const auto& copy = as<CUpti_ActivityMemcpy5>(record);
    const uint64_t parts = cupti_.version >= kCuda12_8 ? at<uint64_t>(record, kCopyCountOffset) : 1;
    journal_.append(TableId::kCopies,
                    {copy.start, duration(copy.start, copy.end), copy.bytes, copy.copyKind, copy.srcKind,
                     copy.dstKind, copy.flags, copy.deviceId, copy.contextId, copy.streamId,
                     copy.correlationId, copy.graphNodeId, copy.graphId, parts > 0 ? parts : 1, copy.deviceId,
                     copy.contextId, copy.deviceId, copy.contextId, 0});
}

void Decoder::peer_copy(const CUpti_Activity* record) {
    const auto& copy = as<CUpti_ActivityMemcpyPtoP4>(record);
    journal_.append(
        TableId::kCopies,
        {copy.start, duration(copy.start, copy.end), copy.bytes, copy.copyKind, copy.srcKind, copy.dstKind,
         copy.flags, copy.deviceId, copy.contextId, copy.streamId, copy.correlationId, copy.graphNodeId,
         copy.graphId, 1, copy.srcDeviceId, copy.srcContextId, copy.dstDeviceId, copy.dstContextId, 1});
}

void Decoder::set(const CUpti_Activity* record) {
    const auto& set = as<CUpti_ActivityMemset4>(record);
    journal_.append(TableId::kSets,
                    {set.start, duration(set.start, set.end), set.bytes, set.value, set.memoryKind,
                     set.deviceId, set.contextId, set.streamId, set.correlationId, set.graphNodeId});
}

void Decoder::call(const CUpti_Activity* record, CUpti_CallbackDomain domain) {
    const auto& call = as<CUpti_ActivityAPI>(record);
    if (call.start != 0 && !windows_.hold(call.start)) return;
    const uint64_t name = call_name(domain, call.cbid);
    if (name == kLeftOut) return;
    journal_.append(TableId::kCalls, {call.start, duration(call.start, call.end), uint64_t(domain), name,
                                      call.threadId, call.correlationId, call.returnValue});
}

uint64_t Decoder::call_name(CUpti_CallbackDomain domain, CUpti_CallbackId call) {
    std::vector<uint64_t>& names = call_names_[domain];
    if (call >= names.size()) names.resize(call + 1, 0);
    if (names[call] == 0) {
        const char* name = nullptr;
        const bool named = cupti_.callback_name(domain, call, &name) == CUPTI_SUCCESS && name;
        // CUPTI's records do not tell the recorder's calls from the program's.
        const bool hashing =
            hashing_left_out_ && named && domain == CUPTI_CB_DOMAIN_DRIVER_API && LandedCopies::calls(name);
        const bool wanted = !hashing && (all_calls_ || !named || is_call_of_interest(name));
        names[call] = !wanted ? kLeftOut : journal_.string(named ? std::string_view(name) : "unknown");
    }
    return names[call];
}

void Decoder::note(const Note& note, const Note* fingerprint) {
    if (note.what == Note::What::kMessage) return write_message(journal_, note);
    const uint64_t took = duration(note.start, note.end);
    if (note.call) {
        journal_.append(TableId::kCalls, {note.start, took, uint64_t(CUPTI_CB_DOMAIN_DRIVER_API),
                                          call_name(CUPTI_CB_DOMAIN_DRIVER_API, note.number), note.thread,
                                          note.correlation, note.result});
    }
    switch (note.what) {
        case Note::What::kCopy: {
            const Note none{};
            const Note& print = fingerprint ? *fingerprint : none;
            return journal_.append(TableId::kCopyAddresses,
                                   {note.correlation, note.first, note.second, note.third, print.first,
                                    print.second, print.third});
        }
        case Note::What::kWait:
            return journal_.append(TableId::kWaits, {note.start, took, note.first, note.correlation,
                                                     note.context, note.stream, note.second, note.third});
        case Note::What::kEvent:
            return journal_.append(TableId::kEvents, {note.correlation, kNoNumber, note.context, note.stream,
                                                      note.second, note.third});
        case Note::What::kStack:
            return journal_.append(TableId::kCallStacks, {note.correlation, note.first});
        default:
            return;
    }
}

void Decoder::wait(const CUpti_Activity* record) {
    const auto& wait = as<CUpti_ActivitySynchronization>(record);
    const uint64_t sync = cupti_.version >= kCuda12_8 ? at<uint64_t>(record, kWaitSyncOffset) : 0;
    journal_.append(TableId::kWaits,
                    {wait.start, duration(wait.start, wait.end), uint64_t(wait.type), wait.correlationId,
                     wait.contextId, wait.streamId, wait.cudaEventId, sync == kNoNumber ? 0 : sync});
}

void Decoder::event(const CUpti_Activity* record) {
    const auto& event = as<CUpti_ActivityCudaEvent>(record);
    const bool newer = cupti_.version >= kCuda12_8;
    journal_.append(
        TableId::kEvents,
        {event.correlationId, newer ? at<uint32_t>(record, kEventDeviceOffset) : kNoNumber, event.contextId,
         event.streamId, event.eventId, newer ? at<uint64_t>(record, kEventSyncOffset) : 0});
}

void Decoder::managed(const CUpti_Activity* record) {
    const auto& counter = as<CUpti_ActivityUnifiedMemoryCounter2>(record);
    journal_.append(TableId::kManaged,
                    {counter.start, duration(counter.start, counter.end), uint64_t(counter.counterKind),
                     counter.value, counter.address, counter.srcId, counter.dstId, counter.flags});
}

void Decoder::marker(const CUpti_Activity* record) {
    const auto& marker = as<CUpti_ActivityMarker2>(record);
    const bool in_thread = marker.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD;
    journal_.append(
        TableId::kMarkers,
        {marker.timestamp, uint64_t(marker.flags), marker.id, in_thread ? marker.objectId.pt.threadId : 0,
         journal_.string(marker.name), journal_.string(marker.domain), uint64_t(marker.objectKind)});
}

void Decoder::overhead(const CUpti_Activity* record) {
    const auto& overhead = as<CUpti_ActivityOverhead>(record);
    const uint64_t call = cupti_.version >= kCuda12_3 ? at<uint32_t>(record, kOverheadCallOffset) : 0;
    journal_.append(
        TableId::kOverheads,
        {overhead.start, duration(overhead.start, overhead.end), uint64_t(overhead.overheadKind), call,
         overhead.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD ? overhead.objectId.pt.threadId : 0});
    if (cupti_.version >= kCuda12_4) std::free(at<void*>(record, kOverheadDataOffset));
}

void Decoder::allocation(const CUpti_Activity* record) {
    const auto& memory = as<CUpti_ActivityMemory3>(record);
    journal_.append(TableId::kAllocations,
                    {memory.timestamp, uint64_t(memory.memoryOperationType), uint64_t(memory.memoryKind),
                     memory.address, memory.bytes, memory.correlationId, memory.deviceId, memory.contextId,
                     memory.streamId, memory.isAsync});
}

void Decoder::graph_launch(const CUpti_Activity* record) {
    const auto& graph = as<CUpti_ActivityGraphTrace>(record);
    journal_.append(TableId::kGraphLaunches,
                    {graph.start, duration(graph.start, graph.end), graph.correlationId, graph.deviceId,
                     graph.contextId, graph.streamId, graph.graphId});
}

void Decoder::device(const CUpti_Activity* record) {
    const auto& device = as<CUpti_ActivityDevice4>(record);
    constexpr uint64_t kKilo = 1000;
    journal_.append(
        TableId::kDevices,
        {device.id, journal_.string(device.name), eight_bytes(device.uuid, 0), eight_bytes(device.uuid, 8),
         device.globalMemorySize, device.globalMemoryBandwidth * kKilo, device.coreClockRate * kKilo,
         device.numMultiprocessors, device.computeCapabilityMajor, device.computeCapabilityMinor,
         device.numMemcpyEngines, device.l2CacheSize});
}

void Decoder::pcie_link(const CUpti_Activity* record) {
    const auto& link = as<CUpti_ActivityPcie>(record);
    journal_.append(TableId::kPcieLinks,
                    {uint64_t(link.type), link.id.bridgeId, link.domain, link.pcieGeneration, link.linkRate,
                     link.linkWidth, link.upstreamBus});
}

void Decoder::nvlink(const CUpti_Activity* record) {
    const auto& link = as<CUpti_ActivityNvLink4>(record);
    const bool owns_ports = cupti_.version >= kCuda13_2;
    const uint64_t bandwidth = owns_ports ? at<uint64_t>(record, kNvlinkBandwidthOffset) : link.bandwidth;
    journal_.append(TableId::kNvlinks,
                    {link.nvlinkVersion, uint64_t(link.typeDev0), uint64_t(link.typeDev1),
                     eight_bytes(link.idDev0.uuidDev, 0), eight_bytes(link.idDev0.uuidDev, 8),
                     eight_bytes(link.idDev1.uuidDev, 0), eight_bytes(link.idDev1.uuidDev, 8),
                     link.physicalNvLinkCount, bandwidth * 1000});
    if (owns_ports) {
        std::free(at<void*>(record, kNvlinkPortsOffset));
        std::free(at<void*>(record, kNvlinkPortsOffset + 8));
    }
}

}  // namespace busfare::recorder
