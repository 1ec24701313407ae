/// @file
/// How long a collective takes, by running the schedules of its ranks in virtual time under a cost model.
///
/// What is modelled: steps run per channel and after their dependencies, as in the executor.
///  - A message leaves when its step is ready, its receiver has opened the collective, its sender has gone through the
///    overheads of the messages before, and the sender's port is free. It holds that port for bytes * beta; then the step
///    is done. Its first byte comes alpha later, and holds the receiver's port for bytes * beta, behind what came before.
///    Ports of messages between hosts are the hosts': their ranks share them. Within a host each rank has its own.
///  - Receiving and reducing overlap: the executor reduces piece by piece while the next one arrives. So what arrives at
///    once is done after the larger of arrival and reduction, and one piece more of reduction. A rank reduces one thing at
///    a time.
///  - What is lent can be used alpha (within a host) after its owner entered, and is back alpha after it was given back.
///    Work in memory takes gamma a byte for each source but the first and each target but the first.
///
/// What is not: buffers that fill up, loss, the memory bandwidth that ranks of one host share, and waiting for the
/// processor. All ranks enter at time 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/collective/cost_model.hpp>
#include <gradweave/collective/host_symmetry.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/collective/virtual_steps.hpp>

namespace gradweave {

/// What a simulation has found.
struct virtual_run {
  double seconds = 0;              ///< until the last rank has finished
  std::vector<double> finished_s;  ///< by rank; those of the first host where it stands for all
  std::size_t steps = 0;           ///< that were simulated
};

namespace detail {

/// Runs steps once.
class virtual_clock {
 public:
  explicit virtual_clock(virtual_steps& world)
      : world_(world),
        steps_(world.steps()),
        outgoing_(ports()),
        incoming_(ports()),
        arrivals_(steps_.size()),
        done_(steps_.size(), false) {
    for (int rank = 0; rank < world.representatives(); ++rank) {
      ranks_.push_back({.sends_from_s = world.entered_s(rank), .reduces_from_s = 0});
    }
  }

  virtual_run run() {
    for (std::uint32_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].waits == 0) {
        push(steps_[i].opens_s, phase::begin, i);
      }
    }
    virtual_run result;
    result.finished_s.assign(ranks_.size(), 0);
    while (!events_.empty()) {
      const event next = events_.top();
      events_.pop();
      if (next.what == phase::done) {
        double& finished = result.finished_s[static_cast<std::size_t>(steps_[next.step].rank)];
        finished = std::max(finished, next.time_s);
        ++result.steps;
      }
      handle(next);
    }
    if (result.steps != steps_.size()) {
      violate("virtual time: the collective can't finish: " + obstacles());
    }
    result.seconds = result.finished_s.empty() ? 0 : *std::ranges::max_element(result.finished_s);
    return result;
  }

 private:
  /// In the order in which those of one moment are handled.
  enum class phase : std::uint8_t { done, begin, leave, arrive, reduce };

  struct event {
    double time_s;
    phase what;
    std::uint64_t order;  // among those of one host, the same on every host
    std::uint32_t step;

    friend bool operator>(const event& a, const event& b) {
      return std::tie(a.time_s, a.what, a.order, a.step) > std::tie(b.time_s, b.what, b.order, b.step);
    }
  };
  struct rank_state {
    double sends_from_s = 0;
    double reduces_from_s = 0;
  };
  /// Of a reception.
  struct arrival {
    double ready_s = -1;
    double begin_s = -1;
    double end_s = -1;
  };

  std::size_t ports() const { return static_cast<std::size_t>(world_.topology().hosts() + world_.representatives()); }

  /// Of a host for messages between hosts, of the rank for others.
  std::size_t port(const virtual_step& step) const {
    return static_cast<std::size_t>(step.is_between ? world_.topology().host_of(step.rank)
                                                    : world_.topology().hosts() + step.rank);
  }

  const link_cost& link(const virtual_step& step) const { return world_.model().link(step.is_between); }

