#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "journal.h"
#include "note.h"

// What libbusfare_messages.so, which stands in front of MPI and NCCL in the program, hands to the recorder.

extern "C" {

/// A call of MPI or NCCL, or one of the messages that it is about.
struct BusfareMessage {
    const char* name;  ///< of the call; stays where it is
    uint64_t start;    ///< wall clock, ns
    uint64_t end;
    uint64_t bytes;
    uint64_t request;  ///< of MPI; of NCCL the group that the call is in; 0: none
    uint32_t communicator;
    int32_t peer;
    int32_t tag;
    int32_t result;
};

struct BusfareCommunicator {
    uint32_t number;
    const char* name;     ///< the same in all of its members
    const char* members;  ///< ranks of the job, "0,1,2"; empty: not known
    int32_t place;        ///< this process's rank in it
    int32_t size;
};

struct BusfareMessageSink {
    void (*message)(const BusfareMessage*);
    void (*communicator)(const BusfareCommunicator*);
};

/// Begins to record, when the environment asks for it; null otherwise.
const BusfareMessageSink* busfare_message_sink();
}

namespace busfare::recorder {

/// A recording of messages alone, from MPI's or NCCL's start until CUDA's, or to the end of a program that
/// uses no CUDA. Its thread drains the notes, as that of a `Session` does later.
class EarlyRecording {
  public:
    /// False when nothing can be written.
    static bool start();

    /// Ends it, and hands the open file on; null when there is none. Closes the file where times in it cannot
    /// go on (`same_clock`).
    static std::unique_ptr<Journal> take(bool same_clock);

    static void wake();
    static void finish();
    static void forget_in_child();
};

/// The row of a noted message.
void write_message(Journal& journal, const Note& note);

/// The communicators that were named since the last time.
void write_communicators(Journal& journal);

/// How messages get the attention of a session's writer.
void wake_for_messages(std::function<void()> wake_writer);

}  // namespace busfare::recorder
