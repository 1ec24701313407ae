/// @file
/// The TCP backend: ranks are processes, on one host or many.
#pragma once

#include <utility>

#include <gradweave/backend/scheduled.hpp>
#include <gradweave/transport/asio.hpp>
#include <gradweave/transport/environment.hpp>
#include <gradweave/transport/mesh.hpp>
#include <gradweave/transport/rendezvous_options.hpp>

namespace gradweave::backend::tcp {

using backend_type = scheduled<asio_transport>;

static_assert(host_backend<backend_type>);

/// Where the job meets, and how long a rank waits in it.
struct options {
  rendezvous_options meet = {};
  scheduled_options wait = {};
};

/// Meets the other ranks. Throws sync_error that names who is missing or what does not fit.
inline backend_type from_options(const options& given) { return {"tcp", connect_mesh(given.meet), given.wait}; }

/// The job that the launcher's environment variables describe; without any, one rank. See rendezvous_from; GRADWEAVE_ALGORITHM wins over `wait`. Throws
/// contract_violation where they are incomplete or malformed, and as from_options.
inline backend_type from_environment(scheduled_options wait = {}) {
  return from_options({rendezvous_from(environment_variable), scheduled_options_from(environment_variable, wait)});
}

}  // namespace gradweave::backend::tcp
