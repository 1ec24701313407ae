/// @file
/// Runs a program over the library, and compares what comes of it with what the reference expects.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/gradweave.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/networks.hpp"
#include "tests/support/program.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/tcp.hpp"
#include "tests/support/trial.hpp"

namespace gradweave::tests {

inline element_kind kind_of(number_format format) {
  constexpr element_kind kinds[] = {element_kind::float32, element_kind::float64, element_kind::float16,
                                    element_kind::bfloat16};
  return kinds[static_cast<std::size_t>(format)];
}

inline policy_choice policies_of(const program& what) {
  // So small that a few slots have several buckets.
  const bucketing::bucket_caps caps{.bucket_bytes_max = 200, .first_bucket_bytes_max = 60};
  const any_compression compressions[] = {compression::none{}, compression::fp16{}, compression::bf16{},
                                          compression::per_hop_rounding{}, negating_hook()};
  const any_bucketing bucketings[] = {bucketing::per_tensor{}, bucketing::fixed_bytes{caps},
                                      bucketing::ready_order{caps},
                                      bucketing::merge_optimal{caps, {.alpha_s = 1e-6, .beta_s_per_byte = 1e-9}},
                                      bucketing::needed_first{caps, {.alpha_s = 1}}};  // all that waits overtakes
  const bool hooked = what.compression == program_compression::hook;                   // changes nothing in the end
  return {"", hooked ? compression_name::none : static_cast<compression_name>(what.compression),
          compressions[static_cast<std::size_t>(what.compression)],
          what.progress_thread ? any_overlap(overlap::progress_thread{}) : any_overlap(overlap::blocking{}),
          bucketings[static_cast<std::size_t>(what.bucketing)]};
}

inline step_rules rules_of(const program& what) {
  return {.unused_gradients = what.zero_fill ? unused::zero_fill : unused::strict,
          .average = static_cast<averaging>(what.average),
          .divide = static_cast<division>(what.divide),
          .uses = what.recorded_uses ? use_counts::recorded : use_counts::declared,
          .joined = what.joined_left_out ? joined_ranks::left_out : joined_ranks::counted};
}

/// What a rank had after a step.
struct observed_state {
  std::vector<std::vector<double>> slots;
  std::vector<double> buffers;
  std::vector<int> told;  // how often on_reduced told of each slot
};

struct rank_outcome {
  std::vector<observed_state> after;  // of the steps that ended well
  std::optional<failure> cause;       // of a sync_error
  std::string other;                  // what() of anything else
};

inline std::string mishap_text(std::size_t rank) { return "the mishap of rank " + std::to_string(rank); }

/// A rank's part of one direction: gradients and buffers with their synchronizer.
class direction_run {
 public:
  direction_run(const program& what, std::size_t rank, any_backend backend)
      : what_(what), rank_(rank), model_(slots_of(what)), told_(what.slots.size()) {
    manifest listed = model_.make_manifest();
    for (std::size_t b = 0; b < what.buffers.size(); ++b) {
      const program_buffer& buffer = what.buffers[b];
      const auto from = static_cast<int>(buffer.from % static_cast<std::size_t>(backend.size()));
      buffers_.push_back(std::make_unique<any_tensor>(kind_of(buffer.format), std::size_t{3}));
      listed.add_buffer("buffer" + std::to_string(b), *buffers_.back(),
                        buffer.averaged ? buffer_rule::average() : buffer_rule::broadcast(from));
    }
    sync_.emplace(synchronize_trial(std::move(listed), std::move(backend), policies_of(what), rules_of(what)));
    sync_->on_reduced([this](std::span<const slot> slots) {
      if (breaks_reducing_) {
        throw std::domain_error(mishap_text(rank_));
      }
      for (const slot each : slots) {
        ++told_[each.index];
      }
    });
    for (std::size_t s = 0; s < model_.size(); ++s) {
      for (std::size_t i = 0; i < model_.tensor(s).elements; ++i) {
        model_.tensor(s).set(i, program::begin(rank));
      }
    }
  }

