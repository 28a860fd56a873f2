#pragma once

#include <cmath>
#include <concepts>
#include <cstdio>
#include <string>
#include <vector>

namespace nas {

/// Builds one JSON object, keys in the order given. Numbers that JSON cannot hold become null.
class Json {
  public:
    Json& set(const std::string& key, const std::string& text) { return put(key, quoted(text)); }
    Json& set(const std::string& key, const char* text) { return put(key, quoted(text)); }
    Json& set(const std::string& key, bool truth) { return put(key, truth ? "true" : "false"); }
    Json& set(const std::string& key, double number) { return put(key, written(number)); }
    template <std::integral Number>
    Json& set(const std::string& key, Number number) {
        return put(key, std::to_string(number));
    }
    Json& set(const std::string& key, const Json& object) { return put(key, object.text()); }
    Json& set(const std::string& key, const std::vector<double>& numbers) {
        std::string list;
        for (double number : numbers) list += (list.empty() ? "" : ", ") + written(number);
        return put(key, "[" + list + "]");
    }
    Json& set(const std::string& key, const std::vector<Json>& objects) {
        std::string list;
        for (const Json& object : objects) list += (list.empty() ? "" : ",\n  ") + object.text();
        return put(key, "[" + list + "]");
    }
    std::string text() const { return "{" + body_ + "}"; }

  private:
    Json& put(const std::string& key, const std::string& value) {
        body_ += (body_.empty() ? "" : ", ") + quoted(key) + ": " + value;
        return *this;
    }
    static std::string written(double number) {
        if (!std::isfinite(number)) return "null";
        char text[32];
        std::snprintf(text, sizeof text, "%.15g", number);
        return text;
    }
    static std::string quoted(const std::string& text) {
        std::string out = "\"";
        for (const char c : text) {
            if (c == '"' || c == '\\') out += '\\';
            if (static_cast<unsigned char>(c) < 0x20)
                out += ' ';
            else
                out += c;
        }
        return out + "\"";
    }

    std::string body_;
};

}  // namespace nas
