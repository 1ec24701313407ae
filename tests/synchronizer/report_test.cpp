#include <gradweave/synchronizer/report.hpp>

#include <string>
#include <vector>

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
  CHECK(text.find("the last in") == std::string::npos);
}

TEST_CASE("slowest_in_words: says whom the others waited for, and whether that is its computing or its network") {
  sync_statistics done;
  done.steps = 1000;
  done.step_time = 10s;
  std::vector<rank_statistics> ranks(4, {.backward_time = 5s});
  CHECK(slowest_in_words(done, ranks).empty());
  ranks[3] = {.late_in_compute = 812, .late_in_network = 3, .behind = 1630ms, .backward_time = 7s};
  CHECK(
      slowest_in_words(done, ranks) ==
      "  rank 3 was the last in 815 of 1000 steps, 2 ms behind the median rank: its backward pass takes 1.4 times the "
      "median, so it computes slowly\n");
  ranks[3].backward_time = 5s;
  CHECK(slowest_in_words(done, ranks).find("it begins its backward pass late") != std::string::npos);
  ranks[3].late_in_network = 900;
  CHECK(slowest_in_words(done, ranks).find("a link to it is slow") != std::string::npos);
  ranks[3].late_in_compute = 700;
  ranks[3].late_in_network = 0;
  CHECK_FALSE(slowest_in_words(done, ranks).empty());
  ranks[3].late_in_compute = 600;  // may be chance
  CHECK(slowest_in_words(done, ranks).empty());
  ranks[3].late_in_compute = 900;
  ranks[3].behind = 90ms;  // not worth a word
  CHECK(slowest_in_words(done, ranks).empty());
  CHECK(slowest_in_words(done, {}).empty());
}
