#include <gradweave/synchronizer/start_report.hpp>

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

namespace {

/// What the report asks of an engine.
struct engine_like {
  gradient_table table;

  int size() const { return 2; }
  description describe() const { return one("backend.name", "tcp"); }
  description describe_here() const { return one("talks from", "10.0.0.1"); }
  description describe_peers() const { return one("to rank 1", "10.0.0.1:4 to 10.0.0.2:5"); }
  bucket_plan plan() const { return {{{{1}}, {{0}, {2}}, {{2}, {2}}}}; }
  const gradient_table& gradients() const { return table; }

  static description one(const char* key, const char* value) {
    description said;
    said.add(key, value);
    return said;
  }
};

}  // namespace

TEST_CASE("write_start_report: says what was chosen, how ranks are reached, the plan, and the variables") {
  std::vector<float> a(256), b(3), c(3 * 4096);
  manifest registered;
  registered.add("a", a);
  registered.add("b", b);
  registered.add("c", c);
  const std::string text =
      write_start_report(engine_like{gradient_table(std::move(registered))}, engine_like::one("RANK", "0"));
  CHECK(text.find("rank 0 of 2") != std::string::npos);
  CHECK(text.find("  backend.name = tcp\n  talks from = 10.0.0.1\n  to rank 1 = 10.0.0.1:4 to 10.0.0.2:5\n"
                  "  plan: 3 gradients in 3 buckets\n    bucket 0: 12 B float32, 'b'\n"
                  "    bucket 1: 17 KiB float32, 'a' to 'c', in slices\n"
                  "    bucket 2: 32 KiB float32, 'c', in slices\n  the environment's RANK = 0\n") != std::string::npos);
}
