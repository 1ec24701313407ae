#include <gradweave/gradweave.hpp>

#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/environment.hpp"

using namespace gradweave;

TEST_CASE("synchronize: a malformed environment variable is told to every rank") {
  const testing::watchdog guard("malformed variable");
  std::mutex telling;
  std::vector<std::string> told;
  const tests::scoped_variable variable("DISTRIBUTED_BUCKET_SIZE", "12x");
  backend::run_loopback(2, [&](backend::loopback backend) {
    std::vector<float> gradient(3);
    manifest gradients;
    gradients.add("g", gradient);
    try {
      auto sync = synchronize(std::move(gradients), std::move(backend));
    } catch (const std::exception& error) {
      const std::lock_guard lock(telling);
      told.push_back(error.what());
    }
  });
  REQUIRE(told.size() == 2);
  for (const std::string& text : told) {
    CHECK(text.find("DISTRIBUTED_BUCKET_SIZE is '12x'") != std::string::npos);
  }
}

TEST_CASE("synchronize: the environment replaces the bucket size, of a default policy too") {
  const tests::scoped_variable variable("DISTRIBUTED_BUCKET_SIZE", "0.5");
  backend::run_loopback(1, [](backend::loopback backend) {
    std::vector<std::vector<float>> tensors(4, std::vector<float>(65536));
    manifest gradients;
    for (std::size_t i = 0; i < 4; ++i) {
      gradients.add("g" + std::to_string(i), tensors[i]);
    }
    const auto sync = synchronize(std::move(gradients), std::move(backend));
    CHECK(sync.plan().buckets.size() == 2);
    CHECK(sync.report().find("bucketing.bucket_bytes_max = 524288") != std::string::npos);
  });
}
