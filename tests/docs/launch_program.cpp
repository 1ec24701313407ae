// The program that docs/reference/tcp.md quotes: it starts two ranks of itself, which average their numbers.
#include <cstddef>
#include <cstdio>
#include <utility>
#include <vector>

#include <gradweave/backend/tcp.hpp>
#include <gradweave/gradweave.hpp>
#include <gradweave/launch.hpp>

namespace gw = gradweave;

// [launch]
int main(int count, char** arguments) {
  if (!gw::is_launched()) {
    return gw::launch({arguments, static_cast<std::size_t>(count)}, {.ranks = 2});
  }
  auto backend = gw::backend::tcp::from_environment();
  // [/launch]
  const int rank = backend.rank();
  std::vector<float> gradient(1000, static_cast<float>(rank + 1));
  gw::manifest gradients;
  const gw::slot slot = gradients.add("gradient", gradient);
  auto sync = gw::synchronize(std::move(gradients), std::move(backend));
  sync.step([&](auto& step) { step.ready(slot); });
  std::printf("the average is %.1f\n", static_cast<double>(gradient[999]));
  return gradient[999] == 1.5F ? 0 : 1;
}
