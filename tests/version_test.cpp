#include <gradweave/version.hpp>

#include <string>

#include <doctest/doctest.h>

namespace gw = gradweave;

TEST_CASE("version: the text and the numbers agree") {
  CHECK(gw::version_string == std::to_string(gw::version_major) + "." + std::to_string(gw::version_minor) + "." +
                                  std::to_string(gw::version_patch));
}
