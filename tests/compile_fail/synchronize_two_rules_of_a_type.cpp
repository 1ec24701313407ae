// EXPECT: synchronize: two rules of one type, of unused, averaging, division, use_counts, joined_ranks and parameters
#include <utility>

#include <gradweave/gradweave.hpp>

namespace gw = gradweave;

void twice(gw::manifest gradients, gw::backend::loopback backend) {
  (void)gw::synchronize(std::move(gradients), std::move(backend), gw::averaging::sum, gw::averaging::mean);
}
