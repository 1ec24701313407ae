/// @file
/// The TCP backend with TLS 1.3 on every connection: nobody on the way reads or changes anything. It needs OpenSSL's
/// libssl besides, and a secret.
#pragma once

#include <gradweave/backend/scheduled.hpp>
#include <gradweave/backend/tcp.hpp>
#include <gradweave/transport/asio.hpp>
#include <gradweave/transport/environment.hpp>
#include <gradweave/transport/mesh.hpp>
#include <gradweave/transport/tls.hpp>

namespace gradweave::backend::tls {

using backend_type = scheduled<shared_memory_transport<basic_asio_transport<tls_stream>>>;

static_assert(host_backend<backend_type>);

using options = tcp::options;

/// As tcp::from_options. Throws contract_violation where there is no secret.
inline backend_type from_options(const options& given) {
  return {"tls", shared_memory_transport(connect_mesh<tls_stream>(given.meet), given.share_memory), given.wait};
}

/// As tcp::from_environment. Throws contract_violation where GRADWEAVE_SECRET is not set.
inline backend_type from_environment(scheduled_options wait = {}) {
  return tls::from_options(tcp::options_from_environment(wait));
}

}  // namespace gradweave::backend::tls
