// The code that docs/reference/tcp.md quotes.
#include <gradweave/backend/tcp.hpp>

#include <chrono>

#include <doctest/doctest.h>

namespace gw = gradweave;

TEST_CASE("docs: a place in a job from the environment") {
  // [environment]
  auto backend = gw::backend::tcp::from_environment();  // no launcher's variables at all: one rank
  // [/environment]
  CHECK(backend.size() == 1);
}

TEST_CASE("docs: a place in a job by options") {
  // [options]
  auto backend = gw::backend::tcp::from_options({
      .meet = {.rank = 0, .size = 1, .address = "127.0.0.1", .port = 29500, .job = "fit a line"},
      .wait = {.timeout = std::chrono::minutes(2)},
  });
  // [/options]
  CHECK(backend.rank() == 0);
}
