// EXPECT: in_arena: the tensor can't be pointed at other memory; add gradweave_rebind\(void\*\), or rebind\(T&, void\*\) to its tensor_traits
#include <vector>

#include <gradweave/manifest.hpp>

void add(gradweave::manifest& gradients, std::vector<float>& owner) { gradients.add("w", gradweave::in_arena(owner)); }
