// The code about TLS that docs/reference/tcp.md quotes.
#include <gradweave/backend/tls.hpp>

#include <doctest/doctest.h>

#include "tests/support/environment.hpp"

namespace gw = gradweave;

TEST_CASE("docs: a place in a job whose connections are encrypted") {
  const gw::tests::scoped_variable secret("GRADWEAVE_SECRET", "any text");
  const gw::tests::scoped_variable rank("RANK", "0");
  const gw::tests::scoped_variable size("WORLD_SIZE", "1");
  // [environment]
  auto backend = gw::backend::tls::from_environment();  // GRADWEAVE_SECRET has to be set
  // [/environment]
  CHECK(backend.size() == 1);
}
