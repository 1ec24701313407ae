/// @file
/// The steps of all ranks of a collective as one graph: what each costs, what it waits for, and which receive each send
/// meets. Made of the schedules that executors run; a simulation in virtual time runs it.
///
/// Where hosts do the same, the ranks of the first host stand for all: what one of them sends to a rank of another host
/// is what the same neighbour before that host sends to the rank with that place here.
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/collective/cost_model.hpp>
#include <gradweave/collective/schedule.hpp>

namespace gradweave {

/// A step of a schedule with its costs.
struct virtual_step {
  static constexpr std::uint32_t none = UINT32_MAX;

  step_kind kind = step_kind::copy;
  bool is_between = false;  ///< it has to do with another host
  std::int32_t rank = 0;
  std::int32_t peer = -1;        ///< as in the schedule; of work on borrowed memory, one of the lenders
  std::uint32_t number = 0;      ///< in its rank's schedule
  std::uint32_t waits = 0;       ///< for how many steps of its rank, with the one before in its channel
  std::uint32_t next = none;     ///< of its channel
  std::uint32_t partner = none;  ///< of a send the receive; of a give_back the loan; and the other way round
  double bytes = 0;              ///< of a message
  double work_s = 0;             ///< on the rank's own processor
  double opens_s = 0;            ///< until those whose opening it needs have told it
};

/// "send to rank 3", "reduce".
inline std::string to_string(const virtual_step& step) {
  const std::string peer = "rank " + std::to_string(step.peer);
  switch (step.kind) {
    case step_kind::send: return "send to " + peer;
    case step_kind::receive: return "receive from " + peer;
    case step_kind::receive_reduce: return "receive and reduce from " + peer;
    case step_kind::copy: return "copy";
    case step_kind::divide: return "divide";
    case step_kind::reduce: return "reduce";
    case step_kind::lend: return "lend to " + peer;
    case step_kind::give_back: break;
  }
  return "give back to " + peer;
}

/// "rank 0 step 7 (send to rank 3)".
inline std::string place_of(const virtual_step& step) {
  return "rank " + std::to_string(step.rank) + " step " + std::to_string(step.number) + " (" + to_string(step) + ")";
}

/// All of a world, or of its first host.
class virtual_steps {
 public:
  /// `representatives` are the ranks that are simulated: all, or those of the first host.
  virtual_steps(const cost_model& model, const host_topology& topology, bool by_symmetry, std::size_t element_bytes)
      : model_(model),
        topology_(topology),
        period_(by_symmetry ? topology.ranks_of(0) : topology.ranks()),
        element_bytes_(static_cast<double>(element_bytes)),
        entered_s_(static_cast<std::size_t>(period_)) {}

  /// Adds what the next rank does, from rank 0 on.
  void add(const schedule& plan) {
    const auto rank = static_cast<std::int32_t>(first_.size());
    const std::size_t begin = steps_.size();
    require(begin + plan.steps().size() < virtual_step::none, "virtual_steps: more than 4 billion steps");
    first_.push_back(static_cast<std::uint32_t>(begin));
    channels_.resize(2 * static_cast<std::size_t>(topology_.ranks()) + 1, virtual_step::none);
    for (const schedule_step& step : plan.steps()) {
      steps_.push_back(made_of(plan, step, rank));
      virtual_step& made = steps_.back();
      made.number = static_cast<std::uint32_t>(steps_.size() - 1 - begin);
      made.waits = step.dependencies_count;
      for (const schedule::index needed : plan.dependencies(step)) {
        waiting_.push_back({static_cast<std::uint32_t>(begin + needed), static_cast<std::uint32_t>(steps_.size() - 1)});
      }
      std::uint32_t& last = channels_[channel_of(step, static_cast<std::size_t>(topology_.ranks()))];
      if (last != virtual_step::none) {
        steps_[last].next = static_cast<std::uint32_t>(steps_.size() - 1);
        ++made.waits;
      }
      last = static_cast<std::uint32_t>(steps_.size() - 1);
    }
    note_openings(plan, rank);
    for (const schedule_step& step : plan.steps()) {
      channels_[channel_of(step, static_cast<std::size_t>(topology_.ranks()))] = virtual_step::none;
    }
  }

