#include <gradweave/testing/compression_conformance.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include <gradweave/backend/concept.hpp>
#include <gradweave/compression/all_reduce.hpp>
#include <gradweave/compression/coded.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/compression/half.hpp>
#include <gradweave/compression/hook.hpp>
#include <gradweave/compression/none.hpp>
#include <gradweave/element.hpp>
#include <gradweave/one_of.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/values.hpp>
#include <gradweave/testing/watchdog.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

namespace {

gt::rounding_bound times(double factor, gt::rounding_bound bound) {
  return {factor * bound.relative, factor * bound.relative_to_block, factor * bound.absolute, bound.largest};
}
gt::rounding_bound sum_of(const gt::rounding_bound& a, const gt::rounding_bound& b) {
  return {a.relative + b.relative, 0, a.absolute + b.absolute, std::min(a.largest, b.largest)};
}

/// `roundings` to `wire`, the sums' own in float32, and the storing of the result. Where the kind is not encoded, only
/// the sums and the storing: float64 sums in float64.
gt::rounding_bound bound_of(gw::element_kind wire, double roundings, gw::element_kind kind, int size) {
  if (kind == gw::element_kind::float64) {
    return times(size + 1, gt::rounding_of(kind));
  }
  const auto rounded = times(roundings * 1.01, gt::rounding_of(wire));
  return sum_of(
      rounded, sum_of(times(size + 1, gt::rounding_of(gw::element_kind::float32)), times(1.01, gt::rounding_of(kind))));
}

template <class Codec>
gt::compression_conformance_options options_of(const Codec& codec, gw::element_kind wire) {
  gt::compression_conformance_options options;
  options.bound = [wire](gw::element_kind kind, int size) { return bound_of(wire, 2, kind, size); };
  options.bytes_sent = [codec](const gw::bucket_layout& layout, int size) {
    return gt::two_phase_bytes(codec, layout, size);
  };
  return options;
}

std::uint64_t bytes_as_stored(const gw::bucket_layout& layout, int size) {
  return gt::all_reduce_bytes(layout.elements * gw::element_bytes(layout.kind), size);
}

/// Exact but for the sums' own rounding and, below 32 bits, two roundings to the kind.
gt::compression_conformance_options options_of_none() {
  gt::compression_conformance_options options;
  options.bound = [](gw::element_kind kind, int size) { return bound_of(kind, 1, kind, size); };
  options.bytes_sent = bytes_as_stored;
  return options;
}

enum class fault {
  none,
  forgets_to_divide,
  divides_sums,
  asks_for_too_little_scratch,
  differs_between_ranks,
  sends_twice,
  forgets_to_count,
  counts_too_much,
  drifts,
  loses_a_value,
  never_ends,
};

/// coded<fp16> with something wrong.
struct faulty_compression {
  static constexpr gw::collective_set collectives = {gw::collective::all_reduce, gw::collective::all_to_all,
                                                     gw::collective::all_gather};
  fault what = fault::none;
  gw::compression::coded<gw::compression::fp16> right;

  class program {
   public:
    program(gw::compression::coded<gw::compression::fp16>::program right, fault what, const gw::bucket_layout& layout,
            gw::program_world world)
        : right_(std::move(right)), what_(what), kind_(layout.kind), memory_(layout.memory), world_(world) {}

    std::size_t scratch_bytes() const {
      const std::size_t bytes = right_.scratch_bytes();
      return what_ == fault::asks_for_too_little_scratch && bytes > 32 ? bytes - 32 : bytes;
    }
    std::size_t non_finite() const {
      switch (what_) {
        case fault::forgets_to_count: return 0;
        case fault::counts_too_much: return right_.non_finite() + 1;
        default: return right_.non_finite();
      }
    }

    std::optional<gw::collective_request> run(int stage, std::span<std::byte> scratch) {
      if (what_ == fault::asks_for_too_little_scratch) {
        scratch = {scratch.data(), right_.scratch_bytes()};
      }
      if (what_ == fault::never_ends && stage > 1) {
        return gw::collective_request{.operation = gw::collective::all_reduce};
      }
      runs_ += stage == 0 ? 1 : 0;
      auto request = right_.run(stage, scratch);
      if (request) {
        last_ = *request;
        return request;
      }
      if (what_ == fault::sends_twice && !again_ && !memory_.empty()) {
        again_ = true;
        return last_;
      }
      again_ = false;
      spoil();
      return std::nullopt;
    }

   private:
    void spoil() {
      if (memory_.empty()) {
        return;
      }
      std::byte* const first = memory_.front().memory;
      const double value = gt::read_value(kind_, first, 0);
      switch (what_) {
        case fault::forgets_to_divide: gt::write_value(kind_, first, 0, value * world_.size); break;
        case fault::divides_sums:
          gt::write_value(kind_, first, 0, world_.divisor == 1 ? value / world_.size : value);
          break;
        case fault::differs_between_ranks: first[0] ^= static_cast<std::byte>(world_.rank == 1 ? 1 : 0); break;
        case fault::drifts: first[0] ^= static_cast<std::byte>(runs_ % 2); break;
        case fault::loses_a_value: gt::write_value(kind_, first, 0, 0); break;
        default: break;
      }
    }

