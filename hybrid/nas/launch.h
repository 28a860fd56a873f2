#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "funnel/team.h"

namespace nas {

/// Keys in the order in which they are set.
using Json = nlohmann::ordered_json;

/// What every program here takes: how ranks share a device, and where the JSON goes.
struct CommonOptions {
    std::string mode = "auto", device = "cuda", json = "-";
    int standin_gpus = 1, ranks_per_node = 0;

    /// What they ask for; kernels filled in.
    funnel::TeamOptions team() const;

    /// Writes to `--json FILE`, or to standard output for "-". For one rank.
    void write(const Json& result) const;
};

/// The keys that every result starts with: schema, mode, device, ranks, ranks a node, GPUs.
Json result_header(const std::string& schema, funnel::Team& team);

/// MPI from start to end around `body`, which returns the exit status; `declare` adds the program's own
/// options. Whatever a rank throws ends the whole job with one line on standard error and status 2.
int run_program(int argc, char** argv, const std::function<void(CLI::App&)>& declare,
                const std::function<int(const CommonOptions&)>& body);

}  // namespace nas
