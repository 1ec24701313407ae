#include <gradweave/transport/rendezvous_options.hpp>

#include <doctest/doctest.h>

TEST_CASE("rendezvous_options: by default one rank, on this host") {
  const gradweave::rendezvous_options place;
  CHECK(place.size == 1);
  CHECK(place.address == "127.0.0.1");
}
