// EXPECT: synchronize: two bucketing policies
// EXPECT: synchronize: two compression policies; to choose at run time use one_of
// EXPECT: synchronize: two overlap policies
#include <utility>

#include <gradweave/gradweave.hpp>

namespace gw = gradweave;

void twice(gw::manifest gradients, gw::backend::loopback backend) {
  (void)gw::synchronize(std::move(gradients), std::move(backend), gw::compression::bf16{}, gw::bucketing::per_tensor{},
                        gw::overlap::blocking{}, gw::overlap::progress_thread{}, gw::bucketing::ready_order{},
                        gw::compression::none{});
}
