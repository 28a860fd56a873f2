#pragma once

#include <functional>
#include <string>

#include "funnel/team.h"
#include "nas/json.h"
#include "nas/options.h"

namespace nas {

/// The options that every program here takes: how ranks share a device, and where the JSON goes.
std::vector<Options::Known> with_common_options(std::vector<Options::Known> own);

/// What `--mode`, `--device` and their like ask for; kernels filled in.
funnel::TeamOptions team_options(const Options& options);

/// The keys that every result starts with: schema, mode, device, ranks, ranks a node.
Json result_header(const std::string& schema, funnel::Team& team);

/// Writes to `--json FILE`, or to standard output for "-". For one rank.
void write_json(const Options& options, const Json& result);

/// MPI from start to end around `body`, which returns the exit status. Whatever a rank throws ends the whole
/// job with one line on standard error and status 2.
int run_program(int argc, char** argv, std::vector<Options::Known> own,
                const std::function<int(const Options&)>& body);

}  // namespace nas