  /// By place in the host and step; of what arrives by sender first, counted from the own host.
  std::uint64_t order_of(phase what, const virtual_step& step) const {
    const host_topology& topology = world_.topology();
    const auto key = [&](int hosts, int place, std::uint32_t number) {
      return static_cast<std::uint64_t>(hosts) << 48U | static_cast<std::uint64_t>(place) << 32U | number;
    };
    if (what != phase::arrive) {
      return key(0, topology.place_of(step.rank), step.number);
    }
    const int hosts = topology.host_of(step.peer) - topology.host_of(step.rank);
    return key((hosts + topology.hosts()) % topology.hosts(), topology.place_of(step.peer), step.number);
  }

  void push(double time_s, phase what, std::uint32_t step) {
    events_.push({time_s, what, order_of(what, steps_[step]), step});
  }

  void handle(const event& now) {
    switch (now.what) {
      case phase::done: finish(now.step, now.time_s); break;
      case phase::begin: begin(now.step, now.time_s); break;
      case phase::leave: leave(now.step, now.time_s); break;
      case phase::arrive: arrive(now.step, now.time_s); break;
      case phase::reduce: reduce(now.step, now.time_s); break;
    }
  }

  void begin(std::uint32_t i, double now_s) {
    const virtual_step& step = steps_[i];
    rank_state& rank = ranks_[static_cast<std::size_t>(step.rank)];
    switch (step.kind) {
      case step_kind::send:
        if (step.bytes != 0) {
          rank.sends_from_s = std::max(now_s, rank.sends_from_s) + link(step).overhead_s;
          push(rank.sends_from_s, phase::leave, i);
          return;
        }
        break;
      case step_kind::receive:
      case step_kind::receive_reduce:
        if (step.bytes != 0) {
          arrivals_[i].ready_s = now_s;
          receive_where_possible(i);
          return;
        }
        break;
      case step_kind::copy:
      case step_kind::divide:
      case step_kind::reduce: push(now_s, phase::reduce, i); return;
      case step_kind::lend:
        arrivals_[i].ready_s = now_s;
        receive_where_possible(i);
        return;
      case step_kind::give_back: push(now_s + world_.model().within.alpha_s, phase::arrive, step.partner); break;
    }
    push(now_s, phase::done, i);
  }

  void leave(std::uint32_t i, double now_s) {
    const virtual_step& step = steps_[i];
    double& free_s = outgoing_[port(step)];
    const double begin_s = std::max(now_s, free_s);
    free_s = begin_s + step.bytes * link(step).beta_s_per_byte;
    push(free_s, phase::done, i);
    push(begin_s + (link(step).alpha_s - link(step).overhead_s), phase::arrive, step.partner);
  }

  void arrive(std::uint32_t i, double now_s) {
    const virtual_step& step = steps_[i];
    arrivals_[i].begin_s = arrivals_[i].end_s = now_s;
    if (step.kind != step_kind::lend) {
      double& free_s = incoming_[port(step)];
      arrivals_[i].begin_s = std::max(now_s, free_s);
      free_s = arrivals_[i].end_s = arrivals_[i].begin_s + step.bytes * link(step).beta_s_per_byte;
    }
    receive_where_possible(i);
  }

  void receive_where_possible(std::uint32_t i) {
    const arrival& came = arrivals_[i];
    if (came.ready_s < 0 || came.begin_s < 0) {
      return;
    }
    if (steps_[i].kind == step_kind::receive_reduce) {
      push(std::max(came.ready_s, came.begin_s), phase::reduce, i);
    } else {
      push(std::max(came.ready_s, came.end_s), phase::done, i);
    }
  }

  void reduce(std::uint32_t i, double now_s) {
    const virtual_step& step = steps_[i];
    double& free_s = ranks_[static_cast<std::size_t>(step.rank)].reduces_from_s;
    const double begin_s = std::max(now_s, free_s);
    free_s = begin_s + step.work_s;
    if (step.kind != step_kind::receive_reduce) {
      push(free_s, phase::done, i);
      return;
    }
    const double last_bytes = std::min(step.bytes, static_cast<double>(world_.model().piece_bytes));
    const double last_s = step.work_s * (last_bytes / step.bytes);
    push(std::max(arrivals_[i].end_s, begin_s + (step.work_s - last_s)) + last_s, phase::done, i);
  }

