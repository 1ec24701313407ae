// EXPECT: synchronize: two compression policies; to choose at run time use one_of
#include <gradweave/gradweave.hpp>

namespace gw = gradweave;

void twice(gw::manifest gradients, gw::backend::loopback backend) {
  (void)gw::synchronize(std::move(gradients), std::move(backend), gw::compression::bf16{}, gw::compression::none{});
}
