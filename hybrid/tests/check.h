#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include "funnel/error.h"

/// The tests' own few lines: count what failed, say where, and return that as the exit status.
namespace check {

inline int failures = 0;

inline void that(bool truth, const char* what, const char* file, int line) {
    if (truth) return;
    ++failures;
    std::fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
}

template <class Body>
void faults(funnel::Fault fault, Body body, const char* what, const char* file, int line) {
    try {
        body();
    } catch (const funnel::Error& error) {
        if (error.fault() == fault) return;
        ++failures;
        std::fprintf(stderr, "%s:%d: another fault: %s\n", file, line, error.what());
        return;
    }
    ++failures;
    std::fprintf(stderr, "%s:%d: no fault from: %s\n", file, line, what);
}

}  // namespace check

#define CHECK(truth) check::that((truth), #truth, __FILE__, __LINE__)
#define CHECK_FAULT(fault, statement) check::faults(fault, [&] { statement; }, #statement, __FILE__, __LINE__)
