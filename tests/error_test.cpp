#include <gradweave/error.hpp>

#include <ostream>
#include <system_error>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("sync_error: tells rank, step, bucket and slots in one sentence, and keeps them apart") {
  const sync_error error({errc::gradient_missing, 1, 7, 0, {"w", "b"}, "not ready"});
  CHECK(std::string(error.what()).find("rank 1, step 7, bucket 0 (slots 'w', 'b'): not ready") != std::string::npos);
  CHECK(error.rank() == 1);
  CHECK(error.step() == 7);
  CHECK(error.bucket() == 0);
  CHECK(error.slots().size() == 2);
}

TEST_CASE("sync_error: is a system_error that compares with errc") {
  try {
    throw sync_error({errc::peer_lost, 2, -1, -1, {}, "gone"});
  } catch (const std::system_error& error) {
    CHECK(error.code() == errc::peer_lost);
    CHECK(error.code() != errc::timed_out);
    CHECK(std::string(error.code().category().name()) == "gradweave");
  }
}

TEST_CASE("failure: what does not apply is left out, and long lists of slots are counted") {
  CHECK(to_string(failure{errc::timed_out, -1, -1, -1, {}, "nobody came"}) == "nobody came");
  CHECK(to_string(failure{errc::aborted, -1, -1, -1, {"a"}, "x"}) == "(slots 'a'): x");
  CHECK(to_string(failure{errc::aborted, 0, -1, -1, {"a", "b", "c", "d", "e", "f"}, "x"}) ==
        "rank 0 (slots 'a', 'b', 'c', 'd' and 2 more): x");
}

TEST_CASE("errc: every value has words") {
  for (int code = 1; code <= static_cast<int>(errc::internal); ++code) {
    CHECK(make_error_code(static_cast<errc>(code)).message() != "unknown failure");
  }
  CHECK(sync_category().message(0) == "unknown failure");
}