    gw::compression::coded<gw::compression::fp16>::program right_;
    fault what_;
    gw::element_kind kind_;
    std::span<const gw::extent> memory_;
    gw::program_world world_;
    gw::collective_request last_;
    int runs_ = 0;
    bool again_ = false;
  };

  friend bool operator==(const faulty_compression&, const faulty_compression&) = default;
  void describe(gw::description& sink) const { sink.add("name", "faulty"); }
  bool compresses(gw::element_kind kind) const { return right.compresses(kind); }
  program prepare(const gw::bucket_layout& layout, gw::program_world world) const {
    return {right.prepare(layout, world), what, layout, world};
  }
};

/// Asks for what it does not name.
struct secretive : faulty_compression {
  static constexpr gw::collective_set collectives = {gw::collective::all_reduce};
};

void check_passes(const gt::conformance_report& report) { CHECK_MESSAGE(report.passed(), gt::to_string(report)); }

void check_catches(fault what, std::string_view sentence) {
  auto options = options_of(gw::compression::fp16{}, gw::element_kind::float16);
  options.sizes = {3};
  options.kinds = {gw::element_kind::float32, gw::element_kind::float16};
  const auto report = gt::check_compression(faulty_compression{what, {}}, options);
  CHECK_MESSAGE(gt::mentions(report, sentence), gt::to_string(report));
}

}  // namespace

TEST_CASE("check_compression: the library's own codecs pass, by themselves and as one of several") {
  const gt::watchdog guard("check_compression: the library's own codecs pass, by themselves and as one of several");
  using fp16 = gw::compression::fp16;
  using bf16 = gw::compression::bf16;
  check_passes(gt::check_compression(gw::compression::coded<fp16>{}, options_of(fp16{}, gw::element_kind::float16)));
  check_passes(gt::check_compression(gw::compression::coded<bf16>{}, options_of(bf16{}, gw::element_kind::bfloat16)));
  constexpr auto negate = [](gw::compression::bucket_view bucket) {
    bucket.transform([](auto value) { return -value; });
  };
  auto hook = gw::compression::hook("negate", negate, negate);
  auto hook_over = hook.over(fp16{});
  using any = gw::one_of<gw::compression::none, fp16, bf16, decltype(hook), decltype(hook_over)>;
  check_passes(gt::check_compression(any(fp16{}), options_of(fp16{}, gw::element_kind::float16)));
  check_passes(gt::check_compression(any(gw::compression::none{}), options_of_none()));
  check_passes(gt::check_compression(any(hook), options_of_none()));
  check_passes(gt::check_compression(any(hook_over), options_of(fp16{}, gw::element_kind::float16)));
  check_passes(gt::check_description({any(fp16{}), any(bf16{}), any(gw::compression::none{}), any(hook), any(hook_over),
                                      any(gw::compression::hook("other", negate, negate))}));
}

TEST_CASE("check_compression: none passes") {
  const gt::watchdog guard("check_compression: none passes");
  check_passes(gt::check_compression(gw::compression::none{}, options_of_none()));
}

TEST_CASE("check_compression: per_hop_rounding passes with a rounding a hop, and not with one in all") {
  const gt::watchdog guard("check_compression: per_hop_rounding passes with a rounding a hop, and not with one in all");
  auto options = options_of_none();
  options.bound = [](gw::element_kind kind, int size) { return bound_of(kind, size, kind, size); };
  check_passes(gt::check_compression(gw::compression::per_hop_rounding{}, options));
  options = options_of_none();
  options.bound = [](gw::element_kind kind, int) { return times(1.05, gt::rounding_of(kind)); };
  CHECK(gt::mentions(gt::check_compression(gw::compression::per_hop_rounding{}, options),
                     "further from the exact one than the bound allows"));
}

TEST_CASE("check_compression: catches each fault") {
  const gt::watchdog guard("check_compression: catches each fault");
  check_passes(gt::check_description({faulty_compression{}}));
  check_catches(fault::forgets_to_divide, "further from the exact one than the bound allows");
  check_catches(fault::divides_sums, "sums are further from the exact one than the bound allows");
  check_catches(fault::loses_a_value, "further from the exact one than the bound allows");
  check_catches(fault::asks_for_too_little_scratch, "memory outside of the scratch was written");
  check_catches(fault::differs_between_ranks, "ranks hold different bits after the reduction");
  check_catches(fault::sends_twice, "payload bytes were sent");
  check_catches(fault::forgets_to_count, "non_finite() must count infinities and NaNs");
  check_catches(fault::counts_too_much, "non_finite() counts values although all are finite");
  check_catches(fault::drifts, "the program run again gives other bits");
  check_catches(fault::never_ends, "the program does not end");
  auto options = options_of(gw::compression::fp16{}, gw::element_kind::float16);
  options.sizes = {2};
  CHECK(gt::mentions(gt::check_compression(secretive{}, options), "which `collectives` does not name"));
}
