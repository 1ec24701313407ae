// EXPECT: hook: the function must be callable with a gradweave::compression::bucket_view& while it is const, and return nothing: values are changed in place; state lives outside of it, captured by reference
#include <vector>

#include <gradweave/compression/hook.hpp>

namespace gw = gradweave;

void of_values() {
  gw::compression::hook("takes values", [](std::vector<float>& values) { values.clear(); });
}
void with_result() {
  gw::compression::hook("returns", [](gw::compression::bucket_view& bucket) { return bucket.elements(); });
}
void with_state() {
  gw::compression::hook("counts", [calls = 0](gw::compression::bucket_view&) mutable { ++calls; });
}
