// The smallest whole program: two ranks fit the line y = 3 x + 1, and each sees one half of it.
// [main]
#include <iostream>
#include <utility>
#include <vector>

#include <gradweave/gradweave.hpp>

namespace gw = gradweave;

int main() {
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {  // two ranks, each a thread
    std::vector<float> line = {0, 0};                               // slope and offset
    std::vector<float> gradient(2);
    gw::manifest gradients;
    const gw::slot slot = gradients.add("line", line, gradient);
    auto sync = gw::synchronize(std::move(gradients), std::move(backend), gw::compression::bf16{});

    for (int i = 0; i < 300; ++i) {
      sync.step([&](auto& step) {
        gradient = {0, 0};
        for (const float point : {0.25f, 0.75f}) {
          const float x = sync.rank() == 0 ? point : -point;
          const float error = line[0] * x + line[1] - (3 * x + 1);
          gradient[0] += error * x;
          gradient[1] += error;
        }
        step.ready(slot);
      });  // the gradient is the average over both ranks now
      line[0] -= 0.5f * gradient[0];
      line[1] -= 0.5f * gradient[1];
    }
    if (sync.rank() == 0) {
      std::cout << "y = " << line[0] << " x + " << line[1] << '\n' << sync.report();
    }
  });
}
// [/main]