  /// All passes of a step.
  void run_step(std::size_t number) {
    const std::size_t last = what_.steps[number].passes.size() - 1;
    begun_ = 0;
    for (std::size_t pass = what_.first_pass(rank_, number); pass < last; ++pass) {
      if (drops(number, pass)) {
        drop(sync_->begin_accumulation(), number, pass);
      }
      sync_->accumulate([&](auto& step) { run_pass(step, number, pass); });
    }
    if (drops(number, last)) {
      drop(sync_->begin_step(), number, last);
    }
    breaks_reducing_ = what_.breaks_reducing(rank_, number);
    const auto backward = [&](auto& step) {
      run_pass(step, number, last);
      for (std::size_t b = 0; b < buffers_.size(); ++b) {
        buffers_[b]->set(2, what_.buffer(rank_, number, b));
      }
      for (std::uint32_t s = 0; what_.waits && s < model_.size(); ++s) {
        if ((what_.steps[number].passes[last].used[rank_] >> s & 1) != 0) {
          step.wait({s});
          waited_for_.emplace_back(s, model_.tensor(s).bytes());
        }
      }
    };
    const bool is_weighted = what_.average == program_average::weighted;
    waited_for_.clear();
    sync_->step(backward, {.samples = is_weighted ? what_.steps[number].samples[rank_] : 1});
    breaks_reducing_ = false;
    for (const auto& [s, bytes] : waited_for_) {
      if (model_.tensor(s).bytes() != bytes) {
        throw std::logic_error("wait: slot " + std::to_string(s) + " was not yet what it is after the step");
      }
    }
  }

  template <class AfterStep>
  void join(AfterStep&& after_step) {
    sync_->join(after_step);
  }

  observed_state look() {
    observed_state seen;
    for (std::size_t s = 0; s < model_.size(); ++s) {
      seen.slots.emplace_back();
      for (std::size_t i = 0; i < model_.tensor(s).elements; ++i) {
        seen.slots.back().push_back(model_.tensor(s).get(i));
      }
    }
    for (const auto& buffer : buffers_) {
      seen.buffers.push_back(buffer->get(2));
    }
    seen.told = std::exchange(told_, std::vector<int>(told_.size()));
    return seen;
  }

 private:
  static std::vector<trial_slot> slots_of(const program& what) {
    std::vector<trial_slot> slots;
    for (const program_slot& each : what.slots) {
      slots.push_back({kind_of(each.format), each.elements, static_cast<residence>(each.home), each.uses});
    }
    return slots;
  }

  bool drops(std::size_t number, std::size_t pass) const {
    return what_.steps[number].wrong == mishap::drops && what_.breaks_off(rank_, number, pass);
  }

  /// The next call tells this rank too.
  template <class Step>
  void drop(Step begun, std::size_t number, std::size_t pass) {
    {
      Step dropped(std::move(begun));
      run_pass(dropped, number, pass);
    }
    static_cast<void>(sync_->begin_step());
    throw std::logic_error("a step that was dropped does not count");
  }

  template <class Step>
  void run_pass(Step& step, std::size_t number, std::size_t pass) {
    const program_step& does = what_.steps[number];
    std::vector<std::uint32_t> order;
    for (std::uint32_t s = 0; s < model_.size(); ++s) {
      if ((does.passes[pass].used[rank_] >> s & 1) != 0) {
        order.insert(order.end(), what_.times(rank_, number, s), s);
      }
    }
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[what_.draw(rank_, number * 8 + pass, i) % i]);
    }
    const bool breaks_off = what_.breaks_off(rank_, number, pass);
    for (std::size_t use = 0; use < order.size() && !(breaks_off && use == does.after_uses); ++use) {
      add_gradient(number, pass, order[use]);
      step.ready({order[use]});
    }
    if (breaks_off && does.wrong == mishap::repeats) {
      const std::uint32_t again = order.empty() ? 0 : order.front();
      for (std::uint32_t use = 0; use <= what_.slots[again].uses; ++use) {
        step.ready({again});
      }
    }
    if (breaks_off && does.wrong == mishap::throws) {
      throw std::domain_error(mishap_text(rank_));
    }
  }

  /// The trainer's part of an accumulation.
  void add_gradient(std::size_t number, std::size_t pass, std::uint32_t s) {
    any_tensor& tensor = model_.tensor(s);
    for (std::size_t i = 0; i < tensor.elements; ++i) {
      const double before = (begun_ >> s & 1) != 0 ? tensor.get(i) : 0;
      tensor.set(i, before + what_.gradient(rank_, number, pass, s, i));
    }
    begun_ |= 1U << s;
  }

  using synchronizer_type =
      decltype(synchronize_trial(std::declval<manifest>(), std::declval<any_backend>(), std::declval<policy_choice>()));

  const program& what_;
  std::size_t rank_;
  trial_model model_;
  std::vector<std::unique_ptr<any_tensor>> buffers_;
  std::vector<int> told_;
  std::vector<std::pair<std::uint32_t, std::vector<std::byte>>> waited_for_;  // slots of this step, as they were then
  bool breaks_reducing_ = false;
  std::uint32_t begun_ = 0;  // what this step has a gradient of already
  std::optional<synchronizer_type> sync_;
};

