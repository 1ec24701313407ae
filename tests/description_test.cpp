#include <gradweave/description.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

namespace gw = gradweave;
using entry = gw::description::entry;

namespace {

struct inner {
  void describe(gw::description& sink) const { sink.add("name", "inner"); }
};
struct outer {
  void describe(gw::description& sink) const {
    sink.add("name", "outer");
    sink.nest("part", inner{});
    sink.add("last", 1);
  }
};
struct silent {};
struct not_const {
  void describe(gw::description&) {}
};

static_assert(gw::describes_itself<inner> && !gw::describes_itself<silent> && !gw::describes_itself<not_const>);
static_assert(!gw::policy_value<inner>);  // no ==

}  // namespace

TEST_CASE("description: keeps entries in order, numbers and flags as text") {
  gw::description said;
  said.add("literal", "a");
  said.add("string", std::string("b"));
  said.add("view", std::string_view("c"));
  said.add("flag", true);
  said.add("other flag", false);
  said.add("int", -3);
  said.add("large", UINT64_MAX);
  said.add("fraction", 0.5);
  CHECK(said.entries() == std::vector<entry>{{"literal", "a"},
                                             {"string", "b"},
                                             {"view", "c"},
                                             {"flag", "true"},
                                             {"other flag", "false"},
                                             {"int", "-3"},
                                             {"large", "18446744073709551615"},
                                             {"fraction", "0.5"}});
}

TEST_CASE("description: what is nested carries its role, and only that") {
  gw::description said;
  said.nest("whole", outer{});
  said.add("after", "x");
  CHECK(said.entries() ==
        std::vector<entry>{{"whole.name", "outer"}, {"whole.part.name", "inner"}, {"whole.last", "1"}, {"after", "x"}});
}

TEST_CASE("description: floating options that differ read differently") {
  const auto said = [](double value) {
    gw::description sink;
    sink.add("ratio", value);
    return sink.entries().front().value;
  };
  CHECK(said(0.001) != said(0.002));
  CHECK(said(1e-7) != said(2e-7));
  CHECK(said(1.0) != said(1.0 + 1e-9));
}
