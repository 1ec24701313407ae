/// @file
/// The conformance kit of compression policies. docs/reference/compression.md has what it checks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/loopback.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/guarded_memory.hpp>
#include <gradweave/testing/values.hpp>

namespace gradweave::testing {

/// What a policy claims of itself, and what shall be tried.
struct compression_conformance_options {
  /// How far an average over `size` ranks may be from the exact one. `relative` is times the mean of the contributions'
  /// magnitudes, `relative_to_block` times the largest magnitude in the bucket. Storing the result is included.
  std::function<rounding_bound(element_kind kind, int size)> bound;
  /// Payload bytes that all ranks together send for a bucket. Not checked where it is empty.
  std::function<std::uint64_t(const bucket_layout& layout, int size)> bytes_sent;
  /// Whether a program run again on the same gradients gives the same bits. False for error feedback, random rounding.
  bool stateless = true;
  std::vector<int> sizes = {1, 2, 3, 4};
  std::vector<element_kind> kinds = {element_kind::float32, element_kind::float64, element_kind::float16,
                                     element_kind::bfloat16};
  std::uint64_t seed = 1;
};

/// What a bandwidth-optimal all-reduce of `encoded` bytes sends, all ranks together: 2 (N-1)/N of it a rank.
inline std::uint64_t all_reduce_bytes(std::uint64_t encoded, int size) {
  return 2 * static_cast<std::uint64_t>(size - 1) * encoded;
}

/// What the two-phase driver sends for a codec: blocks do not cross slots; unsupported kinds travel as they are stored.
template <codec Codec>
std::uint64_t two_phase_bytes(const Codec& by, const bucket_layout& layout, int size) {
  std::uint64_t encoded = 0;
  for (const bucket_member& member : layout.members) {
    encoded += by.supports(layout.kind) ? by.wire_bytes(member.elements) : member.elements * element_bytes(layout.kind);
  }
  return all_reduce_bytes(encoded, size);
}

namespace detail {

/// A bucket to reduce: its members' elements, and how many extents it lies in.
struct compression_case {
  element_kind kind = element_kind::float32;
  std::vector<std::size_t> members;
  std::size_t extents = 1;

  std::string name(int size) const {
    std::string text = std::to_string(size) + " ranks, " + std::string(element_name(kind)) + " slots of";
    for (const std::size_t elements : members) {
      text += " " + std::to_string(elements);
    }
    return text + " elements in " + std::to_string(extents) + " extents";
  }
};

/// No element, fewer than ranks, a few, several slots, and more than a program works on at once, whole and in extents.
inline std::vector<compression_case> compression_cases(const std::vector<element_kind>& kinds) {
  std::vector<compression_case> cases;
  for (const element_kind kind : kinds) {
    cases.insert(cases.end(), {{kind, {0}, 1},
                               {kind, {1}, 1},
                               {kind, {3}, 2},
                               {kind, {17}, 3},
                               {kind, {5, 0, 700, 64, 1}, 5},
                               {kind, {4099, 2048}, 1},
                               {kind, {1200, 1301}, 3}});
  }
  return cases;
}

/// What one rank's run of a program left.
struct compression_outcome {
  std::vector<double> contribution;
  std::vector<double> result;
  std::vector<std::byte> bytes;
  std::size_t non_finite = 0;
  std::uint64_t sent = 0;
};

/// The runs of one case on one rank.
enum compression_run : std::size_t { clean_run, repeated_run, fresh_run, sum_run, overflow_run, compression_runs };

/// What `rank` brings as element `index`: a few binades, both signs. With `infinite`, rank 0's first element is an
/// infinity and the last rank's last one is NaN.
inline void fill_contribution(scattered_buffer& data, int rank, int size, std::uint64_t seed, bool infinite) {
  random_source random(seed * 1'000'003 + static_cast<std::uint64_t>(rank) + data.elements() * 64);
  for (std::size_t i = 0; i < data.elements(); ++i) {
    data.write(i, std::ldexp(random.signed_unit(), static_cast<int>(random.below(12)) - 8));
  }
  if (infinite && data.elements() != 0) {
    if (rank == 0) {
      data.write(0, std::numeric_limits<double>::infinity());
    }
    if (rank == size - 1) {
      data.write(data.elements() - 1, std::numeric_limits<double>::quiet_NaN());
    }
  }
}

inline std::vector<double> read_all(const scattered_buffer& data) {
  std::vector<double> values(data.elements());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = data.read(i);
  }
  return values;
}

/// One rank at work on one case.
template <compression_policy Policy, host_backend Backend>
class compression_rank {
 public:
  compression_rank(const Policy& policy, Backend& backend, const compression_case& given, std::uint64_t seed,
                   conformance_recorder& recorder)
      : policy_(policy),
        backend_(backend),
        given_(given),
        seed_(seed),
        recorder_(recorder),
        what_(given.name(backend.size())) {
    for (std::size_t i = 0; i < given.members.size(); ++i) {
      members_.push_back({slot{static_cast<std::uint32_t>(i)}, elements_, given.members[i]});
      elements_ += given.members[i];
    }
  }

