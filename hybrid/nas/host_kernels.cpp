#include "nas/ft_host.h"
#include "nas/mg_host.h"

namespace nas {

void add_host_kernels(funnel::KernelTable& table) {
    add_ft_host_kernels(table);
    add_mg_host_kernels(table);
}

}  // namespace nas
