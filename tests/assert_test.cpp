#include <gradweave/assert.hpp>

#include <string>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("require: says nothing where the condition holds, and throws what and where else") {
  CHECK_NOTHROW(require(true, "never"));
  std::string text;
  const unsigned line = __LINE__ + 2;
  try {
    require(false, "the size is odd");
  } catch (const contract_violation& thrown) {
    text = thrown.what();
  }
  CHECK(text.starts_with("gradweave: the size is odd ["));
  CHECK(text.find("assert_test.cpp:" + std::to_string(line)) != std::string::npos);
}

TEST_CASE("require: can be used in constant expressions") {
  constexpr auto checked = [](int value) {
    require(value > 0, "positive");
    return value;
  };
  static_assert(checked(3) == 3);
}
