#include <gradweave/synchronizer/agreement.hpp>

#include <string>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("serialize: any character may occur in keys and values") {
  description said;
  said.add("a\nb", std::string("c\0d", 3));
  said.add("", "");
  CHECK(deserialize(serialize(said)) == said.entries());
}

TEST_CASE("digest_of: the published vectors of FNV-1a") {
  CHECK(digest_of("") == 0xcbf29ce484222325U);
  CHECK(digest_of("a") == 0xaf63dc4c8601ec8cU);
  CHECK(digest_of("foobar") == 0x85944171f73967e8U);
}

TEST_CASE("broadcast_string: empty and long texts arrive on every rank") {
  backend::run_loopback(3, [](backend::loopback backend) {
    std::string longer(2'100'000, 'x');
    longer.back() = longer[1 << 20] = 'y';
    CHECK(broadcast_string(backend, 1, backend.rank() == 1 ? longer : "mine") == longer);
    CHECK(broadcast_string(backend, 2, backend.rank() == 2 ? "" : "mine").empty());
  });
}

TEST_CASE("agree: says nothing where all ranks say the same") {
  backend::run_loopback(4, [](backend::loopback backend) {
    description said;
    said.add("key", 7);
    CHECK_NOTHROW(agree(backend, said));
  });
}

TEST_CASE("first_difference: names a key that only one of the two has") {
  description theirs, own;
  theirs.add("x", 1);
  own.add("x", 1);
  own.add("y", 2);
  CHECK(first_difference(theirs.entries(), own, 3)
            .detail.starts_with("ranks disagree on y: rank 0 has nothing, rank 3 has 2"));
  CHECK(first_difference(own.entries(), theirs, 3)
            .detail.starts_with("ranks disagree on y: rank 0 has 2, rank 3 has nothing"));
}

TEST_CASE("first_difference: tells that there is none where only digests differ") {
  description said;
  said.add("x", 1);
  CHECK(first_difference(said.entries(), said, 3).detail.find("nothing of it differs") != std::string::npos);
}

TEST_CASE("deserialize: what is cut short ends the list") {
  description said;
  said.add("x", 1);
  said.add("y", 2);
  const std::string text = serialize(said);
  for (std::size_t length = 0; length < text.size(); ++length) {
    CHECK(deserialize(text.substr(0, length)).size() == (length < text.size() / 2 ? 0 : 1));
  }
}
