#include <gradweave/testing/bucketing_conformance.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/fixed_bytes.hpp>
#include <gradweave/bucketing/per_tensor.hpp>
#include <gradweave/bucketing/ready_order.hpp>
#include <gradweave/one_of.hpp>
#include <gradweave/testing/conformance.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

namespace {

enum class fault {
  none,
  drops_a_slot,
  repeats_a_slot,
  invents_a_slot,
  mixes_kinds,
  has_an_empty_bucket,
  counts_calls,
  throws_where_empty,
  replans_by_chance,
};

/// ready_order with something wrong.
struct faulty_bucketing {
  fault what = fault::none;
  std::shared_ptr<int> calls = std::make_shared<int>(0);

  friend bool operator==(const faulty_bucketing& a, const faulty_bucketing& b) { return a.what == b.what; }
  void describe(gw::description& sink) const { sink.add("name", "faulty"); }
  bool replans_after(std::uint64_t step) const {
    return what == fault::replans_by_chance ? ++*calls % 3 == 0 : step == 0;
  }

  gw::bucket_plan plan(const gw::bucketing_input& input) const {
    if (input.slots.empty()) {
      return what == fault::throws_where_empty ? throw std::out_of_range("no slots") : gw::bucket_plan{};
    }
    gw::bucket_plan made = gw::bucketing::ready_order{{1 << 20, 1 << 10}}.plan(input);
    auto& first = made.buckets.front();
    switch (what) {
      case fault::drops_a_slot: made.buckets.pop_back(); break;
      case fault::repeats_a_slot: made.buckets.back().push_back(first.front()); break;
      case fault::invents_a_slot: first.push_back({static_cast<std::uint32_t>(input.slots.size())}); break;
      case fault::mixes_kinds:
        for (; made.buckets.size() > 1; made.buckets.pop_back()) {
          made.buckets.front().insert(made.buckets.front().end(), made.buckets.back().begin(),
                                      made.buckets.back().end());
        }
        break;
      case fault::has_an_empty_bucket: made.buckets.emplace_back(); break;
      case fault::counts_calls:
        std::swap(first, made.buckets[static_cast<std::size_t>(++*calls) % made.buckets.size()]);
        break;
      default: break;
    }
    return made;
  }
};

void check_passes(const gt::conformance_report& report) { CHECK_MESSAGE(report.passed(), gt::to_string(report)); }

void check_catches(fault what, std::string_view sentence) {
  const auto report = gt::check_bucketing(faulty_bucketing{what});
  CHECK_MESSAGE(gt::mentions(report, sentence), gt::to_string(report));
}

}  // namespace

TEST_CASE("check_bucketing: the library's own policies pass") {
  check_passes(gt::check_bucketing(gw::bucketing::per_tensor{}));
  check_passes(gt::check_bucketing(gw::bucketing::fixed_bytes{}));
  check_passes(gt::check_bucketing(gw::bucketing::fixed_bytes{{1, 1}}, {.seed = 2}));
  check_passes(gt::check_bucketing(gw::bucketing::ready_order{}));
  check_passes(gt::check_bucketing(gw::bucketing::ready_order{{4096, 64}}, {.seed = 3}));
  using any = gw::one_of<gw::bucketing::per_tensor, gw::bucketing::fixed_bytes, gw::bucketing::ready_order>;
  check_passes(gt::check_bucketing(any(gw::bucketing::ready_order{})));
}

TEST_CASE("check_description: the library's own bucketing policies tell their options") {
  check_passes(gt::check_description({gw::bucketing::per_tensor{}}));
  check_passes(gt::check_description({gw::bucketing::fixed_bytes{}, {{1, 2}}, {{1, 3}}, {{2, 2}}}));
  check_passes(gt::check_description({gw::bucketing::ready_order{}, {{1, 2}}, {{1, 3}}, {{2, 2}}}));
  using any = gw::one_of<gw::bucketing::fixed_bytes, gw::bucketing::ready_order>;
  check_passes(gt::check_description({any(gw::bucketing::fixed_bytes{}), any(gw::bucketing::ready_order{})}));
}

TEST_CASE("check_bucketing: catches each fault") {
  check_passes(gt::check_description({faulty_bucketing{}}));
  check_passes(gt::check_bucketing(faulty_bucketing{}));
  check_catches(fault::drops_a_slot, "are in no bucket");
  check_catches(fault::repeats_a_slot, "repeats slot");
  check_catches(fault::invents_a_slot, "names slot");
  check_catches(fault::mixes_kinds, "mixes element kinds");
  check_catches(fault::has_an_empty_bucket, "is empty");
  check_catches(fault::counts_calls, "another answer to the same question");
  check_catches(fault::throws_where_empty, "no slots: threw no slots");
  check_catches(fault::replans_by_chance, "gave two answers");
}
