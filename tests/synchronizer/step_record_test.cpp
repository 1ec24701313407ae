#include <gradweave/synchronizer/step_record.hpp>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("record_fault: ranks that ended different steps, plans or sets of gradients are told apart") {
  std::vector<step_record> records(3);
  CHECK_FALSE(record_fault(records));
  records[2].step = 4;
  REQUIRE(record_fault(records));
  CHECK(record_fault(records)->rank == 2);
  CHECK(record_fault(records)->detail.find("numbers: 0 on rank 0, 4 on rank 2") != std::string::npos);
  records[2] = {};
  records[1].plan_version = 1;
  CHECK(record_fault(records)->rank == 1);
  records[1] = {};
  records[1].used_digest = 9;
  CHECK(record_fault(records)->detail.find("used gradients") != std::string::npos);
}

TEST_CASE("record_exchange: asks for an all-gather of one record a rank, and sums what they saw") {
  record_exchange exchange(1, 3);
  step_record own;
  own.non_finite = 5;
  const collective_request request = exchange.request(own);
  CHECK(request.operation == collective::all_gather);
  CHECK(total_bytes(request.data) == 192);
  CHECK(request.pieces.size() == 4);
  CHECK(exchange.non_finite() == 5);
}