  std::vector<compression_outcome> run_all() {
    std::vector<compression_outcome> outcomes(compression_runs);
    scattered_buffer data(given_.kind, elements_, given_.extents);
    const bucket_layout layout{given_.kind, elements_, members_, data.extents()};
    auto program = policy_.prepare(layout, world());
    outcomes[clean_run] = run(program, data, false);
    outcomes[repeated_run] = run(program, data, false);
    auto fresh = policy_.prepare(layout, world());
    outcomes[fresh_run] = run(fresh, data, false);
    program_world no_division = world();
    no_division.divisor = 1;
    auto summing = policy_.prepare(layout, no_division);
    outcomes[sum_run] = run(summing, data, false);
    auto overflowing = policy_.prepare(layout, world());
    outcomes[overflow_run] = run(overflowing, data, true);
    return outcomes;
  }

 private:
  static constexpr int stages_max = 64;

  program_world world() const {
    return {backend_.rank(), backend_.size(), static_cast<std::uint32_t>(backend_.size())};
  }

  /// Scratch holds what another bucket left there, and is fenced.
  template <stage_program Program>
  compression_outcome run(Program& program, scattered_buffer& data, bool infinite) {
    fill_contribution(data, backend_.rank(), backend_.size(), seed_, infinite);
    compression_outcome outcome;
    outcome.contribution = read_all(data);
    const canaried_memory scratch(program.scratch_bytes(), std::byte{0xcd});
    const std::uint64_t before = backend_.payload_bytes_sent();
    gradweave::before_reduction(program);
    int stage = 0;
    for (; stage < stages_max; ++stage) {
      const std::optional<collective_request> request = program.run(stage, scratch.bytes());
      if (!request) {
        break;
      }
      recorder_.check(collective_set(Policy::collectives).contains(request->operation), [&] {
        return what_ + ": requests " + std::string(to_string(request->operation)) +
               ", which `collectives` does not name";
      });
      run_collective(backend_, *request);
    }
    recorder_.check(stage < stages_max, [&] { return what_ + ": the program does not end"; });
    gradweave::after_reduction(program);
    outcome.sent = backend_.payload_bytes_sent() - before;
    outcome.result = read_all(data);
    outcome.bytes = data.bytes();
    outcome.non_finite = program.non_finite();
    recorder_.check(scratch.intact(), [&] { return what_ + ": memory outside of the scratch was written"; });
    recorder_.check(data.intact(), [&] { return what_ + ": memory outside of the bucket's extents was written"; });
    return outcome;
  }

  const Policy& policy_;
  Backend& backend_;
  const compression_case& given_;
  std::uint64_t seed_;
  conformance_recorder& recorder_;
  std::string what_;
  std::vector<bucket_member> members_;
  std::size_t elements_ = 0;
};

/// The outcomes of one case, of all its runs on all ranks: [rank][run].
using compression_outcomes = std::vector<std::vector<compression_outcome>>;

/// Element by element against the exact average, or sum, where every contribution is finite.
inline void check_average(const compression_outcomes& ranks, compression_run run, const rounding_bound& bound,
                          const std::string& what, conformance_recorder& recorder) {
  const std::size_t elements = ranks.front()[run].result.size();
  double largest = 0;
  for (const auto& rank : ranks) {
    for (const double value : rank[run].contribution) {
      largest = is_finite(value) ? std::max(largest, std::abs(value)) : largest;
    }
  }
  const bool is_sum = run == sum_run;
  const auto size = static_cast<double>(ranks.size());
  const double scale = is_sum ? size : 1;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    long double sum = 0;
    double magnitudes = 0;
    bool finite = true;
    for (const auto& rank : ranks) {
      finite = finite && is_finite(rank[run].contribution[i]);
      sum += rank[run].contribution[i];
      magnitudes += std::abs(rank[run].contribution[i]);
    }
    const double result = ranks.front()[run].result[i];
    if (!finite) {
      recorder.check(!is_finite(result),
                     [&] { return what + ": what is not finite on a rank must not be finite after"; });
    } else if (run != overflow_run) {
      const auto error = static_cast<double>(std::abs(result - sum / static_cast<long double>(size / scale)));
      wrong += is_finite(result) && error <= scale * bound.allowed(magnitudes / size, largest) ? 0 : 1;
    }
  }
  recorder.check(wrong == 0, [&] {
    return what + ": " + std::to_string(wrong) + " of " + std::to_string(elements) + (is_sum ? " sums" : " averages") +
           " are further from the exact one than the bound allows";
  });
}

