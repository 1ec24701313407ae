// EXPECT: synchronize: two overlap policies
#include <gradweave/gradweave.hpp>

namespace gw = gradweave;

void twice(gw::manifest gradients, gw::backend::loopback backend) {
  (void)gw::synchronize(std::move(gradients), std::move(backend), gw::overlap::blocking{},
                        gw::overlap::progress_thread{});
}
