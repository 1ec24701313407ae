/// @file
/// The TCP backend: ranks are processes, on one host or many. Those of one host share memory; the others exchange messages
/// over TCP.
#pragma once

#include <utility>

#include <gradweave/backend/scheduled.hpp>
#include <gradweave/transport/asio.hpp>
#include <gradweave/transport/environment.hpp>
#include <gradweave/transport/mesh.hpp>
#include <gradweave/transport/rendezvous_options.hpp>
#include <gradweave/transport/shared_memory.hpp>

namespace gradweave::backend::tcp {

using backend_type = scheduled<shared_memory_transport<asio_transport>>;

static_assert(host_backend<backend_type>);

/// Where the job meets, and how long a rank waits in it.
struct options {
  rendezvous_options meet = {};
  scheduled_options wait = {};
  /// With the ranks of the same host, as far as that is possible.
  bool share_memory = true;
};

/// Meets the other ranks. Throws sync_error that names who is missing or what does not fit.
inline backend_type from_options(const options& given) {
  return {"tcp", shared_memory_transport(connect_mesh(given.meet), given.share_memory), given.wait};
}

/// What the environment says: see rendezvous_from and scheduled_options_from; and GRADWEAVE_SHARE_MEMORY, 0 or 1.
inline options options_from_environment(scheduled_options wait = {}) {
  const auto share = environment_variable("GRADWEAVE_SHARE_MEMORY");
  if (share && *share != "0" && *share != "1") {
    violate("the environment variable GRADWEAVE_SHARE_MEMORY is '" + *share + "'; it has to be 0 or 1");
  }
  return {rendezvous_from(environment_variable), scheduled_options_from(environment_variable, wait), share != "0"};
}

/// The job that the launcher's environment variables describe; without any, one rank. See options_from_environment: what
/// is set wins over `wait`. Throws contract_violation where variables are incomplete or malformed, and as from_options.
inline backend_type from_environment(scheduled_options wait = {}) {
  return from_options(options_from_environment(wait));
}

}  // namespace gradweave::backend::tcp