template <class Backend>
void run_rank(Backend world, const program& what, rank_outcome& outcome) {
  const auto rank = static_cast<std::size_t>(world.rank());
  try {
    std::vector<std::unique_ptr<direction_run>> directions;
    for (const each_rank<int>& colours : what.directions) {
      any_backend group = what.is_split() ? any_backend(world.split(colours[rank], 0).value()) : any_backend(world);
      directions.push_back(std::make_unique<direction_run>(what, rank, std::move(group)));
    }
    bool uneven = false;
    for (std::size_t other = 0; other < what.ranks; ++other) {
      uneven = uneven || !what.has_data(other, what.steps.size() - 1);
    }
    for (std::size_t s = 0; s < what.steps.size() && what.has_data(rank, s); ++s) {
      direction_run& direction = *directions[what.steps[s].direction];
      direction.run_step(s);
      outcome.after.push_back(direction.look());
    }
    if (uneven) {
      directions[0]->join([&] { outcome.after.push_back(directions[0]->look()); });
    }
  } catch (const sync_error& error) {
    outcome.cause = error.cause();
  } catch (const std::exception& error) {
    outcome.other = error.what();
  }
}

/// Threads that wait for work: to start some for each of thousands of programs takes longer than the programs.
class rank_threads {
 public:
  rank_threads() {
    for (std::size_t rank = 0; rank < program_ranks_max; ++rank) {
      threads_.emplace_back([this, rank] { serve(rank); });
    }
  }
  rank_threads(const rank_threads&) = delete;
  rank_threads& operator=(const rank_threads&) = delete;
  ~rank_threads() {
    call({});
    for (std::thread& each : threads_) {
      each.join();
    }
  }

  /// Calls `body(rank)` on all of them, and waits. It must not throw.
  void call(std::function<void(std::size_t)> body) {
    std::unique_lock lock(mutex_);
    body_ = std::move(body);
    working_ = program_ranks_max;
    ++round_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return working_ == 0; });
  }

 private:
  void serve(std::size_t rank) {
    for (std::uint64_t seen = 0;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return round_ != seen; });
        seen = round_;
      }
      if (body_) {
        body_(rank);
      }
      std::lock_guard lock(mutex_);
      if (--working_ == 0) {
        changed_.notify_all();
      }
      if (!body_) {
        return;
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t round_ = 0;
  std::size_t working_ = 0;
  std::function<void(std::size_t)> body_;  // none: they end
  std::vector<std::thread> threads_;
};

inline std::vector<rank_outcome> run_program(const program& what, network over, rank_threads& threads) {
  std::vector<rank_outcome> outcomes(what.ranks);
  const auto size = static_cast<int>(what.ranks);
  const backend::scheduled_options wait{.timeout = testing::watchdog::scaled(std::chrono::seconds(10))};
  const auto run = [&](auto world) {
    rank_outcome& outcome = outcomes[static_cast<std::size_t>(world.rank())];
    run_rank(std::move(world), what, outcome);
  };
  if (over == network::loopback) {
    auto ends = backend::make_loopback(size, wait);
    threads.call([&](std::size_t rank) {
      if (rank < ends.size()) {
        run(std::move(ends[rank]));
      }
    });
  } else {
    run_tcp(size, run, wait, over == network::shared_memory);
  }
  return outcomes;
}

/// What is wrong with a step that ended well on a rank, if anything is.
inline std::string state_fault(const program& what, const expected_state& expected, const observed_state& seen,
                               const observed_state& first, std::size_t group_size) {
  const policy_choice choice = policies_of(what);
  const auto size = static_cast<int>(group_size);
  for (std::size_t s = 0; s < what.slots.size(); ++s) {
    const std::string name = "slot " + std::to_string(s);
    const bool used = (expected.used >> s & 1) != 0;
    if (used && seen.slots[s] != first.slots[s]) {
      return name + " differs between ranks";
    }
    if (seen.told[s] != (used ? 1 : 0)) {
      return "on_reduced told of " + name + " " + std::to_string(seen.told[s]) + " times";
    }
    for (std::size_t i = 0; i < what.slots[s].elements; ++i) {
      const auto& [value, magnitude] = expected.slots[s][i];
      // Weights, and quotients before the sum, are rounded once more; sums are N times a mean, with N times its error.
      const double bound = 4 * size * average_bound(choice, kind_of(what.slots[s].format), size, magnitude);
      if (!(std::abs(seen.slots[s][i] - value) <= (size == 1 ? 0 : bound))) {
        return name + ", element " + std::to_string(i) + " is " + std::to_string(seen.slots[s][i]) + ", not " +
               std::to_string(value);
      }
    }
  }
  for (std::size_t b = 0; b < what.buffers.size(); ++b) {
    const double bound = 4 * unit_roundoff(kind_of(what.buffers[b].format)) * expected.buffers[b];
    if (!(std::abs(seen.buffers[b] - expected.buffers[b]) <= (size == 1 ? 0 : bound))) {
      return "buffer " + std::to_string(b) + " is " + std::to_string(seen.buffers[b]) + ", not " +
             std::to_string(expected.buffers[b]);
    }
  }
  return "";
}

