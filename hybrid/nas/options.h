#pragma once

#include <map>
#include <string>
#include <vector>

namespace nas {

/// `--name value` pairs and bare `--flag`s. Every known name carries its meaning, and an unknown one is an
/// error that lists them all.
class Options {
  public:
    struct Known {
        std::string name, initial, meaning;
    };

    /// Throws std::invalid_argument with a text for the user.
    Options(int argc, char** argv, std::vector<Known> known);

    const std::string& text(const std::string& name) const { return values_.at(name); }
    long long integer(const std::string& name) const;  ///< throws for what is not a whole number
    bool flag(const std::string& name) const { return values_.at(name) == "yes"; }
    bool help() const { return help_; }
    std::string usage() const;

  private:
    std::vector<Known> known_;
    std::map<std::string, std::string> values_;
    bool help_ = false;
};

}  // namespace nas