  /// After the last rank. Throws contract_violation where a message has no receiver, or another length there.
  void finish() {
    require(static_cast<int>(first_.size()) == period_, "virtual_steps: finish() needs the steps of every rank");
    std::ranges::sort(waiting_);
    waiting_from_.assign(steps_.size() + 1, 0);
    for (const dependency& each : waiting_) {
      ++waiting_from_[each.needed + 1];
    }
    for (std::size_t i = 1; i < waiting_from_.size(); ++i) {
      waiting_from_[i] += waiting_from_[i - 1];
    }
    match();
    for (virtual_step& step : steps_) {
      step.opens_s = opening_of(step);
    }
  }

  struct dependency {
    std::uint32_t needed;
    std::uint32_t step;
    friend auto operator<=>(const dependency&, const dependency&) = default;
  };

  std::span<virtual_step> steps() { return steps_; }
  std::span<const virtual_step> steps() const { return steps_; }
  /// The steps that wait for a step, with it as `needed`; not that which follows in its channel.
  std::span<const dependency> waiting_for(std::uint32_t step) const {
    return std::span(waiting_).subspan(waiting_from_[step], waiting_from_[step + 1] - waiting_from_[step]);
  }
  const cost_model& model() const { return model_; }
  const host_topology& topology() const { return topology_; }
  /// How many ranks are simulated.
  int representatives() const { return period_; }
  /// Who stands for a rank.
  int representative(int rank) const { return rank % period_; }
  /// How long a rank tells others that it has entered.
  double entered_s(int rank) const { return entered_s_[static_cast<std::size_t>(representative(rank))]; }

 private:
  /// Which receives and sends belong together: of the receiver that stands for all its like, by who sends.
  struct meeting {
    std::int32_t receiver;
    std::int32_t sender;
    bool is_loan;
    std::uint32_t step;
    friend auto operator<=>(const meeting&, const meeting&) = default;
    auto pair() const { return std::tuple(receiver, sender, is_loan); }
  };

  bool is_between(int rank, int peer) const { return peer >= 0 && topology_.host_of(rank) != topology_.host_of(peer); }

  virtual_step made_of(const schedule& plan, const schedule_step& step, std::int32_t rank) const {
    virtual_step made;
    made.kind = step.kind;
    made.rank = rank;
    made.peer = step.peer;
    made.is_between = is_between(rank, step.peer);
    made.opens_s = 0;
    const auto bytes = [&](const operand& range) { return static_cast<double>(range.count) * element_bytes_; };
    switch (step.kind) {
      case step_kind::send: made.bytes = bytes(step.source); break;
      case step_kind::receive: made.bytes = bytes(step.target); break;
      case step_kind::receive_reduce:
        made.bytes = bytes(step.target);
        made.work_s = made.bytes * model_.link(made.is_between).gamma_s_per_byte;
        break;
      case step_kind::copy: made.work_s = bytes(step.target) * model_.within.gamma_s_per_byte; break;
      case step_kind::divide: made.work_s = bytes(step.target) * model_.divide_s_per_byte; break;
      case step_kind::reduce: {
        // Each further source is combined and each further target written; a single source is written everywhere.
        const std::size_t combined = step.sources_count <= 1 ? 1 : step.sources_count - 1;
        const double passes = static_cast<double>(combined + step.targets_count - 1);
        const double divided = step.divides ? model_.divide_s_per_byte : 0;
        made.work_s = bytes(plan.targets(step).front()) * (passes * model_.within.gamma_s_per_byte + divided);
        break;
      }
      case step_kind::lend:
      case step_kind::give_back: break;
    }
    plan.for_each_operand(step, [&](const operand& range, bool) {
      if (range.lender >= 0) {
        require(!is_between(rank, range.lender), "virtual_steps: a rank borrows of one of another host");
        made.peer = range.lender;
      }
    });
    return made;
  }

