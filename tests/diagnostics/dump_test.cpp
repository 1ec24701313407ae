#include <gradweave/diagnostics/dump.hpp>

#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {

/// A dump 10 s after a rank has entered collective `number`; it has left it after 1 s, or is still in it.
rank_dump dump_in(int rank, std::uint64_t number, bool left, collective operation = collective::all_reduce) {
  const event last{.begin_ns = 1'000'000'000,
                   .end_ns = left ? 2'000'000'000 : 0,
                   .step = 5,
                   .collective = number,
                   .elements = 100,
                   .bucket = 2,
                   .operation = operation,
                   .element = element_kind::float32};
  return {rank, 4, "SIGUSR1", 11'000'000'000, {{.begin_ns = 1, .end_ns = 2, .collective = 15}, last}};
}

}  // namespace

TEST_CASE("dump: is read as it was written, and not where a part is missing") {
  rank_dump dump = dump_in(3, 17, false);
  dump.reason = "rank 2 is gone:\na reason";
  std::stringstream file;
  write_dump(file, dump);
  const std::string text = file.str();
  dump.reason = "rank 2 is gone: a reason";
  CHECK(read_dump(file) == dump);
  for (std::size_t bytes = 0; bytes + 2 < text.size(); bytes += 7) {
    std::istringstream torn(text.substr(0, bytes));
    CHECK_THROWS_AS(read_dump(torn), std::runtime_error);
  }
}

TEST_CASE("who_was_where: those who wait, and for whom") {
  const std::vector<rank_dump> dumps = {dump_in(0, 17, false), dump_in(1, 17, false), dump_in(2, 16, true),
                                        dump_in(3, 17, false)};
  CHECK(who_was_where(dumps).find(
            "ranks 0, 1, 3 wait in all_reduce of 100 float32 elements (collective 17, step 5, bucket 2) for rank 2, "
            "which last left all_reduce of 100 float32 elements (collective 16, step 5, bucket 2), 9.0 s before its "
            "dump (for 10.0 s)\n") == 0);
  CHECK(who_was_where(std::vector{dumps[0], dumps[2]}).find("there is no dump of ranks 1, 3") != std::string::npos);
}

TEST_CASE("who_was_where: ranks in different collectives, all in one, and a rank that never came") {
  std::vector<rank_dump> dumps = {dump_in(0, 17, false),
                                  dump_in(1, 17, false, collective::broadcast),
                                  dump_in(2, 18, false),
                                  {3, 4, "none", 5, {}}};
  const std::string text = who_was_where(dumps);
  CHECK(
      text.find("rank 2 waits in all_reduce of 100 float32 elements (collective 18, step 5, bucket 2) for ranks 0, 1, "
                "3") == 0);
  CHECK(text.find("ranks entered different collectives") != std::string::npos);
  CHECK(text.find("rank 3 is in no collective and has entered no collective") != std::string::npos);
  dumps = {dump_in(0, 17, false), dump_in(1, 17, false)};
  CHECK(who_was_where(dumps).find("bucket 2) for ranks 2, 3, it seems (for 10.0 s)\n"
                                  "there is no dump of ranks 2, 3\n") != std::string::npos);
  dumps[0].size = dumps[1].size = 2;
  dumps[1].events.back().begin_ns = 9'900'000'000;
  CHECK(
      who_was_where(dumps).find("which every rank here has entered, as the last one rank 1, 1.1 s before its dump (for "
                                "10.0 s)") != std::string::npos);
  CHECK(who_was_where({}).empty());
}
