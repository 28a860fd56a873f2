#include "stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>
#include <unwind.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <string>

namespace busfare::recorder {
namespace {

struct Walk {
    std::array<uint64_t, Stacks::kFrames> addresses;
    size_t count = 0;
    uint64_t hash = 0;
};

/// What a thread looked up last, by hash: most calls come from few places.
struct Lately {
    uint64_t hash;
    uint32_t number;
};
thread_local std::array<Lately, 256> t_lately{};

_Unwind_Reason_Code step(_Unwind_Context* frame, void* into) {
    auto& walk = *static_cast<Walk*>(into);
    int before = 0;
    const uint64_t address = _Unwind_GetIPInfo(frame, &before);
    if (address == 0 || walk.count == walk.addresses.size()) return _URC_NORMAL_STOP;
    // A return address is behind its call, perhaps on the next line.
    walk.addresses[walk.count++] = before ? address : address - 1;
    walk.hash = (walk.hash ^ address) * 0x9E3779B97F4A7C15u;
    walk.hash ^= walk.hash >> 29;
    return _URC_NO_REASON;
}

std::string readable(const char* symbol) {
    int status = 0;
    char* const demangled = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    std::string text = demangled ? demangled : symbol;
    std::free(demangled);
    return text;
}

/// The program's file. Never destroyed: stacks are also written at exit.
const std::string& program() {
    static const auto& path = *new std::string([] {
        char text[PATH_MAX];
        const ssize_t length = ::readlink("/proc/self/exe", text, sizeof text);
        return std::string(text, length > 0 ? static_cast<size_t>(length) : 0);
    }());
    return path;
}

}  // namespace

uint32_t Stacks::take() {
    Walk walk;
    _Unwind_Backtrace(step, &walk);
    Lately& lately = t_lately[walk.hash % t_lately.size()];
    if (lately.number != 0 && lately.hash == walk.hash) return lately.number;
    const std::lock_guard lock(mutex_);
    auto entry = numbers_.find(walk.hash);
    if (entry == numbers_.end()) {
        if (numbers_.size() == kMost) {
            ++refused_;
            return 0;
        }
        const auto number = static_cast<uint32_t>(numbers_.size() + 1);
        const auto* const first = walk.addresses.data();
        unwritten_.emplace_back(number, std::vector<uint64_t>(first, first + walk.count));
        entry = numbers_.emplace(walk.hash, number).first;
    }
    lately = {walk.hash, entry->second};
    return entry->second;
}

uint64_t Stacks::write(Journal& journal) {
    decltype(unwritten_) taken;
    uint64_t refused = 0;
    {
        const std::lock_guard lock(mutex_);
        taken.swap(unwritten_);
        std::swap(refused, refused_);
    }
    for (const auto& [number, addresses] : taken) {
        for (size_t depth = 0; depth < addresses.size(); ++depth) {
            Dl_info info{};
            link_map* module = nullptr;
            const auto address = addresses[depth];
            const bool resolved = dladdr1(reinterpret_cast<void*>(address), &info,
                                          reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP);
            const uint64_t base = resolved && module ? module->l_addr : 0;
            const uint64_t symbol = resolved && info.dli_sname ? journal.string(readable(info.dli_sname)) : 0;
            const bool in_program = resolved && module && !*module->l_name;
            const uint64_t name = in_program                   ? journal.string(program())
                                  : resolved && info.dli_fname ? journal.string(info.dli_fname)
                                                               : 0;
            journal.append(TableId::kStacks, {number, depth, name, address - base, symbol});
        }
    }
    return refused;
}

}  // namespace busfare::recorder
