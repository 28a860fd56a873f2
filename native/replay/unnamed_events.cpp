#include "unnamed_events.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

namespace busfare::replay {
namespace {

// Work that starts so soon behind other work was waiting for it: streams start within some 3 us behind an
// event.
constexpr Time kAtOnce = 10'000;
// Time stamps of two streams are off by about this.
constexpr Time kOff = 1'000;
// A thread that waits and launches nothing for so long may have handed over to another.
constexpr Time kHandedOver = 50'000;

// What was recorded of a stream: the record calls in their order, and when the work before each of them
// ended.
struct Recorded {
    Index stream;
    std::vector<Index> records;
    std::vector<Time> ends;

    void add(Index record, Time end) {
        records.push_back(record);
        ends.push_back(ends.empty() ? end : std::max(end, ends.back()));
    }
};

// A place among what was recorded in a process.
struct Place {
    std::size_t stream, at;
};

struct PendingWait {
    Index row;
    std::optional<Place> adjacent;  // a record right before it
};

struct Thread {
    Index process = kNone;
    bool launched = false;  // then these are of its last launch
    Index stream = 0;
    Time end = 0;
    std::uint8_t last_calls[4] = {255, 255, 255, 255};
    std::vector<PendingWait> waits;  // since its last launch
    std::optional<Place> adjacent;

    bool any() const { return last_calls[3] != 255; }
    void called(Called kind) {
        std::rotate(last_calls, last_calls + 1, last_calls + 4);
        last_calls[3] = static_cast<std::uint8_t>(kind);
    }
    // A launch, a record, a wait and another record: NCCL's own stream waits for its kernel, and what the
    // program records comes behind that.
    bool within_launch() const {
        constexpr Called kPattern[] = {Called::launch, Called::record, Called::wait, Called::record};
        return std::ranges::equal(last_calls, kPattern, {}, {},
                                  [](Called kind) { return static_cast<std::uint8_t>(kind); });
    }
};

struct Process {
    std::vector<Recorded> streams;                // in the order of their first records
    std::map<Index, std::size_t> place;           // of a stream in `streams`
    std::vector<std::pair<Index, Time>> waiting;  // threads with waits, and when the last was

    std::size_t recorded(Index stream) {
        const auto [entry, is_new] = place.try_emplace(stream, streams.size());
        if (is_new) streams.push_back({.stream = stream, .records = {}, .ends = {}});
        return entry->second;
    }
    void waits(Index thread, Time time) {
        const auto entry = std::ranges::find(waiting, thread, &std::pair<Index, Time>::first);
        if (entry == waiting.end())
            waiting.emplace_back(thread, time);
        else
            entry->second = time;
    }
};

class Pairing {
  public:
    explicit Pairing(const EventCalls& calls) : c_(calls) {}

    std::vector<EventPair> run() {
        for (std::size_t call = 0; call < c_.size(); ++call) {
            const auto kind = static_cast<Called>(c_.kind[call]);
            Thread& thread = threads_[c_.thread[call]];
            Process& process = processes_[c_.process[call]];
            if (std::exchange(thread.process, c_.process[call]) != c_.process[call] && thread.any())
                throw std::invalid_argument("unnamed events: a thread of two processes");
            thread.called(kind);
            if (kind == Called::wait) {
                thread.waits.push_back({c_.row[call], std::exchange(thread.adjacent, std::nullopt)});
                process.waits(c_.thread[call], c_.time[call]);
            } else if (kind == Called::launch) {
                launches(call, thread, process);
            } else if (thread.launched) {
                records(call, thread, process);
            }
        }
        return std::move(pairs_);
    }

  private:
    void records(std::size_t call, Thread& thread, Process& process) {
        if (thread.within_launch() && !thread.waits.empty()) thread.waits.pop_back();
        const std::size_t stream = process.recorded(thread.stream);
        process.streams[stream].add(c_.row[call], thread.end);
        thread.adjacent = Place{stream, process.streams[stream].records.size() - 1};
    }

    void launches(std::size_t call, Thread& thread, Process& process) {
        thread.adjacent.reset();
        thread.launched = true;
        thread.stream = c_.last_stream[call];
        thread.end = c_.last_end[call];
        if (process.waiting.empty()) return;
        // PyTorch's backward pass waits, and the thread that it hands back to launches what was waited for.
        const auto by = [&](const std::pair<Index, Time>& waiter) {
            return waiter.first == c_.thread[call] || c_.time[call] - waiter.second >= kHandedOver;
        };
        for (const auto& waiter : process.waiting)
            if (by(waiter))
                for (const PendingWait& wait : std::exchange(threads_[waiter.first].waits, {}))
                    pair(wait, c_.first_stream[call], c_.first_start[call], process);
        std::erase_if(process.waiting, by);
    }

    void pair(const PendingWait& wait, Index stream, Time start, const Process& process) {
        std::optional<Place> chosen = wait.adjacent;
        if (!chosen || process.streams[chosen->stream].ends[chosen->at] > start + kOff)
            chosen = head(process, stream, start, wait.row);
        if (!chosen) return;
        const Recorded& of = process.streams[chosen->stream];
        if (of.stream == stream) return;
        pairs_.push_back({of.records[chosen->at], of.stream, wait.row, stream});
        std::size_t& done = done_[{stream, of.stream}];
        done = std::max(done, chosen->at + 1);
    }

    // What work of `stream`, which starts at `start`, waits for by the call `wait`; of every other stream the
    // record whose end it starts right behind, else the first that is left; of those the one that ended last.
    std::optional<Place> head(const Process& process, Index stream, Time start, Index wait) {
        std::optional<Place> best;
        Time ended = 0;
        for (std::size_t number = 0; number < process.streams.size(); ++number) {
            const Recorded& recorded = process.streams[number];
            const std::size_t left = done_[{stream, recorded.stream}];
            const auto most = std::ranges::lower_bound(recorded.records, wait) - recorded.records.begin();
            const auto behind = std::ranges::upper_bound(recorded.ends, start + kOff) - recorded.ends.begin();
            const auto over = static_cast<std::size_t>(std::min(behind, most));  // one behind it
            if (recorded.stream == stream || over <= left) continue;
            const std::size_t at = start - recorded.ends[over - 1] <= kAtOnce ? over - 1 : left;
            if (best && recorded.ends[at] <= ended) continue;
            best = Place{number, at};
            ended = recorded.ends[at];
        }
        return best;
    }

    const EventCalls& c_;
    std::vector<EventPair> pairs_;
    std::map<Index, Thread> threads_;
    std::map<Index, Process> processes_;
    std::map<std::pair<Index, Index>, std::size_t>
        done_;  // by waiting and recorded stream: records that are done with
};

}  // namespace

std::vector<EventPair> unnamed_events(const EventCalls& calls) {
    const std::size_t sizes[] = {
        calls.kind.size(),         calls.thread.size(),      calls.process.size(),     calls.time.size(),
        calls.first_stream.size(), calls.last_stream.size(), calls.first_start.size(), calls.last_end.size()};
    if (std::ranges::any_of(sizes, [&](std::size_t size) { return size != calls.size(); }))
        throw std::invalid_argument("unnamed events: columns of different sizes");
    if (std::ranges::any_of(calls.kind, [](std::uint8_t kind) { return kind > 2; }))
        throw std::invalid_argument("unnamed events: column kind");
    return Pairing(calls).run();
}

}  // namespace busfare::replay
