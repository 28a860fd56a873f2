// Reads the events of a Kineto (Chrome) trace into columns, from text that arrives in pieces.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "decimal.hpp"
#include "json_cursor.hpp"

namespace busfare {

// Categories that busfare reads; everything else is skipped unread.
enum class Category : std::uint8_t {
    kernel,
    copy,
    set,
    runtime_call,
    driver_call,
    sync,
    event_record,
    annotation,
    operator_,  // of PyTorch, on the host
    function,   // of Python
    skipped
};

// One row an event. kMissing stands for what the event does not say.
struct EventColumns {
    std::vector<std::uint8_t> category;
    std::vector<std::int64_t> start_ns, duration_ns, process, thread, bytes, device, context, stream,
        correlation;
    std::vector<std::int64_t> graph_node, waited_stream, waited_event, waited_correlation;
    std::vector<std::int64_t> copy_kind;               // a hipMemcpyKind
    std::vector<std::int32_t> name, sync_kind, place;  // indices into names(), -1: none; see Place
    // Only where launches are read.
    std::array<std::vector<std::int64_t>, 3> grid, block;
    std::vector<std::int64_t> registers, shared_bytes, external;
};

// PyTorch's operators, one row a call of one.
struct OperatorColumns {
    std::vector<std::int64_t> external, process, thread, start_ns, duration_ns;
    std::vector<std::int32_t> signature;  // index into signatures()
};

// Calls of Python functions, and of operators that name the functions around them.
struct FunctionColumns {
    std::vector<std::int64_t> process, thread, start_ns, duration_ns;
    std::vector<std::int32_t> name;  // index into function_names()
};

// Name, dimensions, types and values of an operator's inputs, as their JSON text; empty: none.
using Signature = std::array<std::string, 4>;

class EventScanner {
  public:
    // The longest single event or header field; a longer one is an error, so that memory stays bounded.
    static constexpr std::size_t kLongest = std::size_t{64} << 20;

    // `launches`: reads how kernels are launched, and the operators that launch them, too.
    explicit EventScanner(bool launches = false) : launches_(launches) {}

    // Takes the next piece of the file. Does nothing after an error: see error().
    void feed(const char* text, std::size_t size);
    // Call once after the last piece.
    void finish();

    const EventColumns& columns() const { return columns_; }
    const std::vector<std::string>& names() const { return names_.texts; }
    const OperatorColumns& operators() const { return operators_; }
    const std::vector<Signature>& signatures() const { return signatures_; }
    const FunctionColumns& functions() const { return functions_; }
    // `train.py(42): load`, or `nn.Module: Linear_0`; of an operator several, the innermost first, with `;`
    // between.
    const std::vector<std::string>& function_names() const { return function_names_.texts; }
    // Rows of columns() that may be collectives, and what their arguments tell of them: a JSON object.
    const std::vector<std::pair<std::uint64_t, std::string>>& collectives() const { return collectives_; }
    // Fields of the top-level object other than the events, as JSON text: key, value.
    const std::vector<std::pair<std::string, std::string>>& header() const { return header_; }
    // Why reading stopped before the end of the file; empty if it did not.
    const std::string& error() const { return error_; }
    std::uint64_t error_position() const { return error_position_; }
    bool truncated() const { return truncated_; }
    // Whether the file is a trace: it has `traceEvents`, or is a list with an object in it.
    bool saw_events() const { return saw_events_; }
    std::uint64_t events() const { return events_; }
    // Events of a category that is read which lack a usable time, and array entries that are no events.
    std::uint64_t unusable() const { return unusable_; }
    // Events that are not read, by whose: of accelerators that are no GPUs, and calls of other runtimes.
    std::uint64_t accelerator_events() const { return accelerator_events_; }
    std::uint64_t foreign_calls() const { return foreign_calls_; }

  private:
    // Texts, each once.
    struct Names {
        std::vector<std::string> texts;
        std::unordered_map<std::string, std::int32_t> ids;
        std::int32_t of(const JsonString& name);
    };
    enum class State { start, top, events, end };

    std::size_t steps(const char* text, std::size_t size);
    bool step(JsonCursor& cursor);
    bool top_field(JsonCursor& cursor);
    bool event(JsonCursor& cursor);
    void keep(std::string_view text);
    void count_skipped(std::string_view category);
    void keep_operator(std::string_view name, std::string_view arguments);

    bool launches_;
    State state_ = State::start;
    bool bare_list_ = false;
    bool truncated_ = false;
    bool saw_events_ = false;
    std::string pending_;
    std::uint64_t consumed_ = 0;
    std::uint64_t header_bytes_ = 0;
    std::uint64_t events_ = 0, unusable_ = 0, accelerator_events_ = 0, foreign_calls_ = 0;
    std::string error_;
    std::uint64_t error_position_ = 0;
    EventColumns columns_;
    OperatorColumns operators_;
    std::vector<Signature> signatures_;
    std::unordered_map<std::string, std::int32_t> signature_ids_;
    std::vector<std::pair<std::uint64_t, std::string>> collectives_;
    FunctionColumns functions_;
    Names names_, function_names_;
    std::vector<std::pair<std::string, std::string>> header_;
};

}  // namespace busfare
