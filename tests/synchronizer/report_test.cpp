#include <gradweave/synchronizer/report.hpp>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;
using namespace std::chrono_literals;

TEST_CASE("bytes_in_words: picks the unit that leaves a small number") {
  CHECK(bytes_in_words(0) == "0 B");
  CHECK(bytes_in_words(1023) == "1023 B");
  CHECK(bytes_in_words(1536) == "1.5 KiB");
  CHECK(bytes_in_words(std::uint64_t{25} << 20) == "25 MiB");
  CHECK(bytes_in_words(std::uint64_t{3} << 30) == "3 GiB");
}

TEST_CASE("write_report: says nothing of steps before the first, and per step afterwards") {
  report_input input;
  input.slots = 3;
  CHECK(write_report(input).find("a step") == std::string::npos);
  input.statistics.steps = 4;
  input.statistics.step_time = 40ms;
  input.statistics.exposed_time = 10ms;
  input.statistics.bytes_raw = 8192;
  const std::string text = write_report(input);
  CHECK(text.find("a step: 10 ms") != std::string::npos);
  CHECK(text.find("exposed 2.5 ms (25 %)") != std::string::npos);
  CHECK(text.find("2 KiB of gradients") != std::string::npos);
}
