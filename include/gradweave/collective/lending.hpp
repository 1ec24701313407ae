/// @file
/// What ranks lend each other in a collective: the part of the proof that matches loans with what they are used for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <gradweave/collective/schedule.hpp>

namespace gradweave::detail {

class lending {
 public:
  /// One schedule a rank; they must outlive it.
  explicit lending(std::span<const schedule> plans) : plans_(plans) {
    const auto size = static_cast<int>(plans.size());
    for (int rank = 0; rank < size; ++rank) {
      for (const schedule_step& step : plan_of(rank).steps()) {
        if (step.kind == step_kind::lend && !loans_.try_emplace({rank, step.peer}, &step).second) {
          fault_ = name(rank) + " lends twice to " + name(step.peer);
        }
      }
    }
    for (int rank = 0; rank < size; ++rank) {
      for (const schedule_step& step : plan_of(rank).steps()) {
        plan_of(rank).for_each_operand(step, [&](const operand& range, bool writes) { use(rank, range, writes); });
      }
    }
    for (const auto& [pair, step] : loans_) {
      const auto used = used_.find(pair);
      const std::size_t end = used == used_.end() ? 0 : used->second;
      elements_ += lent(*step).count;
      // The opening compares lengths, so what is used must reach to the end.
      if (end != lent(*step).count && fault_.empty()) {
        fault_ = name(pair.first) + " lends " + std::to_string(lent(*step).count) + " elements of which " +
                 name(pair.second) + " uses " + std::to_string(end);
      }
    }
  }

  /// Empty, or what does not match.
  const std::string& fault() const { return fault_; }

  /// Lent by all ranks together.
  std::size_t elements() const { return elements_; }

  /// Whose memory an operand of `rank` is in, and where.
  std::pair<int, operand> place_of(int rank, const operand& range) const {
    if (range.lender < 0) {
      return {rank, range};
    }
    const operand& loan = lent(*loans_.at({range.lender, rank}));
    return {range.lender, {loan.buffer, loan.begin + range.begin, range.count}};
  }

 private:
  using lender_and_borrower = std::pair<int, int>;

  static std::string name(int rank) { return "rank " + std::to_string(rank); }
  static const operand& lent(const schedule_step& lend) { return lend.target.count != 0 ? lend.target : lend.source; }
  const schedule& plan_of(int rank) const { return plans_[static_cast<std::size_t>(rank)]; }

  void use(int rank, const operand& range, bool writes) {
    if (range.lender < 0 || range.count == 0 || !fault_.empty()) {
      return;
    }
    const auto loan = loans_.find({range.lender, rank});
    if (loan == loans_.end() || (writes ? loan->second->target : loan->second->source).count == 0) {
      fault_ =
          name(rank) + (writes ? " writes" : " reads") + " what " + name(range.lender) + " does not lend it for that";
      return;
    }
    std::size_t& end = used_[{range.lender, rank}];
    end = std::max(end, range.end());
  }

  std::span<const schedule> plans_;
  std::map<lender_and_borrower, const schedule_step*> loans_;
  std::map<lender_and_borrower, std::size_t> used_;
  std::size_t elements_ = 0;
  std::string fault_;
};

}  // namespace gradweave::detail
