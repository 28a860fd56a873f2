// Scans every file named on the command line, whole and in pieces of several sizes, and ends with status 1 if
// any way of cutting it gives other columns. Built with the address and undefined-behaviour sanitizers.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "event_scanner.hpp"

namespace {

using busfare::EventScanner;

EventScanner scan(const std::string& text, std::size_t piece) {
    EventScanner scanner(true);
    for (std::size_t at = 0; at < text.size(); at += piece) {
        // A copy of its exact size, so that reading past its end is seen.
        const std::vector<char> part(
            text.begin() + static_cast<std::ptrdiff_t>(at),
            text.begin() + static_cast<std::ptrdiff_t>(std::min(at + piece, text.size())));
        scanner.feed(part.data(), part.size());
    }
    scanner.finish();
    return scanner;
}

bool same(const EventScanner& a, const EventScanner& b) {
    const auto& x = a.columns();
    const auto& y = b.columns();
    return x.category == y.category && x.start_ns == y.start_ns && x.duration_ns == y.duration_ns &&
           x.process == y.process && x.thread == y.thread && x.bytes == y.bytes && x.device == y.device &&
           x.context == y.context && x.stream == y.stream && x.correlation == y.correlation &&
           x.graph_node == y.graph_node && x.waited_stream == y.waited_stream &&
           x.waited_event == y.waited_event && x.waited_correlation == y.waited_correlation &&
           x.name == y.name && x.sync_kind == y.sync_kind && x.grid == y.grid && x.block == y.block &&
           x.registers == y.registers && x.shared_bytes == y.shared_bytes && x.external == y.external &&
           a.operators().signature == b.operators().signature &&
           a.operators().start_ns == b.operators().start_ns && a.signatures() == b.signatures() &&
           a.functions().name == b.functions().name && a.functions().start_ns == b.functions().start_ns &&
           a.function_names() == b.function_names() && a.names() == b.names() && a.header() == b.header() &&
           a.error() == b.error() && a.truncated() == b.truncated() && a.saw_events() == b.saw_events() &&
           a.events() == b.events() && a.unusable() == b.unusable() &&
           (a.error().empty() || a.error_position() == b.error_position());
}

}  // namespace

int main(int argc, char** argv) {
    int unlike = 0;
    for (int i = 1; i < argc; ++i) {
        std::ifstream file(argv[i], std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
        const EventScanner whole = scan(text, text.size() + 1);
        for (const std::size_t piece : {1, 7, 16, 61, 997}) {
            if (text.size() / piece > 4000)
                continue;  // an event rescanned at every byte of a long file takes long
            if (!same(whole, scan(text, piece))) {
                std::printf("%s: other columns in pieces of %zu\n", argv[i], piece);
                ++unlike;
            }
        }
    }
    return unlike == 0 ? 0 : 1;
}
