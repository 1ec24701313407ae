// EXPECT: synchronize: two bucketing policies
#include <gradweave/gradweave.hpp>

namespace gw = gradweave;

void twice(gw::manifest gradients, gw::backend::loopback backend) {
  (void)gw::synchronize(std::move(gradients), std::move(backend), gw::bucketing::per_tensor{},
                        gw::bucketing::ready_order{});
}
