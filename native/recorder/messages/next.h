#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>

#include "../source/messages.h"

namespace busfare::messages {

/// The function `name` of the library that stands behind this one. One that was loaded for a module alone
/// (mpi4py, PyTorch) is none that the loader would find: it is looked for by `alias` in every library but
/// this.
void* next_of(const char* name, const char* alias);

/// The object `name`, of which programs may hold a copy that all use.
void* object_of(const char* name);

template <typename Function>
Function* next(const char* name, const char* alias) {
    return reinterpret_cast<Function*>(next_of(name, alias));
}

/// FNV-1a.
inline uint64_t hash_of(const void* data, size_t size) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < size; ++i)
        hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
    return hash;
}

/// Where records go; null while nothing is recorded.
const BusfareMessageSink* sink();

/// Asks the recorder whether it records.
void begin();

inline uint64_t now() {
    timespec time{};
    ::clock_gettime(CLOCK_REALTIME, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}

/// A call of the program: what a library calls inside is its own business.
class Call {
  public:
    explicit Call(const char* name) : name_(name), start_(now()) { ++depth(); }
    ~Call() { --depth(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    static bool wanted() { return sink() && depth() == 0; }

    void ended(int result) {
        end_ = now();
        result_ = result;
    }
    int result() const { return result_; }

    void note(uint32_t communicator, uint64_t bytes, int peer = -1, int tag = -1, uint64_t request = 0) const;

  private:
    static int& depth() {
        thread_local int depth = 0;
        return depth;
    }

    const char* name_;
    uint64_t start_;
    uint64_t end_ = 0;
    int result_ = 0;
};

/// Communicators by their handles: numbers of this process, from 1.
namespace communicators {

/// 0 where it is not known.
uint32_t number(uint64_t handle);
uint32_t add(uint64_t handle, const char* name, const char* members, int place, int size);
void forget(uint64_t handle);

}  // namespace communicators

}  // namespace busfare::messages
