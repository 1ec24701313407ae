/// @file
/// A program whose ranks form a grid of two columns: one synchronizer averages over a row, another over a column, both at
/// once.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/gradweave.hpp>

namespace gradweave::tests {

/// What a rank puts into a gradient.
inline float grid_value(int rank, std::uint64_t step, std::size_t slot, std::size_t element) {
  return static_cast<float>((rank + 1) * 1000) + static_cast<float>(step * 100 + slot * 10 + element) / 8;
}

/// One direction of the grid: a synchronizer over `group`, whose ranks are `members` of the job.
template <class Backend>
class grid_direction {
 public:
  grid_direction(Backend group, int job_rank, std::vector<int> members)
      : job_rank_(job_rank), members_(std::move(members)), gradients_{std::vector<float>(7), std::vector<float>(300)} {
    manifest listed;
    slots_ = {listed.add("small", gradients_[0]), listed.add("large", gradients_[1])};
    sync_.emplace(synchronize(std::move(listed), std::move(group)));
  }

  auto& sync() { return *sync_; }

  template <class Step>
  void make_ready(Step& step, std::uint64_t number, std::size_t slot) {
    for (std::size_t i = 0; i < gradients_[slot].size(); ++i) {
      gradients_[slot][i] = grid_value(job_rank_, number, slot, i);
    }
    step.ready(slots_[slot]);
  }

  void check(std::uint64_t number) const {
    bool right = true;
    for (std::size_t slot = 0; slot < gradients_.size(); ++slot) {
      for (std::size_t i = 0; i < gradients_[slot].size(); ++i) {
        double sum = 0;
        for (const int member : members_) {
          sum += static_cast<double>(grid_value(member, number, slot, i));
        }
        const double mean = sum / static_cast<double>(members_.size());
        right = right && std::abs(static_cast<double>(gradients_[slot][i]) - mean) <= mean * 1e-6;
      }
    }
    CHECK_MESSAGE(right, "rank " << job_rank_ << ", step " << number);
  }

 private:
  int job_rank_;
  std::vector<int> members_;
  std::vector<std::vector<float>> gradients_;
  std::vector<slot> slots_;
  std::optional<decltype(synchronize(std::declval<manifest>(), std::declval<Backend>()))> sync_;
};

template <class Backend>
grid_direction<Backend> row_of(Backend& world) {
  std::vector<int> members;
  for (int rank = world.rank() / 2 * 2; rank < world.size() && rank / 2 == world.rank() / 2; ++rank) {
    members.push_back(rank);
  }
  return {world.split(world.rank() / 2, 0).value(), world.rank(), members};
}

template <class Backend>
grid_direction<Backend> column_of(Backend& world) {
  std::vector<int> members;
  for (int rank = world.rank() % 2; rank < world.size(); rank += 2) {
    members.push_back(rank);
  }
  return {world.split(world.rank() % 2, 0).value(), world.rank(), members};
}

/// Steps of both directions are open at once. Gradients become ready, and steps are finished, in orders that differ from
/// rank to rank, as only groups that do not wait for each other allow.
template <class Backend>
void run_grid(Backend& world) {
  auto row = row_of(world);
  auto column = column_of(world);
  for (std::uint64_t number = 0; number < 6; ++number) {
    auto in_row = row.sync().begin_step();
    auto in_column = column.sync().begin_step();
    const std::uint64_t order = number + static_cast<std::uint64_t>(world.rank());
    for (std::uint64_t i = 0; i < 4; ++i) {
      const std::size_t which = (order + i) % 4;
      which < 2 ? row.make_ready(in_row, number, which) : column.make_ready(in_column, number, which - 2);
    }
    // Rows in one order and columns in the other: rank 0 waits for 1, that for 3, that for 2, and that for 0.
    const bool row_first = (world.rank() == 0 || world.rank() == 3) == (number % 2 == 0);
    if (number < 3) {  // buckets are planned anew at the end of the first step
      row_first ? finish_all(in_row, in_column) : finish_all(in_column, in_row);
    } else {
      in_row.close();
      in_column.close();
      row_first ? in_row.finish() : in_column.finish();
      row_first ? in_column.finish() : in_row.finish();
    }
    row.check(number);
    column.check(number);
  }
}

/// The last of four ranks throws in a step of its row: every rank is told who it was, also those that are in no group
/// with it.
template <class Run>
void check_grid_tells_of_failure(Run&& run) {
  std::mutex telling;
  std::set<int> told;
  run(4, [&](auto world) {
    try {
      auto row = row_of(world);
      auto column = column_of(world);
      for (std::uint64_t number = 0; number < 4; ++number) {
        row.sync().step([&](auto& step) {
          if (number == 2 && world.rank() == 3) {
            throw std::domain_error("out of coffee");
          }
          row.make_ready(step, number, 0);
          row.make_ready(step, number, 1);
        });
        column.sync().step([&](auto& step) {
          column.make_ready(step, number, 1);
          column.make_ready(step, number, 0);
        });
      }
      FAIL_CHECK("rank " << world.rank() << " ends well");
    } catch (const std::domain_error&) {
      const std::lock_guard lock(telling);
      told.insert(world.rank());
    } catch (const sync_error& error) {
      const std::string words = error.what();
      CHECK_MESSAGE(error.code() == errc::aborted, words);
      CHECK_MESSAGE(error.step() == 2, words);
      const std::string who =
          "rank 3 of the job, in the group of ranks 2 and 3: an exception in the backward pass: out of";
      CHECK_MESSAGE(words.find(who) != std::string::npos, words);
      const std::lock_guard lock(telling);
      told.insert(world.rank());
    }
  });
  CHECK(told == std::set<int>{0, 1, 2, 3});
}

}  // namespace gradweave::tests
