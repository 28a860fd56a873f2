// The pool when its writer is slow, and when it hangs.

#include "buffer_pool.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

using namespace busfare::recorder;

namespace {

constexpr size_t kBytes = 4096;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "buffer_pool_test: %s\n", what);
    std::exit(1);
}

double seconds_of(auto&& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void buffers_go_round_zeroed_and_in_order() {
    BufferPool pool(kBytes, 2);
    uint8_t* first = pool.request();
    uint8_t* second = pool.request();
    require(first && second && first != second, "two buffers within the limit");
    first[0] = 1;
    pool.complete(first, 1);
    pool.complete(second, 0);
    require(pool.take()->data == first && pool.take()->data == second && !pool.take(), "oldest first");
    pool.give_back(first, 1);
    require(pool.request() == first && first[0] == 0, "the same buffer, zeroed");
}

void a_hanging_writer_delays_the_program_once() {
    BufferPool pool(kBytes, 1);
    uint8_t* only = pool.request();
    require(seconds_of([&] { require(!pool.request(), "none is left"); }) > 0.1, "the first waits");
    require(seconds_of([&] {
                for (int attempt = 0; attempt < 1000; ++attempt) require(!pool.request(), "still none");
            }) < 0.1,
            "the others do not");
    require(pool.refused() == 1001 && pool.refused() == 0, "refusals are counted once");
    pool.give_back(only, kBytes);
    require(pool.request() == only, "and it is over when the writer moves");
}

void a_slow_writer_is_waited_for() {
    BufferPool pool(kBytes, 1);
    uint8_t* only = pool.request();
    std::thread writer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        pool.give_back(only, kBytes);
    });
    require(pool.request() == only, "the buffer comes back in time");
    writer.join();
}

}  // namespace

int main() {
    buffers_go_round_zeroed_and_in_order();
    a_hanging_writer_delays_the_program_once();
    a_slow_writer_is_waited_for();
    return 0;
}
