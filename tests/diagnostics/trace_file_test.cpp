#include <gradweave/diagnostics/trace_file.hpp>

#include <doctest/doctest.h>

#include "tests/support/json.hpp"
#include "tests/support/scratch_folder.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("trace_file: is a JSON array with times in microseconds on rank 0's clock; waits come in pairs, and arrows") {
  const scratch_folder folder;
  {
    trace_file file(folder.path("trace"), 2, 3);
    file.write({.begin_ns = 5'001'500, .end_ns = 5'003'000, .step = 4, .bucket = 1, .kind = event_kind::wait}, -1000);
    file.write({.begin_ns = 5'003'000,
                .end_ns = 5'004'000,
                .step = 4,
                .collective = 9,
                .elements = 8,
                .bucket = 1,
                .operation = collective::all_reduce},
               -1000);
    file.write({.begin_ns = 1, .end_ns = 2, .collective = 10, .operation = collective::broadcast}, 0);  // no arrows
    file.write({.begin_ns = 5, .end_ns = 9, .kind = event_kind::exposed}, -1000);  // before rank 0's clock began
  }
  const json trace = json_reader::read(folder.read("trace"));
  REQUIRE(trace.items.size() == 3 + 3 + 3 + 1 + 1);
  CHECK(trace.items[0]["args"]["name"].text == "rank 2");
  CHECK(trace.items[3]["name"].text == "ready");
  CHECK(trace.items[4]["ph"].text == "b");
  CHECK(trace.items[5]["ph"].text == "e");
  CHECK(trace.items[4]["id"].text == trace.items[5]["id"].text);
  CHECK(trace.items[4]["ts"].text == "5000.500");
  const json& transfer = trace.items[6];
  CHECK(transfer["name"].text == "transfer");
  CHECK(transfer["ph"].text == "X");
  CHECK(transfer["dur"].number == 1);
  CHECK(transfer["args"]["collective"].number == 9);
  CHECK(transfer["args"]["bucket"].number == 1);
  CHECK(trace.items[7]["ph"].text == "s");
  CHECK(trace.items[7]["id"].number == 9 * 3 + 2);
  CHECK(trace.items[8]["ph"].text == "f");
  CHECK(trace.items[8]["id"].number == 9 * 3 + 1);
  CHECK(trace.items[10]["tid"].number == 0);
  CHECK(trace.items[10]["ts"].number == 0);
}

TEST_CASE("trace_file: what can't be written is let go") {
  trace_file file("/nowhere/at/all", 0, 1);
  file.write({.begin_ns = 1, .end_ns = 2}, 0);
  file.write({.begin_ns = 1, .end_ns = 2}, 0);
}
