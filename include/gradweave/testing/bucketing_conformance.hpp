/// @file
/// The conformance kit of bucketing policies. docs/reference/bucketing.md has what it checks.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/testing/conformance.hpp>

namespace gradweave::testing {

struct bucketing_conformance_options {
  std::uint64_t seed = 1;
  std::size_t random_cases = 60;
  std::size_t slots_max = 200;      ///< of a random case
  std::uint64_t steps_asked = 100;  ///< replans_after is asked about steps 0 to this
};

namespace detail {

/// Slots, what was observed of them, and words for messages.
struct bucketing_case {
  std::string name;
  std::vector<slot_size> slots;
  std::vector<ready_event> observed;
};

/// The first `count` slots of a random order, with rising times.
inline std::vector<ready_event> random_observation(random_source& random, std::size_t slots, std::size_t count) {
  std::vector<std::uint32_t> order(slots);
  for (std::size_t i = 0; i < slots; ++i) {
    order[i] = static_cast<std::uint32_t>(i);
  }
  std::vector<ready_event> observed;
  for (std::size_t i = 0; i < count; ++i) {
    std::swap(order[i], order[i + random.below(slots - i)]);
    observed.push_back({slot{order[i]}, std::chrono::microseconds(10 * i)});
  }
  return observed;
}

inline std::vector<slot_size> random_slots(random_source& random, std::size_t count) {
  constexpr std::array kinds = {element_kind::float32, element_kind::float64, element_kind::float16,
                                element_kind::bfloat16};
  const bool mixed = random.below(2) == 0;
  const std::size_t magnitude = 1 + random.below(40);
  std::vector<slot_size> slots;
  for (std::size_t i = 0; i < count; ++i) {
    const element_kind kind = mixed ? kinds[random.below(kinds.size())] : kinds[0];
    const std::size_t elements = random.below(8) == 0 ? 0 : random.below(std::size_t{1} << magnitude);
    slots.push_back({kind, elements * element_bytes(kind)});
  }
  return slots;
}

inline std::vector<bucketing_case> bucketing_cases(const bucketing_conformance_options& options) {
  const std::size_t huge = std::size_t{1} << 50;
  const slot_size small{element_kind::float32, 64};
  std::vector<bucketing_case> cases = {
      {"no slots", {}, {}},
      {"one slot", {small}, {}},
      {"one slot, observed", {small}, {{slot{0}, {}}}},
      {"one empty slot", {{element_kind::float32, 0}}, {}},
      {"huge slots", std::vector<slot_size>(5, {element_kind::float64, huge}), {}},
      {"10000 small slots", std::vector<slot_size>(10'000, small), {}},
      {"one slot of each kind",
       {small, {element_kind::float64, 8}, {element_kind::float16, 2}, {element_kind::bfloat16, 2}},
       {}},
  };
  random_source random(options.seed);
  for (std::size_t i = 0; i < options.random_cases; ++i) {
    bucketing_case made{"random case " + std::to_string(i) + " of seed " + std::to_string(options.seed),
                        random_slots(random, random.below(options.slots_max + 1)),
                        {}};
    const std::size_t slots = made.slots.size();
    // All of them, none of them, or some: a step may end before every slot was seen.
    const std::size_t observed = i % 3 == 0 ? slots : i % 3 == 1 ? 0 : random.below(slots + 1);
    made.observed = random_observation(random, slots, observed);
    cases.push_back(std::move(made));
  }
  return cases;
}

}  // namespace detail

/// Checks that plans are valid whatever is asked and was observed, and that the policy is a pure
/// function: the same question gets the same answer from it, from its copy, in any order of questions.
template <bucketing_policy Policy>
conformance_report check_bucketing(const Policy& policy, const bucketing_conformance_options& options = {}) {
  conformance_recorder recorder;
  const std::vector<detail::bucketing_case> cases = detail::bucketing_cases(options);
  std::vector<bucket_plan> plans(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    recorder.part(cases[i].name, [&] {
      plans[i] = policy.plan({cases[i].slots, cases[i].observed});
      const std::string fault = plan_fault(plans[i], cases[i].slots);
      recorder.check(fault.empty(), [&] { return cases[i].name + ": the plan is not valid: " + fault; });
    });
  }
  const Policy copy = policy;
  for (std::size_t i = cases.size(); i-- > 0;) {
    recorder.part(cases[i].name, [&] {
      // Elsewhere in memory, so that a plan that depends on addresses shows.
      const auto slots = cases[i].slots;
      const auto observed = cases[i].observed;
      recorder.check(policy.plan({slots, observed}) == plans[i],
                     [&] { return cases[i].name + ": plan() gave another answer to the same question"; });
      recorder.check(copy.plan({slots, observed}) == plans[i],
                     [&] { return cases[i].name + ": an equal policy made another plan"; });
    });
  }
  recorder.part("replans_after", [&] {
    std::vector<bool> answers;
    for (std::uint64_t step = 0; step <= options.steps_asked; ++step) {
      answers.push_back(policy.replans_after(step));
    }
    for (std::uint64_t step = options.steps_asked + 1; step-- > 0;) {
      recorder.check(policy.replans_after(step) == answers[step] && copy.replans_after(step) == answers[step], [&] {
        return "replans_after(" + std::to_string(step) + ") gave two answers; ranks would not re-plan together";
      });
    }
  });
  return recorder.report();
}

}  // namespace gradweave::testing