inline void check_outcomes(const compression_outcomes& ranks, const compression_case& given, bool compresses,
                           const compression_conformance_options& options, conformance_recorder& recorder) {
  const int size = static_cast<int>(ranks.size());
  const std::string what = given.name(size);
  std::vector<bucket_member> members;
  std::size_t elements = 0;
  for (std::size_t i = 0; i < given.members.size(); ++i) {
    members.push_back({slot{static_cast<std::uint32_t>(i)}, elements, given.members[i]});
    elements += given.members[i];
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!recorder.check(ranks[r].size() == compression_runs,
                        [&] { return what + ": a rank did not get to the end"; })) {
      return;
    }
  }
  for (std::size_t run = 0; run < compression_runs; ++run) {
    std::uint64_t sent = 0;
    std::size_t non_finite = 0;
    for (const auto& rank : ranks) {
      sent += rank[run].sent;
      non_finite += rank[run].non_finite;
      recorder.check(rank[run].bytes == ranks.front()[run].bytes,
                     [&] { return what + ": ranks hold different bits after the reduction"; });
    }
    if (options.bytes_sent) {
      const std::uint64_t claimed = options.bytes_sent({given.kind, elements, members, {}}, size);
      recorder.check(sent == claimed, [&] {
        return what + ": " + std::to_string(sent) + " payload bytes were sent, " + std::to_string(claimed) + " claimed";
      });
    }
    if (run != overflow_run) {
      recorder.check(non_finite == 0, [&] { return what + ": non_finite() counts values although all are finite"; });
    } else if (compresses && elements != 0) {
      recorder.check(non_finite != 0, [&] { return what + ": non_finite() must count infinities and NaNs"; });
    }
    if (run != repeated_run || options.stateless) {
      check_average(ranks, static_cast<compression_run>(run), options.bound(given.kind, size), what, recorder);
    }
  }
  recorder.check(ranks.front()[clean_run].bytes == ranks.front()[fresh_run].bytes,
                 [&] { return what + ": a new program gives other bits for the same gradients"; });
  recorder.check(!options.stateless || ranks.front()[clean_run].bytes == ranks.front()[repeated_run].bytes,
                 [&] { return what + ": the program run again gives other bits for the same gradients"; });
}

}  // namespace detail

/// Checks a compression policy by reducing buckets with it: all ranks end with the same bits, the averages, and the sums
/// where the divisor is 1, are within the claimed bound of an exact reference, the bytes sent are those claimed, nothing
/// outside of scratch and bucket is written, infinities and NaNs stay and are counted. `run(size, body)` as for check_backend. A policy that hangs makes
/// it hang: run it under a watchdog.
template <compression_policy Policy, class Run>
conformance_report check_compression(const Policy& policy, const compression_conformance_options& options, Run&& run) {
  conformance_recorder recorder;
  const std::vector<detail::compression_case> cases = detail::compression_cases(options.kinds);
  for (const int size : options.sizes) {
    const std::string here = std::to_string(size) + " ranks";
    std::vector<detail::compression_outcomes> outcomes(cases.size(),
                                                       detail::compression_outcomes(static_cast<std::size_t>(size)));
    recorder.part(here, [&] {
      run(size, [&](auto backend) {
        recorder.part(here, [&] {
          for (std::size_t i = 0; i < cases.size(); ++i) {
            detail::compression_rank<Policy, decltype(backend)> rank(policy, backend, cases[i], options.seed + i,
                                                                     recorder);
            outcomes[i][static_cast<std::size_t>(backend.rank())] = rank.run_all();
          }
        });
      });
    });
    for (std::size_t i = 0; i < cases.size(); ++i) {
      detail::check_outcomes(outcomes[i], cases[i], policy.compresses(cases[i].kind), options, recorder);
    }
  }
  return recorder.report();
}

/// The same over the loopback backend.
template <compression_policy Policy>
conformance_report check_compression(const Policy& policy, const compression_conformance_options& options) {
  return check_compression(policy, options, [](int size, auto&& body) { backend::run_loopback(size, body); });
}

}  // namespace gradweave::testing
