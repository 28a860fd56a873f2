#include "examples/kernels.h"

namespace examples {
namespace {

struct OnHost {
    template <class K>
    static void add(funnel::KernelTable& table) {
        table.add(K::number, [](void*, const void* arguments) {
            const auto& kernel = *static_cast<const K*>(arguments);
            for (std::int64_t item = 0; item < kernel.items(); ++item) kernel.run(item);
        });
    }
};

}  // namespace

void add_host_kernels(funnel::KernelTable& table) {
    add_kernels<OnHost>(table);
}

}  // namespace examples