/// Words that tell of what a rank did.
inline std::string words_of(mishap wrong, std::size_t rank) {
  switch (wrong) {
    case mishap::repeats: return "was backward called twice?";
    case mishap::drops: return "a missing finish()";
    default: return mishap_text(rank);
  }
}

/// Whether a rank that failed was told of `culprit`, which failed in step `number`.
inline bool tells_of(const program& what, const rank_outcome& outcome, std::size_t rank, std::size_t number,
                     std::size_t culprit, expected_fault fault) {
  const std::string does = words_of(what.steps[number].wrong, culprit);
  if (!outcome.cause) {
    return culprit == rank && fault == expected_fault::throws && outcome.other.find(does) != std::string::npos;
  }
  constexpr errc codes[] = {errc::aborted, errc::gradient_missing, errc::collective_mismatch};
  const std::string& words = outcome.cause->detail;
  const bool named = what.is_split() ? words.find("rank " + std::to_string(culprit) + " of the job") != words.npos
                                     : outcome.cause->rank == static_cast<int>(culprit);
  return named && outcome.cause->code == codes[static_cast<std::size_t>(fault)] &&
         (fault != expected_fault::throws || words.find(does) != words.npos);
}

/// What is wrong with how a rank ended, if anything is.
inline std::string end_fault(const program& what, const expectation& expected, const rank_outcome& outcome,
                             std::size_t rank) {
  const std::size_t steps = expected.steps[rank];
  const bool failed = outcome.cause.has_value() || !outcome.other.empty();
  const std::string told = outcome.cause ? to_string(*outcome.cause) : outcome.other;
  if (!failed) {
    return outcome.after.size() != steps ? "it ends well after " + std::to_string(outcome.after.size()) + " steps"
           : expected.fails[rank]        ? "it has not been told of the failure"
                                         : "";
  }
  // A failure in another group is told whenever it comes.
  if (outcome.after.size() > steps || (!what.is_split() && (outcome.after.size() != steps || !expected.fails[rank]))) {
    return "it fails after " + std::to_string(outcome.after.size()) + " steps: " + told;
  }
  for (std::size_t s = 0; s < expected.culprits.size(); ++s) {
    for (const auto& [culprit, fault] : expected.culprits[s]) {
      if ((what.is_split() || s == steps) && tells_of(what, outcome, rank, s, culprit, fault)) {
        return "";
      }
    }
  }
  return "it is told of another failure: " + told;
}

/// The first thing that is not as the reference expects.
inline std::string program_fault(const program& what, network over, rank_threads& threads,
                                 mistake made = mistake::none) {
  const std::vector<rank_outcome> outcomes = run_program(what, over, threads);
  const expectation expected = run_reference(what, made);
  for (std::size_t rank = 0; rank < what.ranks; ++rank) {
    const rank_outcome& outcome = outcomes[rank];
    const std::string name = "rank " + std::to_string(rank);
    for (std::size_t s = 0; s < outcome.after.size() && s < expected.steps[rank]; ++s) {
      const std::vector<std::size_t> group = what.group_of(rank, what.steps[s].direction);
      const auto& of_first = outcomes[group.front()].after;
      const observed_state& first = s < of_first.size() ? of_first[s] : outcome.after[s];
      if (auto fault = state_fault(what, expected.after[s][rank], outcome.after[s], first, group.size());
          !fault.empty()) {
        return name + ", step " + std::to_string(s) + ": " + fault;
      }
    }
    if (auto fault = end_fault(what, expected, outcome, rank); !fault.empty()) {
      return name + ": " + fault;
    }
  }
  return "";
}

}  // namespace gradweave::tests
