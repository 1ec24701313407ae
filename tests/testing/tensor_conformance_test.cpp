#include <gradweave/testing/tensor_conformance.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/element.hpp>
#include <gradweave/tensor.hpp>
#include <gradweave/testing/archetypes.hpp>
#include <gradweave/testing/conformance.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

namespace {

enum class fault { none, rebinds_not, rebinds_flat, moves_its_data, grows };

/// A matrix of 3 x 4 whose gradient may live elsewhere.
struct matrix {
  fault what = fault::none;
  std::vector<float> own = std::vector<float>(64);
  float* memory = nullptr;
  std::array<std::size_t, 2> extents = {3, 4};
  mutable std::size_t calls = 0;

  float* gradweave_data() {
    if (memory != nullptr) {
      return memory;
    }
    return own.data() + (what == fault::moves_its_data ? calls++ % 2 : 0);
  }
  std::array<std::size_t, 2> gradweave_shape() const {
    return what == fault::grows ? std::array<std::size_t, 2>{3, 4 + calls++} : extents;
  }
  void gradweave_rebind(void* to) {
    memory = what == fault::rebinds_not ? nullptr : static_cast<float*>(to);
    extents = what == fault::rebinds_flat ? std::array<std::size_t, 2>{3, 3} : extents;
  }
};

/// Says that it is a view, and is none.
struct false_view {
  std::array<double, 3> values{};
};

/// Tells its kind at run time.
struct by_kind {
  std::array<std::byte, 8> memory{};
};

void check_passes(const gt::conformance_report& report) { CHECK_MESSAGE(report.passed(), gt::to_string(report)); }

void check_catches(fault what, std::string_view sentence) {
  const auto report = gt::check_tensor([what] { return matrix{what}; });
  CHECK_MESSAGE(gt::mentions(report, sentence), gt::to_string(report));
}

}  // namespace

template <>
struct gradweave::tensor_traits<false_view> {
  static constexpr bool is_view = true;
  static double* data(false_view& tensor) { return tensor.values.data(); }
  static std::array<int, 1> shape(const false_view&) { return {3}; }
};

template <>
struct gradweave::tensor_traits<by_kind> {
  static void* data(by_kind& tensor) { return tensor.memory.data(); }
  static element_kind kind(const by_kind&) { return element_kind::bfloat16; }
  static std::array<int, 2> shape(const by_kind&) { return {2, 2}; }
};

TEST_CASE("check_tensor: each tier passes") {
  check_passes(gt::check_tensor([] { return std::vector<float>(5); },
                                {.kind = gw::element_kind::float32, .shape = gw::tensor_shape(std::array{5})}));
  check_passes(gt::check_tensor([] { return std::vector<gw::bfloat16>(); }));
  check_passes(gt::check_tensor([] { return std::array<double, 3>{}; }));
  std::vector<gw::float16> memory(7);
  check_passes(gt::check_tensor([&] { return std::span<gw::float16>(memory); }));
  check_passes(gt::check_tensor([] { return by_kind{}; },
                                {.kind = gw::element_kind::bfloat16, .shape = gw::tensor_shape(std::array{2, 2})}));
  check_passes(gt::check_tensor([] { return matrix{}; },
                                {.kind = gw::element_kind::float32, .shape = gw::tensor_shape(std::array{3, 4})}));
  gt::element_archetype element;
  check_passes(gt::check_tensor([&] { return gt::tensor_archetype(element); }));
}

TEST_CASE("check_tensor: catches each fault") {
  check_catches(fault::rebinds_not, "data() must be the new memory");
  check_catches(fault::rebinds_flat, "rebinding must keep the shape");
  check_catches(fault::moves_its_data, "the same answer twice");
  check_catches(fault::grows, "the same answer twice");
  CHECK(gt::mentions(gt::check_tensor([] { return false_view{}; }), "a copy has memory of its own"));
  CHECK(gt::mentions(gt::check_tensor([] { return matrix{}; }, {.kind = gw::element_kind::float64, .shape = {}}),
                     "kind() is not the one"));
  CHECK(gt::mentions(gt::check_tensor([] { return matrix{}; }, {.kind = {}, .shape = gw::tensor_shape(std::array{12})}),
                     "shape() is not the one"));
}