  void finish(std::uint32_t i, double now_s) {
    done_[i] = true;
    for (const auto& each : world_.waiting_for(i)) {
      release(each.step, now_s);
    }
    if (steps_[i].next != virtual_step::none) {
      release(steps_[i].next, now_s);
    }
  }

  void release(std::uint32_t i, double now_s) {
    if (--steps_[i].waits == 0) {
      push(std::max(now_s, steps_[i].opens_s), phase::begin, i);
    }
  }

  /// The steps that began and can't end, with what they wait for; else those that wait for themselves.
  std::string obstacles() const {
    constexpr std::size_t named_max = 8;
    std::string text;
    std::size_t named = 0;
    for (const bool began : {true, false}) {
      for (std::uint32_t i = 0; i < steps_.size(); ++i) {
        const virtual_step& step = steps_[i];
        if (done_[i] || (step.waits == 0) != began) {
          continue;
        }
        if (named++ < named_max) {
          text += (text.empty() ? "" : "; ") + place_of(step) + " waits for " + (began ? wanted(step) : needed(i));
        }
      }
      if (named != 0) {
        break;
      }
    }
    return text + (named > named_max ? "; and " + std::to_string(named - named_max) + " more" : "");
  }

  std::string wanted(const virtual_step& step) const {
    if (step.partner == virtual_step::none) {
      return "what rank " + std::to_string(step.peer) + " never does";
    }
    const virtual_step& partner = steps_[step.partner];
    return place_of(partner) + ", which waits for " + needed(step.partner);
  }

  /// The steps of its own rank that a step waits for.
  std::string needed(std::uint32_t i) const {
    std::string text;
    for (std::uint32_t other = 0; other < steps_.size(); ++other) {
      const auto waiting = world_.waiting_for(other);
      const bool is_waited_for =
          steps_[other].next == i || std::ranges::any_of(waiting, [&](const auto& each) { return each.step == i; });
      if (is_waited_for && !done_[other]) {
        text += (text.empty() ? "step " : ", ") + std::to_string(steps_[other].number);
      }
    }
    return text.empty() ? "nothing" : text + " of its own";
  }

  virtual_steps& world_;
  std::span<virtual_step> steps_;
  std::vector<rank_state> ranks_;
  std::vector<double> outgoing_;
  std::vector<double> incoming_;
  std::vector<arrival> arrivals_;
  std::vector<bool> done_;
  std::priority_queue<event, std::vector<event>, std::greater<>> events_;
};

template <class Make>
virtual_run run_in_virtual_time(const cost_model& model, const host_topology& topology, std::size_t element_bytes,
                                bool by_symmetry, Make&& make) {
  model.check();
  virtual_steps world(model, topology, by_symmetry, element_bytes);
  schedule plan;
  for (int rank = 0; rank < world.representatives(); ++rank) {
    plan.clear();
    make(schedule_world{rank, topology.ranks()}, plan);
    world.add(plan);
  }
  world.finish();
  return virtual_clock(world).run();
}

}  // namespace detail

/// Runs the schedules that `make(schedule_world, schedule&)` makes, of all ranks. Throws contract_violation that names
/// ranks and steps where they can't finish.
template <class Make>
virtual_run simulate_all_ranks(const cost_model& model, const host_topology& topology, std::size_t element_bytes,
                               Make&& make) {
  return detail::run_in_virtual_time(model, topology, element_bytes, false, make);
}

/// The same, by the ranks of the first host alone. Throws contract_violation where hosts do not do the same, as
/// has_host_symmetry finds out.
template <class Make>
virtual_run simulate_one_host(const cost_model& model, const host_topology& topology, std::size_t element_bytes,
                              Make&& make) {
  require(has_host_symmetry(topology, make), "virtual time: hosts do different things; simulate all ranks");
  return detail::run_in_virtual_time(model, topology, element_bytes, true, make);
}

}  // namespace gradweave