  /// It tells those that it receives from, lends to or borrows from that it has entered, one after the other.
  void note_openings(const schedule& plan, int rank) {
    if (!model_.has_openings) {
      return;
    }
    told_.assign(static_cast<std::size_t>(topology_.ranks()), false);
    double& entered = entered_s_[static_cast<std::size_t>(rank)];
    const auto tell = [&](int peer) {
      if (peer >= 0 && !told_[static_cast<std::size_t>(peer)]) {
        told_[static_cast<std::size_t>(peer)] = true;
        entered += model_.link(is_between(rank, peer)).overhead_s;
      }
    };
    for (const schedule_step& step : plan.steps()) {
      const bool receives = step.kind == step_kind::receive || step.kind == step_kind::receive_reduce;
      if ((receives && step.target.count != 0) || step.kind == step_kind::lend || step.kind == step_kind::give_back) {
        tell(step.peer);
      }
    }
  }

  /// Until a step's peer has told it that it has entered: as the last of those that the peer tells.
  double opening_of(const virtual_step& step) const {
    const bool borrows = (step.kind == step_kind::reduce || step.kind == step_kind::copy) && step.peer >= 0;
    if (borrows) {
      return model_.within.alpha_s + (model_.has_openings ? entered_s(step.peer) - model_.within.overhead_s : 0);
    }
    if (step.kind != step_kind::send || step.bytes == 0 || !model_.has_openings) {
      return 0;
    }
    const link_cost& link = model_.link(step.is_between);
    return entered_s(step.peer) - link.overhead_s + link.alpha_s;
  }

  void match() {
    std::vector<meeting> begin, end;
    for (std::uint32_t i = 0; i < steps_.size(); ++i) {
      const virtual_step& step = steps_[i];
      const bool is_loan = step.kind == step_kind::give_back || step.kind == step_kind::lend;
      if (step.kind == step_kind::give_back || (step.kind == step_kind::send && step.bytes != 0)) {
        const int moved = step.peer - representative(step.peer);
        const int sender = (step.rank - moved + topology_.ranks()) % topology_.ranks();
        begin.push_back({representative(step.peer), sender, is_loan, i});
      } else if (step.kind == step_kind::lend || (is_reception(step) && step.bytes != 0)) {
        end.push_back({step.rank, step.peer, is_loan, i});
      }
    }
    std::ranges::sort(begin);
    std::ranges::sort(end);
    for (auto from = begin.begin(), to = end.begin(); from != begin.end();) {
      if (to == end.end() || from->pair() < to->pair()) {
        violate("virtual time: " + place_of(steps_[from->step]) +
                " meets no step of its peer; the schedules do not fit");
      }
      if (to->pair() < from->pair()) {
        ++to;  // nobody sends that: who waits for it is told once nothing moves any more
        continue;
      }
      join(from++->step, to++->step);
    }
  }

  void join(std::uint32_t from, std::uint32_t to) {
    if (steps_[from].bytes != steps_[to].bytes) {
      violate("virtual time: " + place_of(steps_[from]) + " has " + std::to_string(std::llround(steps_[from].bytes)) +
              " bytes, and " + place_of(steps_[to]) + " expects " + std::to_string(std::llround(steps_[to].bytes)));
    }
    steps_[from].partner = to;
    steps_[to].partner = from;
  }

  static bool is_reception(const virtual_step& step) {
    return step.kind == step_kind::receive || step.kind == step_kind::receive_reduce;
  }

  cost_model model_;
  const host_topology& topology_;
  int period_;
  double element_bytes_;
  std::vector<virtual_step> steps_;
  std::vector<std::uint32_t> first_;
  std::vector<dependency> waiting_;
  std::vector<std::uint32_t> waiting_from_;
  std::vector<std::uint32_t> channels_;  // of the rank that is added: the last step in each
  std::vector<bool> told_;
  std::vector<double> entered_s_;
};

}  // namespace gradweave
