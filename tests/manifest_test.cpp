#include <gradweave/manifest.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/assert.hpp>
#include <gradweave/element.hpp>
#include <gradweave/tensor.hpp>

namespace gw = gradweave;

namespace {

/// What `action` says when it violates a contract; empty where it does not.
template <std::invocable Action>
std::string violation_of(Action&& action) {
  try {
    action();
  } catch (const gw::contract_violation& error) {
    return error.what();
  }
  return "";
}

/// Three elements of 4 bytes, of a kind that is told at run time.
struct told {
  gw::element_kind kind;
  std::array<float, 3> memory{};
  void* gradweave_data() { return memory.data(); }
  std::array<int, 1> gradweave_shape() const { return {3}; }
  gw::element_kind gradweave_kind() const { return kind; }
};

bool contains(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("manifest: keeps gradients in order, of several types and kinds") {
  std::vector<float> a(3);
  std::array<double, 2> b{};
  gw::bfloat16 c[4] = {};
  gw::manifest gradients;
  CHECK(gradients.size() == 0);
  CHECK(gradients.add("a", a) == gw::slot{0});
  CHECK(gradients.add("b", b) == gw::slot{1});
  CHECK(gradients.add("c", c) == gw::slot{2});
  CHECK(gradients.add("d", std::span(a)) == gw::slot{3});
  REQUIRE(gradients.size() == 4);
  const auto entries = gradients.entries();
  CHECK(entries[0].name == "a");
  CHECK(entries[0].gradient.elements() == 3);
  CHECK(entries[1].gradient.kind() == gw::element_kind::float64);
  CHECK(entries[2].gradient.kind() == gw::element_kind::bfloat16);
  CHECK(entries[2].gradient.shape() == gw::tensor_shape(std::array{4}));
  CHECK(entries[3].gradient.data() == reinterpret_cast<std::byte*>(a.data()));
  for (const auto& entry : entries) {
    CHECK(entry.where == gw::residence::own);
    CHECK(!entry.parameter);
  }
}

TEST_CASE("manifest: a parameter comes with its gradient, of another kind if need be") {
  std::vector<float> parameter(3);
  std::vector<gw::float16> gradient(3);
  gw::manifest gradients;
  const gw::slot added = gradients.add("w", parameter, gradient);
  const gw::manifest_entry& entry = gradients.entries()[added.index];
  REQUIRE(entry.parameter);
  CHECK(entry.parameter->kind() == gw::element_kind::float32);
  CHECK(entry.gradient.kind() == gw::element_kind::float16);
  CHECK(entry.parameter->data() == reinterpret_cast<std::byte*>(parameter.data()));
}

TEST_CASE("manifest: a parameter of another size is refused and leaves no trace") {
  std::vector<float> parameter(3);
  std::vector<float> gradient(4);
  gw::manifest gradients;
  CHECK(contains(violation_of([&] { gradients.add("w", parameter, gradient); }),
                 "slot 'w': the parameter has 3 elements, its gradient 4"));
  CHECK(gradients.size() == 0);
  CHECK(gradients.add("w", gradient, gradient) == gw::slot{0});
}

TEST_CASE("manifest: names are given and unique") {
  std::vector<float> tensor(1);
  gw::manifest gradients;
  CHECK(contains(violation_of([&] { gradients.add("", tensor); }), "slot 0 has an empty name"));
  gradients.add("w", tensor);
  CHECK(contains(violation_of([&] { gradients.add("w", tensor); }), "the name 'w' is taken"));
  CHECK(gradients.size() == 1);
}

TEST_CASE("manifest: gradients are floating-point, also where their kind is told at run time") {
  told counts{gw::element_kind::int32};
  gw::manifest gradients;
  const std::string said = violation_of([&] { gradients.add("counts", counts); });
  CHECK(contains(said, "slot 'counts' has element kind int32"));
  CHECK(contains(said, "floating-point"));
  CHECK(gradients.size() == 0);
  std::vector<float> floats(3);
  std::vector<int> integers(3);
  CHECK(gradients.add("counts", integers, floats) == gw::slot{0});  // a parameter may be of any kind
  told right{gw::element_kind::float32};
  CHECK(gradients.add("told", right) == gw::slot{1});
}

TEST_CASE("manifest: a gradient may take its memory from the arena") {
  std::vector<float> memory(3);
  std::span<float> tensor(memory);
  gw::manifest gradients;
  gradients.add("w", gw::in_arena(tensor));
  CHECK(gradients.entries()[0].where == gw::residence::arena);
  CHECK(gradients.entries()[0].gradient.can_rebind());
  std::vector<float> parameter(3);
  gradients.add("v", parameter, gw::in_arena(tensor));
  CHECK(gradients.entries()[1].where == gw::residence::arena);
  CHECK(gradients.entries()[1].parameter);
}

TEST_CASE("manifest: what was given to synchronize takes no more gradients or buffers, and there are no copies of it") {
  static_assert(!std::is_copy_constructible_v<gw::manifest>);
  std::vector<float> a(3), b(3);
  gw::manifest gradients;
  gradients.add("a", a);
  gw::manifest sealed = std::move(gradients);
  CHECK(contains(violation_of([&] { gradients.add("b", b); }), "manifest: it was given to synchronize"));
  CHECK(contains(violation_of([&] { gradients.add_buffer("b", b); }), "register everything before"));
  CHECK(sealed.add("b", b) == gw::slot{1});
  gradients = {};
  CHECK(gradients.add("b", b) == gw::slot{0});
}

TEST_CASE("manifest: a flat buffer is adopted where it lies") {
  std::vector<double> buffer(10);
  gw::manifest gradients;
  gradients.add_range("flat", buffer.data() + 2, 5);
  const gw::manifest_entry& entry = gradients.entries()[0];
  CHECK(entry.where == gw::residence::adopted);
  CHECK(entry.gradient.kind() == gw::element_kind::float64);
  CHECK(entry.gradient.elements() == 5);
  CHECK(entry.gradient.data() == reinterpret_cast<std::byte*>(buffer.data() + 2));
  CHECK(contains(violation_of([&] { gradients.add_range("null", static_cast<float*>(nullptr), 1); }), "is null"));
  CHECK(gradients.add_range("nothing", static_cast<float*>(nullptr), 0) == gw::slot{1});
  CHECK(contains(violation_of([&] { gradients.add_range("flat", buffer.data(), 1); }), "is taken"));
}
