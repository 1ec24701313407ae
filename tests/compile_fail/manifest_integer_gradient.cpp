// EXPECT: manifest: a gradient is averaged, so it has to be floating-point
#include <vector>

#include <gradweave/manifest.hpp>

void add(gradweave::manifest& gradients, std::vector<int>& counts) { gradients.add("counts", counts); }
