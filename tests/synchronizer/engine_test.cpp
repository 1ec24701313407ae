#include <gradweave/synchronizer/engine.hpp>

#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/bucketing/per_tensor.hpp>
#include <gradweave/compression/none.hpp>
#include <gradweave/overlap/progress_thread.hpp>
#include <gradweave/testing/watchdog.hpp>

using namespace gradweave;
using namespace std::chrono_literals;

namespace {
using engine_type =
    detail::engine<backend::loopback, bucketing::per_tensor, compression::none, overlap::progress_thread>;
}  // namespace

TEST_CASE("engine: the lane finds nothing to do between steps, however often it is asked") {
  const testing::watchdog guard("engine between steps");
  backend::run_loopback(2, [](backend::loopback backend) {
    std::vector<float> gradient(10, static_cast<float>(backend.rank()));
    manifest gradients;
    const slot only = gradients.add("g", gradient);
    engine_type engine(std::move(gradients), std::move(backend), {}, {}, {}, {});
    CHECK(engine.advance() == lane_status::idle);
    engine.begin_step({});
    CHECK_FALSE(engine.finished());
    engine.ready(only);
    engine.finish();
    CHECK(engine.finished());
    CHECK(engine.advance() == lane_status::idle);
    CHECK(gradient[9] == 0.5F);
  });
}

TEST_CASE("engine: an abandoned step is told with its reason, and no gradient is touched afterwards") {
  const testing::watchdog guard("engine abandon");
  std::mutex telling;
  std::vector<std::string> told;
  backend::run_loopback(3,
                        [&](backend::loopback backend) {
                          const int rank = backend.rank();
                          std::vector<float> gradient(10, 1);
                          manifest gradients;
                          const slot only = gradients.add("g", gradient);
                          engine_type engine(std::move(gradients), std::move(backend), {}, {}, {}, {});
                          engine.begin_step({});
                          engine.ready(only);
                          if (rank == 2) {
                            engine.abandon("enough");
                            CHECK_THROWS_WITH_AS(engine.begin_step({}), doctest::Contains("enough"), sync_error);
                            return;
                          }
                          try {
                            engine.finish();
                          } catch (const sync_error& error) {
                            const std::lock_guard lock(telling);
                            told.push_back(error.what());
                          }
                        },
                        {.timeout = 20s});
  REQUIRE(told.size() == 2);
  CHECK(told[0] == told[1]);
  CHECK(told[0].find("rank 2, step 0: enough") != std::string::npos);
}
