/// @file
/// What a synchronizer tells besides its results, and the environment variables that ask for it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <gradweave/assert.hpp>
#include <gradweave/description.hpp>

namespace gradweave {

enum class debug_level : std::uint8_t {
  off,
  info,    ///< rank 0 says at the start what was set up
  detail,  ///< and each rank records its collectives, and writes them to a file when it fails or gets SIGUSR1
};

/// The environment is this rank's own: ranks may differ.
struct diagnostics_options {
  debug_level debug = debug_level::off;
  std::string dump_prefix = "gradweave";  ///< rank r writes PREFIX.r.dump
  std::string trace_prefix = {};          ///< rank r writes PREFIX.r.json, a Chrome trace; empty: no trace

  friend bool operator==(const diagnostics_options&, const diagnostics_options&) = default;
};

/// What GRADWEAVE_DEBUG, GRADWEAVE_DEBUG_DUMP and GRADWEAVE_TRACE say; `look(name)` is a variable's value, if any. Throws
/// contract_violation for a level that there is not.
template <class Look>
diagnostics_options diagnostics_options_from(Look&& look) {
  diagnostics_options given;
  if (const std::optional<std::string> level = look("GRADWEAVE_DEBUG")) {
    constexpr std::array<std::string_view, 3> names = {"off", "info", "detail"};
    std::size_t known = 0;
    for (; known < names.size() && names[known] != *level; ++known) {
    }
    if (known == names.size()) {
      violate("the environment variable GRADWEAVE_DEBUG is '" + *level + "'; it has to be off, info or detail");
    }
    given.debug = static_cast<debug_level>(known);
  }
  given.dump_prefix = look("GRADWEAVE_DEBUG_DUMP").value_or(given.dump_prefix);
  given.trace_prefix = look("GRADWEAVE_TRACE").value_or("");
  return given;
}

/// The variables of docs/reference/environment.md that are set, with their values, but for a secret's.
template <class Look>
description honoured_variables(Look&& look) {
  constexpr std::array names = {"DISTRIBUTED_BUCKET_SIZE",
                                "RANK",
                                "WORLD_SIZE",
                                "MASTER_ADDR",
                                "MASTER_PORT",
                                "OMPI_COMM_WORLD_RANK",
                                "OMPI_COMM_WORLD_SIZE",
                                "SLURM_PROCID",
                                "SLURM_NTASKS",
                                "PMI_RANK",
                                "PMI_SIZE",
                                "TORCHELASTIC_RUN_ID",
                                "PMIX_NAMESPACE",
                                "SLURM_JOB_ID",
                                "GLOO_SOCKET_IFNAME",
                                "NCCL_SOCKET_IFNAME",
                                "GRADWEAVE_JOB",
                                "GRADWEAVE_SECRET",
                                "GRADWEAVE_SECRET_FILE",
                                "GRADWEAVE_SOCKET_IFNAME",
                                "GRADWEAVE_ALGORITHM",
                                "GRADWEAVE_PIECE_BYTES",
                                "GRADWEAVE_SHARE_MEMORY",
                                "GRADWEAVE_MEETING_FILE",
                                "GRADWEAVE_DEBUG",
                                "GRADWEAVE_DEBUG_DUMP",
                                "GRADWEAVE_TRACE"};
  description said;
  for (const char* name : names) {
    if (const std::optional<std::string> value = look(name)) {
      said.add(name, std::string_view(name) == "GRADWEAVE_SECRET" ? std::string("(set)") : *value);
    }
  }
  return said;
}

}  // namespace gradweave
