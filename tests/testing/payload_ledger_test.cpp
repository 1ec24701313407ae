#include <gradweave/testing/payload_ledger.hpp>

#include <doctest/doctest.h>

using namespace gradweave;
using testing::detail::payload_ledger;

namespace {

bool accepts(collective operation, std::uint64_t bytes) {
  payload_ledger ledger(2);
  ledger.add(operation, bytes);
  testing::conformance_recorder recorder;
  ledger.check(recorder, 0.1);
  return recorder.report().passed();
}

}  // namespace

TEST_CASE("payload_ledger: an all-reduce sends 2 (N-1) times the buffer, or a little more, and no less") {
  constexpr std::uint64_t least = 2 * 2 * payload_ledger::elements_a_rank * sizeof(float);
  CHECK(accepts(collective::all_reduce, least));
  CHECK(accepts(collective::all_reduce, least + least / 11));
  CHECK_FALSE(accepts(collective::all_reduce, least - 1));
  CHECK_FALSE(accepts(collective::all_reduce, least + least / 9));
  CHECK(accepts(collective::broadcast, least / 2));
}
