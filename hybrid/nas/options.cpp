#include "nas/options.h"

#include <charconv>
#include <stdexcept>

namespace nas {

Options::Options(int argc, char** argv, std::vector<Known> known) : known_(std::move(known)) {
    for (const Known& option : known_) values_[option.name] = option.initial;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--help") {
            help_ = true;
            continue;
        }
        const std::string name = argument.starts_with("--") ? argument.substr(2) : "";
        const auto found = values_.find(name);
        if (found == values_.end())
            throw std::invalid_argument("unknown argument '" + argument + "'\n" + usage());
        if (found->second == "no") {
            found->second = "yes";
        } else if (i + 1 < argc) {
            found->second = argv[++i];
        } else {
            throw std::invalid_argument("'" + argument + "' wants a value");
        }
    }
}

long long Options::integer(const std::string& name) const {
    const std::string& value = values_.at(name);
    long long number = 0;
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (problem != std::errc() || end != value.data() + value.size())
        throw std::invalid_argument("--" + name + " wants a whole number, not '" + value + "'");
    return number;
}

std::string Options::usage() const {
    std::string text;
    for (const Known& option : known_)
        text += "  --" + option.name + (option.initial == "no" ? "" : " " + option.initial) + "   " +
                option.meaning + "\n";
    return text;
}

}  // namespace nas
