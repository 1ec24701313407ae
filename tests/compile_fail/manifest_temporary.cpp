// EXPECT: manifest: a temporary tensor that owns its memory would dangle; register a named one, or a view
#include <vector>

#include <gradweave/manifest.hpp>

void dangle(gradweave::manifest& gradients) { gradients.add("w", std::vector<float>(3)); }
