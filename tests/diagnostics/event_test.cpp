#include <gradweave/diagnostics/event.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("event: a collective is named with its place") {
  event of{.step = 5,
           .collective = 17,
           .elements = 1000,
           .bucket = 2,
           .operation = collective::all_reduce,
           .element = element_kind::float32};
  CHECK(to_string(of) == "all_reduce of 1000 float32 elements (collective 17, step 5, bucket 2)");
  of.bucket = -1;
  of.elements = 0;
  CHECK(to_string(of) == "all_reduce (collective 17, step 5)");
  CHECK(to_string(event_kind::exposed) == "exposed");
}
