/// @file
/// `hook`: a compression policy made of a function over a bucket. The function changes values; the library sums them and
/// divides the sum, so that a hook can forget neither.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/compression/bucket_view.hpp>
#include <gradweave/compression/coded.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/compression/none.hpp>
#include <gradweave/description.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>

namespace gradweave::compression {

/// Changes nothing.
struct no_change {
  void operator()(const bucket_view&) const {}
};

/// What a hook calls. Copies share the functions: those are const, so nobody can tell.
template <class Before, class After>
struct hook_functions {
  std::string name;
  std::shared_ptr<const Before> before;
  std::shared_ptr<const After> after;
};

/// Another program with functions before and after it. Models stage_program, and sees what is before and after.
template <stage_program Program, class Before, class After>
class hooked_program {
 public:
  hooked_program(Program program, hook_functions<Before, After> functions, const bucket_layout& layout,
                 program_world world)
      : program_(std::move(program)),
        functions_(std::move(functions)),
        layout_(layout),
        members_(layout.members.begin(), layout.members.end()),
        world_(world) {}

  std::size_t scratch_bytes() const { return program_.scratch_bytes(); }
  std::size_t non_finite() const { return program_.non_finite(); }
  std::optional<collective_request> run(int stage, std::span<std::byte> scratch) {
    return program_.run(stage, scratch);
  }

  void before_reduction() {
    call(*functions_.before);
    gradweave::before_reduction(program_);
  }

  void after_reduction() {
    gradweave::after_reduction(program_);
    call(*functions_.after);
    ++world_.step;
  }

 private:
  /// Throws sync_error(aborted), whatever the function throws: the lane lets nothing else out.
  template <class Function>
  void call(const Function& function) const {
    bucket_layout layout = layout_;
    layout.members = members_;
    bucket_view view(layout, world_.size, world_.step);
    const auto fail = [&](const char* said) {
      throw sync_error(
          {errc::aborted, world_.rank, -1, -1, {}, "an exception in hook '" + functions_.name + "': " + said});
    };
    try {
      function(view);
    } catch (const std::exception& thrown) {
      fail(thrown.what());
    } catch (...) {
      fail("it is no std::exception");
    }
  }

  Program program_;
  hook_functions<Before, After> functions_;
  bucket_layout layout_;  // but for the members, which are gone
  std::vector<bucket_member> members_;
  program_world world_;
};

/// What: calls `before(bucket_view&)` on each bucket before ranks sum it, as the backward pass left it, and `after` once it
/// holds what the step ends with. Models: compression_policy. Semantics: weights, sum and division are the library's,
/// whatever the rules. Gradients that a rank did not use come as zeros. `after` has to do the same on every rank. With one
/// rank nothing travels, and neither is called. == compares names: the name is what ranks compare, so it tells all that the
/// functions depend on. Wire, memory, numerics: those of the policy that it is over; nothing is allocated in a step.
/// Threading: the lane's thread, one call at a time a rank. Failure: what a function throws fails the step on every rank.
/// Example: `hook("clamp to 1", [](auto& bucket) { bucket.transform([](auto v) { return std::clamp<decltype(v)>(v, -1, 1); }); })`.
template <compression_policy Over, class Before, class After>
class hooked {
 public:
  static constexpr collective_set collectives = Over::collectives;

  hooked(Over over, hook_functions<Before, After> functions)
      : over_(std::move(over)), functions_(std::move(functions)) {}

  friend bool operator==(const hooked& a, const hooked& b) {
    return a.functions_.name == b.functions_.name && a.over_ == b.over_;
  }

  /// The same functions around another compression policy, or a codec.
  template <class Policy>
    requires(compression_policy<Policy> || codec<Policy>)
  auto over(Policy policy) const {
    auto lifted = as_compression(std::move(policy));
    return hooked<decltype(lifted), Before, After>(std::move(lifted), functions_);
  }

  bool compresses(element_kind kind) const { return over_.compresses(kind); }

  auto prepare(const bucket_layout& layout, program_world world) const {
    return hooked_program(over_.prepare(layout, world), functions_, layout, world);
  }

  void describe(description& sink) const {
    sink.add("name", "hook");
    sink.add("hook", functions_.name);
    sink.nest("over", over_);
  }

 private:
  Over over_;
  hook_functions<Before, After> functions_;
};

/// Atom: callable while const with a `bucket_view&`, and returns nothing.
template <class Function>
concept bucket_function = requires(const Function& function, bucket_view& bucket) {
  { function(bucket) } -> std::same_as<void>;
};

/// A hook with functions before and after the sum. Its name must be the same on every rank. Throws contract_violation
/// where it is empty.
template <class Before, class After = no_change>
auto hook(std::string name, Before before, After after = {}) {
  constexpr bool fits = bucket_function<Before> && bucket_function<After>;
  static_assert(
      fits,
      "hook: the function must be callable with a gradweave::compression::bucket_view& while it is const, and "
      "return nothing: values are changed in place; state lives outside of it, captured by reference");
  if constexpr (fits) {
    require(!name.empty(), "hook: the name is empty; it is what ranks compare");
    return hooked<none, Before, After>(none{}, {std::move(name), std::make_shared<const Before>(std::move(before)),
                                                std::make_shared<const After>(std::move(after))});
  }
}

}  // namespace gradweave::compression
