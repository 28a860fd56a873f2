#pragma once

namespace busfare::recorder {

/// Writes one line, `busfare record: TEXT`, to standard error. Async-signal-safe in effect: one `write`, no
/// stdio of the recorded program.
void say(const char* text);

/// `say`, printf-like; lines longer than 1 KiB are cut.
[[gnu::format(printf, 1, 2)]] void sayf(const char* format, ...);

}  // namespace busfare::recorder
