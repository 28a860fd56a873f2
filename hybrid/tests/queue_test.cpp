// Many producers, one consumer: nothing lost, nothing twice, each producer's values in order; full means
// full.
#include "funnel/queue.h"

#include <memory>
#include <thread>
#include <vector>

#include "tests/check.h"

namespace {

struct Value {
    int producer = -1;
    int number = -1;
};
struct Assign {
    void operator()(Value& to, const Value& from) const { to = from; }
};
using Queue = funnel::Queue<Value, 16, Assign>;

}  // namespace

int main() {
    auto queue = std::make_unique<Queue>();
    queue->clear();
    Value value;
    CHECK(!queue->pop(value));
    for (int i = 0; i < 16; ++i) CHECK(queue->push({0, i}));
    CHECK(!queue->push({0, 16}));
    for (int i = 0; i < 16; ++i) CHECK(queue->pop(value) && value.number == i);
    CHECK(!queue->pop(value));

    constexpr int producers = 4, pushes = 20000;
    std::vector<std::thread> threads;
    for (int producer = 0; producer < producers; ++producer)
        threads.emplace_back([&queue, producer] {
            for (int i = 0; i < pushes; ++i)
                while (!queue->push({producer, i})) std::this_thread::yield();
        });
    std::vector<int> next(producers, 0);
    bool in_order = true;
    for (int taken = 0; taken < producers * pushes;) {
        if (!queue->pop(value)) {
            std::this_thread::yield();
            continue;
        }
        in_order = in_order && value.number == next[value.producer]++;
        ++taken;
    }
    for (auto& thread : threads) thread.join();
    CHECK(in_order);
    CHECK(!queue->pop(value));
    return check::failures;
}
