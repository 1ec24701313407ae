/// @file
/// `one_of<A, B, C>`: a policy that holds one of several, for a choice at run time. A program that offers three
/// compressions, two overlaps and three bucketings instantiates eight policies and one synchronizer, not eighteen.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>
#include <variant>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/coded.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/compression/program_choice.hpp>
#include <gradweave/compression/stream_reduction.hpp>
#include <gradweave/description.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/overlap/concept.hpp>

namespace gradweave {

template <class... Policies>
class one_of;

namespace detail {

template <class Policy, class... Policies>
concept among = (std::same_as<Policy, Policies> || ...);

/// A lane that is one of several. Lanes do not move, so each is made where it stays.
template <class... Lanes>
class lane_choice {
 public:
  template <class Make>
  explicit lane_choice(Make make) : held_(std::in_place_type<made_by<Make>>, std::move(make)) {}

  void notify() noexcept {
    std::visit([](auto& held) { held.lane.notify(); }, held_);
  }
  void drain() {
    std::visit([](auto& held) { held.lane.drain(); }, held_);
  }
  bool runs_by_itself() const {
    return std::visit([](const auto& held) { return gradweave::runs_by_itself(held.lane); }, held_);
  }

 private:
  template <class Lane>
  struct holder {
    template <class Make>
    explicit holder(Make make) : lane(make()) {}
    Lane lane;
  };
  template <class Make>
  using made_by = holder<decltype(std::declval<Make>()())>;

  std::variant<holder<Lanes>...> held_;
};

}  // namespace detail

/// A bucketing policy where all alternatives are ones.
template <bucketing_policy... Policies>
class one_of<Policies...> {
 public:
  template <detail::among<Policies...> Policy>
  one_of(Policy policy) : held_(std::move(policy)) {}

  friend bool operator==(const one_of&, const one_of&) = default;

  bucket_plan plan(const bucketing_input& input) const {
    return std::visit([&](const auto& policy) { return policy.plan(input); }, held_);
  }
  bool replans_after(std::uint64_t step) const {
    return std::visit([&](const auto& policy) { return policy.replans_after(step); }, held_);
  }
  one_of with_environment() const {
    return std::visit(
        [](const auto& policy) -> one_of {
          if constexpr (environment_aware<std::remove_cvref_t<decltype(policy)>>) {
            return policy.with_environment();
          } else {
            return policy;
          }
        },
        held_);
  }
  void describe(description& sink) const {
    std::visit([&](const auto& policy) { policy.describe(sink); }, held_);
  }

 private:
  std::variant<Policies...> held_;
};

/// A compression policy where all alternatives are ones, or codecs.
template <class... Policies>
  requires((compression_policy<Policies> || codec<Policies>) && ...)
class one_of<Policies...> {
  template <class Policy>
  using lifted = decltype(compression::as_compression(std::declval<Policy>()));

 public:
  static constexpr collective_set collectives =
      (decltype(compression::as_compression(std::declval<Policies>()))::collectives | ...);

  template <detail::among<Policies...> Policy>
  one_of(Policy policy) : held_(compression::as_compression(std::move(policy))) {}

  friend bool operator==(const one_of&, const one_of&) = default;

  bool compresses(element_kind kind) const {
    return std::visit([&](const auto& policy) { return policy.compresses(kind); }, held_);
  }
  auto prepare(const bucket_layout& layout, program_world world) const {
    return std::visit([&](const auto& policy) { return program(policy.prepare(layout, world)); }, held_);
  }
  /// Where all alternatives have one.
  template <device_kernels Kernels>
    requires(compression_prepares_stream<lifted<Policies>, Kernels> && ...)
  compression::stream_reduction<Kernels> prepare_stream(const bucket_layout& layout, program_world world,
                                                        const Kernels& kernels) const {
    return std::visit([&](const auto& policy) { return policy.prepare_stream(layout, world, kernels); }, held_);
  }
  void describe(description& sink) const {
    std::visit([&](const auto& policy) { policy.describe(sink); }, held_);
  }

 private:
  template <class Policy>
  using program_of =
      decltype(std::declval<const lifted<Policy>&>().prepare(std::declval<bucket_layout>(), program_world{}));
  using program = compression::program_choice<program_of<Policies>...>;

  std::variant<lifted<Policies>...> held_;
};

/// An overlap policy where all alternatives are ones.
template <overlap_policy... Policies>
class one_of<Policies...> {
  template <class Work>
  using chosen_lane =
      detail::lane_choice<decltype(std::declval<const Policies&>().make_lane(std::declval<Work&>()))...>;

 public:
  template <detail::among<Policies...> Policy>
  one_of(Policy policy) : held_(std::move(policy)) {}

  friend bool operator==(const one_of&, const one_of&) = default;

  /// The return type is spelled out, since it is asked for while Work is not complete: it must not need this body.
  template <lane_work Work>
  chosen_lane<Work> make_lane(Work& work) const {
    return std::visit([&](const auto& policy) { return chosen_lane<Work>([&] { return policy.make_lane(work); }); },
                      held_);
  }
  void describe(description& sink) const {
    std::visit([&](const auto& policy) { policy.describe(sink); }, held_);
  }

 private:
  std::variant<Policies...> held_;
};

}  // namespace gradweave
