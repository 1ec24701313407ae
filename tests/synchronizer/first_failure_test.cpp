#include <gradweave/synchronizer/first_failure.hpp>

#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("first_failure: keeps the first, tells it to the others, and lets nothing out where it shall not") {
  auto ranks = backend::make_loopback(2);
  first_failure here(ranks[0]);
  const auto in_step = [](failure cause) {
    cause.step = 7;
    return cause;
  };
  CHECK_NOTHROW(here.throw_if_come());
  CHECK_NOTHROW(here.contain([] {}, in_step));
  CHECK_FALSE(here.has_come());
  here.contain([] { throw std::runtime_error("out of paper"); }, in_step);
  CHECK(here.has_come());
  CHECK_THROWS_WITH_AS(here.throw_if_come(), doctest::Contains("rank 0, step 7: out of paper: internal"), sync_error);
  CHECK_THROWS_WITH_AS(here.share([] { throw sync_error({errc::peer_lost, 1, -1, -1, {}, "too late"}); }, in_step),
                       doctest::Contains("out of paper"), sync_error);
  CHECK_THROWS_WITH_AS(here.share([] { throw std::runtime_error("its own"); }, in_step), "its own", std::runtime_error);

  first_failure there(ranks[1]);
  there.keep(there.tell({errc::aborted, 1, -1, -1, {}, "later"}));
  CHECK_THROWS_WITH_AS(there.throw_if_come(), doctest::Contains("out of paper"), sync_error);
}
