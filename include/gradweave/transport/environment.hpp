/// @file
/// A process's place in a job, from the variables that launchers set: torchrun, mpirun of Open MPI and of MPICH, Slurm.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <gradweave/assert.hpp>
#include <gradweave/environment_variable.hpp>
#include <gradweave/transport/rendezvous_options.hpp>

namespace gradweave {

namespace detail {

/// The first host of a Slurm node list: "node[07-12,20],other" is node07.
inline std::string first_host(std::string_view nodes) {
  const std::size_t bracket = nodes.find('[');
  const std::size_t comma = nodes.find(',');
  if (bracket == std::string_view::npos || comma < bracket) {
    return std::string(nodes.substr(0, comma));
  }
  const std::string_view inside = nodes.substr(bracket + 1, nodes.find(']') - bracket - 1);
  return std::string(nodes.substr(0, bracket)) + std::string(inside.substr(0, inside.find_first_of(",-")));
}

/// NCCL's way to name interfaces (prefixes; `=` in front for whole names; `^` for all but these) in ours.
inline std::string interfaces_as_nccl(std::string_view given) {
  std::string ours;
  if (given.starts_with('^')) {
    ours = "^";
    given.remove_prefix(1);
  }
  const bool whole = given.starts_with('=');
  given.remove_prefix(whole ? 1 : 0);
  for (const char each : given) {
    ours += each == ',' && !whole ? std::string("*,") : std::string(1, each);
  }
  return ours + (whole || given.empty() ? "" : "*");
}

/// What a file holds, without white space around it.
inline std::string secret_in_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string secret{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto is_space = [](char each) { return each == ' ' || each == '\t' || each == '\r' || each == '\n'; };
  while (!secret.empty() && is_space(secret.back())) {
    secret.pop_back();
  }
  secret.erase(secret.begin(), std::find_if_not(secret.begin(), secret.end(), is_space));
  if (secret.empty()) {
    violate("the environment variable GRADWEAVE_SECRET_FILE names '" + file + "', which " +
            (in ? "is empty" : "can't be read"));
  }
  return secret;
}

}  // namespace detail

/// The place that the environment gives, asked by `look(name)`. No launcher's variable at all is one rank. Rank and size
/// come from RANK and WORLD_SIZE (torchrun), OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (mpirun of Open MPI), SLURM_PROCID
/// and SLURM_NTASKS, or PMI_RANK and PMI_SIZE (mpirun of MPICH and its kin); the first pair of which one is set has to be
/// whole. The meeting place is MASTER_ADDR and MASTER_PORT; where all ranks are on one host it may be left to the default, and
/// under Slurm it is the first node. GRADWEAVE_JOB names the job, else TORCHELASTIC_RUN_ID, PMIX_NAMESPACE (mpirun) or
/// SLURM_JOB_ID. In place of address and port, GRADWEAVE_MEETING_FILE names a
/// file on a shared file system. GRADWEAVE_SECRET, or the file that GRADWEAVE_SECRET_FILE names, is the secret;
/// GRADWEAVE_SOCKET_IFNAME, else GLOO_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME the interfaces. Throws contract_violation
/// that names the variable which is missing or malformed.
template <class Look>
rendezvous_options rendezvous_from(Look&& look) {
  using detail::number_in;
  struct launcher {
    const char* rank;
    const char* size;
    const char* local_size;  // ranks on this host
  };
  constexpr std::array launchers{launcher{"RANK", "WORLD_SIZE", nullptr},
                                 launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                 launcher{"SLURM_PROCID", "SLURM_NTASKS", nullptr},
                                 launcher{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"}};
  const launcher& of_slurm = launchers[2];
  rendezvous_options place;
  const auto found = std::find_if(launchers.begin(), launchers.end(), [&](const launcher& each) {
    // A shell inside an allocation of Slurm's has the number of tasks, but is none of them.
    return look(each.rank) || (look(each.size) && each.size != of_slurm.size);
  });
  if (found == launchers.end()) {
    return place;
  }
  constexpr long ranks_max = 1 << 20;
  const std::array both = {std::pair(found->rank, found->size), std::pair(found->size, found->rank)};
  for (const auto& [name, other] : both) {
    if (!look(name)) {
      violate(std::string("the environment variable ") + other + " is set and " + name +
              " is not; a launcher sets both");
    }
  }
  place.size = static_cast<int>(number_in(found->size, *look(found->size), 1, ranks_max));
  place.rank = static_cast<int>(number_in(found->rank, *look(found->rank), 0, place.size - 1));
  if (const auto port = look("MASTER_PORT")) {
    place.port = static_cast<std::uint16_t>(number_in("MASTER_PORT", *port, 1, 65535));
  }
  if (const auto file = look("GRADWEAVE_MEETING_FILE")) {
    place.file = *file;
  }
  const bool torchrun = found == launchers.begin();
  const bool slurm = found->rank == of_slurm.rank;
  const auto local_size = found->local_size == nullptr ? std::nullopt : look(found->local_size);
  const bool one_host = place.size == 1 || (local_size && *local_size == std::to_string(place.size));
  if (const auto address = look("MASTER_ADDR")) {
    place.address = *address;
  } else if (const auto nodes = look("SLURM_NODELIST"); slurm && nodes) {
    place.address = detail::first_host(*nodes);
  } else if (!one_host && place.file.empty()) {
    violate(
        "the environment variable MASTER_ADDR is not set; it has to be the address of rank 0's host (or "
        "GRADWEAVE_MEETING_FILE a file on a file system that all ranks share)");
  }
  if (torchrun && place.size > 1 && place.file.empty() && !look("MASTER_PORT")) {
    violate("the environment variable MASTER_PORT is not set; it has to be a port at which rank 0 can listen");
  }
  for (const char* name : {"GRADWEAVE_JOB", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID"}) {
    if (const auto job = look(name)) {
      place.job = *job;
      break;
    }
  }
  if (torchrun && look("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    // torchrun itself listens at MASTER_PORT. Two of its jobs on one host, or one that it starts again, must not meet.
    place.job +=
        " of port " + std::to_string(place.port) + ", start " + look("TORCHELASTIC_RESTART_COUNT").value_or("0");
    place.ports = 16;
    place.port = static_cast<std::uint16_t>(std::min<int>(place.port + 1, 65536 - place.ports));
  } else if (found->local_size != nullptr && one_host && !look("MASTER_PORT")) {
    place.ports = 16;  // mpirun gives no port; several of its jobs may be on one host
  }
  if (const auto secret = look("GRADWEAVE_SECRET")) {
    place.secret = *secret;
    require(!place.secret.empty(), "the environment variable GRADWEAVE_SECRET is set and empty");
  } else if (const auto file = look("GRADWEAVE_SECRET_FILE")) {
    place.secret = detail::secret_in_file(*file);
  }
  if (const auto ours = look("GRADWEAVE_SOCKET_IFNAME")) {
    place.interfaces = *ours;
  } else if (const auto gloo = look("GLOO_SOCKET_IFNAME")) {
    place.interfaces = *gloo;
  } else if (const auto nccl = look("NCCL_SOCKET_IFNAME")) {
    place.interfaces = detail::interfaces_as_nccl(*nccl);
  }
  return place;
}

}  // namespace gradweave
