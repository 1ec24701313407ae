/// @file
/// Collectives against a reference computed on the spot: the part of the backend kit that knows no backend's type.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/values.hpp>

namespace gradweave::testing::detail {

/// One rank's backend with its type erased. `run` runs a collective to its end.
struct backend_driver {
  int rank;
  int size;
  collective_set offers;
  std::function<void(const collective_request&)> run;
  std::function<std::uint64_t()> payload_bytes_sent;
  conformance_recorder& recorder;
  /// Whether it reduces such elements; none: all.
  std::function<bool(element_kind, const reduction&)> reduces = {};
  double roundings = 1;  ///< of an average

  bool offers_reduction(collective operation, element_kind kind, const reduction& reduce) const {
    return offers.contains(operation) && (!reduces || reduces(kind, reduce));
  }
};

inline constexpr std::array all_kinds = {element_kind::float32,  element_kind::float64, element_kind::float16,
                                         element_kind::bfloat16, element_kind::int8,    element_kind::int16,
                                         element_kind::int32,    element_kind::int64,   element_kind::uint8,
                                         element_kind::uint16,   element_kind::uint32,  element_kind::uint64};

inline bool is_signed(element_kind kind) { return kind < element_kind::uint8; }

/// Small integers, whose sums over ranks every kind holds exactly.
inline double value_of(element_kind kind, int rank, std::size_t index) {
  const auto value = static_cast<int>((index * 7 + static_cast<std::size_t>(rank) * 3) % 11);
  return is_signed(kind) ? value - 5 : value;
}

inline double reduced_value(element_kind kind, const reduction& reduce, int size, std::size_t index) {
  double result = value_of(kind, 0, index);
  for (int r = 1; r < size; ++r) {
    const double next = value_of(kind, r, index);
    switch (reduce.operation) {
      case reduction_operation::sum: result += next; break;
      case reduction_operation::min: result = std::min(result, next); break;
      case reduction_operation::max: result = std::max(result, next); break;
    }
  }
  const double quotient = result / reduce.divisor;
  return is_floating(kind) ? quotient : std::trunc(quotient);
}

/// Lengths that differ, some of them 0, as positions: size + 1 of them.
inline std::vector<std::size_t> uneven_pieces(int size, std::size_t salt, std::size_t scale = 1) {
  constexpr std::array<std::size_t, 5> lengths = {7, 0, 33, 1, 100};
  std::vector<std::size_t> positions = {0};
  for (int r = 0; r < size; ++r) {
    positions.push_back(positions.back() + scale * lengths[(static_cast<std::size_t>(r) + salt) % lengths.size()]);
  }
  return positions;
}

/// One shape of a collective: what kind, cut into how many extents, and which pattern of pieces.
struct collective_case {
  element_kind kind = element_kind::float32;
  std::size_t extents = 1;
  std::size_t salt = 0;
  std::size_t scale = 1;

  std::string name(const backend_driver& driver, collective operation) const {
    return std::to_string(driver.size) + " ranks: " + std::string(to_string(operation)) + " of " +
           std::string(element_name(kind)) + " in " + std::to_string(extents) + " extents";
  }
};

/// Compares elements [begin, end) with `expected(index)`, exactly, or for `rounded` results within the driver's roundings.
template <class Expected>
void compare(const backend_driver& driver, const std::string& what, const scattered_buffer& data, std::size_t begin,
             std::size_t end, bool rounded, Expected&& expected) {
  const double relative = rounded ? driver.roundings * rounding_of(data.kind()).relative : 0;
  bool right = true;
  for (std::size_t i = begin; i < end; ++i) {
    const double wanted = expected(i);
    right = right && std::abs(data.read(i) - wanted) <= relative * std::abs(wanted);
  }
  driver.recorder.check(right, [&] { return what + ": the result is wrong"; });
  driver.recorder.check(data.intact(), [&] { return what + ": memory outside of the extents was written"; });
}

inline void fill(scattered_buffer& data, int rank, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    data.write(i, value_of(data.kind(), rank, i));
  }
}

inline void check_all_reduce(const backend_driver& driver, const collective_case& given, std::size_t elements,
                             const reduction& reduce) {
  scattered_buffer data(given.kind, elements, given.extents);
  fill(data, driver.rank, 0, elements);
  driver.run({.operation = collective::all_reduce, .kind = given.kind, .reduce = reduce, .data = data.extents()});
  compare(driver, given.name(driver, collective::all_reduce), data, 0, elements, reduce.divisor != 1,
          [&](std::size_t i) { return reduced_value(given.kind, reduce, driver.size, i); });
}

inline void check_reduce_scatter(const backend_driver& driver, const collective_case& given, const reduction& reduce) {
  const std::vector<std::size_t> pieces = uneven_pieces(driver.size, given.salt, given.scale);
  const auto own = static_cast<std::size_t>(driver.rank);
  scattered_buffer data(given.kind, pieces.back(), given.extents);
  fill(data, driver.rank, 0, data.elements());
  driver.run({.operation = collective::reduce_scatter,
              .kind = given.kind,
              .reduce = reduce,
              .data = data.extents(),
              .pieces = pieces});
  compare(driver, given.name(driver, collective::reduce_scatter), data, pieces[own], pieces[own + 1],
          reduce.divisor != 1, [&](std::size_t i) { return reduced_value(given.kind, reduce, driver.size, i); });
}

inline void check_all_gather(const backend_driver& driver, const collective_case& given) {
  const std::vector<std::size_t> pieces = uneven_pieces(driver.size, given.salt, given.scale);
  const auto own = static_cast<std::size_t>(driver.rank);
  scattered_buffer data(given.kind, pieces.back(), given.extents);
  fill(data, driver.rank, pieces[own], pieces[own + 1]);
  driver.run({.operation = collective::all_gather, .kind = given.kind, .data = data.extents(), .pieces = pieces});
  for (int r = 0; r < driver.size; ++r) {
    compare(driver, given.name(driver, collective::all_gather), data, pieces[static_cast<std::size_t>(r)],
            pieces[static_cast<std::size_t>(r) + 1], false, [&](std::size_t i) { return value_of(given.kind, r, i); });
  }
}

/// How many elements rank `from` has for rank `to`.
inline std::size_t all_to_all_count(int from, int to, const collective_case& given) {
  return 12 * given.scale * ((static_cast<std::size_t>(from) * 5 + static_cast<std::size_t>(to) * 3 + given.salt) % 7);
}

inline void check_all_to_all(const backend_driver& driver, const collective_case& given) {
  std::vector<std::size_t> pieces = {0};
  std::vector<std::size_t> source_pieces = {0};
  for (int r = 0; r < driver.size; ++r) {
    pieces.push_back(pieces.back() + all_to_all_count(r, driver.rank, given));
    source_pieces.push_back(source_pieces.back() + all_to_all_count(driver.rank, r, given));
  }
  scattered_buffer data(given.kind, pieces.back(), given.extents);
  scattered_buffer source(given.kind, source_pieces.back(), given.extents + 1);
  // An element tells who sent it and which of the piece it is.
  for (std::size_t to = 0; to + 1 < source_pieces.size(); ++to) {
    for (std::size_t i = source_pieces[to]; i < source_pieces[to + 1]; ++i) {
      source.write(i, value_of(given.kind, driver.rank, i - source_pieces[to]));
    }
  }
  driver.run({.operation = collective::all_to_all,
              .kind = given.kind,
              .data = data.extents(),
              .pieces = pieces,
              .source = source.extents(),
              .source_pieces = source_pieces});
  for (int from = 0; from < driver.size; ++from) {
    const auto r = static_cast<std::size_t>(from);
    compare(driver, given.name(driver, collective::all_to_all), data, pieces[r], pieces[r + 1], false,
            [&](std::size_t i) { return value_of(given.kind, from, i - pieces[r]); });
  }
}

inline void check_broadcast(const backend_driver& driver, const collective_case& given, std::size_t elements) {
  for (int root = 0; root < driver.size; ++root) {
    scattered_buffer data(given.kind, elements, given.extents);
    if (driver.rank == root) {
      fill(data, root, 0, elements);
    }
    driver.run({.operation = collective::broadcast, .kind = given.kind, .root = root, .data = data.extents()});
    compare(driver, given.name(driver, collective::broadcast), data, 0, elements, false,
            [&](std::size_t i) { return value_of(given.kind, root, i); });
  }
}

inline void check_gather(const backend_driver& driver, const collective_case& given) {
  const std::vector<std::size_t> pieces = uneven_pieces(driver.size, given.salt, given.scale);
  const auto at = [](int rank) { return static_cast<std::size_t>(rank); };
  for (int root = 0; root < driver.size; ++root) {
    scattered_buffer data(given.kind, pieces.back(), given.extents);
    fill(data, driver.rank, pieces[at(driver.rank)], pieces[at(driver.rank) + 1]);
    driver.run(
        {.operation = collective::gather, .kind = given.kind, .root = root, .data = data.extents(), .pieces = pieces});
    for (int r = 0; r < driver.size; ++r) {
      if (driver.rank == root || driver.rank == r) {
        compare(driver, given.name(driver, collective::gather), data, pieces[at(r)], pieces[at(r) + 1], false,
                [&](std::size_t i) { return value_of(given.kind, r, i); });
      }
    }
  }
}

/// Every collective that is offered, for one case.
inline void check_case(const backend_driver& driver, const collective_case& given, std::size_t elements) {
  const reduction sum{reduction_operation::sum, 1};
  if (driver.offers_reduction(collective::all_reduce, given.kind, sum)) {
    check_all_reduce(driver, given, elements, sum);
  }
  if (driver.offers_reduction(collective::reduce_scatter, given.kind, sum)) {
    check_reduce_scatter(driver, given, sum);
  }
  if (driver.offers.contains(collective::all_gather)) {
    check_all_gather(driver, given);
  }
  if (driver.offers.contains(collective::all_to_all)) {
    check_all_to_all(driver, given);
  }
  if (driver.offers.contains(collective::broadcast)) {
    check_broadcast(driver, given, elements);
  }
  if (driver.offers.contains(collective::gather)) {
    check_gather(driver, given);
  }
}

/// All kinds, extents and piece patterns; minimum, maximum and average; no elements, one, fewer than ranks, and so many
/// that no buffer on the way holds them.
inline void check_collectives(const backend_driver& driver) {
  const auto divisor = static_cast<std::uint32_t>(driver.size);
  for (const element_kind kind : all_kinds) {
    for (std::size_t salt = 0; salt < 5; ++salt) {
      check_case(driver, {kind, 1 + 3 * salt, salt, 1}, 50 * salt + 13);
    }
    for (const reduction_operation operation :
         {reduction_operation::sum, reduction_operation::min, reduction_operation::max}) {
      const reduction average{operation, divisor};
      if (driver.offers_reduction(collective::all_reduce, kind, average)) {
        check_all_reduce(driver, {kind, 3}, 777, average);
      }
      if (driver.offers_reduction(collective::reduce_scatter, kind, average)) {
        check_reduce_scatter(driver, {kind, 2, 3}, average);
      }
    }
  }
  for (std::size_t elements = 0; elements < 6; ++elements) {
    check_case(driver, {element_kind::float32, 2, elements}, elements);
  }
  check_case(driver, {element_kind::float32, 3, 2, 997}, 100'003);
}

/// A hundred collectives, each as soon as the one before is over here; ranks are late in turn.
inline void check_back_to_back(const backend_driver& driver, std::uint64_t seed) {
  random_source pace(seed + static_cast<std::uint64_t>(driver.rank));
  for (std::size_t i = 0; i < 100; ++i) {
    if (pace.below(4) == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(pace.below(200)));
    }
    const collective_case given{all_kinds[i % all_kinds.size()], 1 + i % 3, i, 1};
    switch (i % 3) {
      case 0:
        if (driver.offers_reduction(collective::all_reduce, given.kind, {})) {
          check_all_reduce(driver, given, i, {});
        }
        break;
      case 1:
        if (driver.offers.contains(collective::all_gather)) {
          check_all_gather(driver, given);
        }
        break;
      default:
        if (driver.offers.contains(collective::all_to_all)) {
          check_all_to_all(driver, given);
        }
    }
  }
}

/// Nobody leaves a barrier before all have entered it.
inline void check_barrier(const backend_driver& driver, std::atomic<int>& arrived) {
  if (!driver.offers.contains(collective::barrier)) {
    return;
  }
  for (int round = 1; round <= 20; ++round) {
    if (driver.rank == round % driver.size) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    arrived.fetch_add(1);
    driver.run({.operation = collective::barrier});
    driver.recorder.check(arrived.load() >= round * driver.size, [&] {
      return std::to_string(driver.size) + " ranks: a rank left a barrier before all had entered it";
    });
  }
}

/// A collective in which every rank waits for all others, and the memory that it works on.
class probe_collective {
 public:
  collective operation = collective::all_gather;
  element_kind kind = element_kind::float32;
  std::size_t elements_a_rank = 16;
  std::uint32_t plan_version = 1;
  reduction reduce = {};

  /// Refers to memory of this object.
  collective_request make(int size) {
    const std::size_t elements = elements_a_rank * static_cast<std::size_t>(size);
    memory_.assign(elements, 0);
    whole_ = {reinterpret_cast<std::byte*>(memory_.data()), elements * element_bytes(kind), 0};
    pieces_.clear();
    for (std::size_t r = 0; r <= static_cast<std::size_t>(size); ++r) {
      pieces_.push_back(r * elements_a_rank);
    }
    return {.operation = operation,
            .kind = kind,
            .reduce = reduce,
            .plan_version = plan_version,
            .data = {&whole_, 1},
            .pieces = pieces_};
  }

 private:
  std::vector<std::uint64_t> memory_;
  extent whole_;
  std::vector<std::size_t> pieces_;
};

/// The one that is used where any will do: a backend of a synchronizer has to offer it.
inline probe_collective any_collective() { return {}; }

/// Two versions of a collective that do not go together, and what differs.
struct mismatch {
  std::string_view what;
  probe_collective ours;
  probe_collective theirs;
};

inline std::vector<mismatch> mismatches() {
  std::vector<mismatch> made(6);
  made[0].what = "operation";
  made[0].theirs.operation = collective::all_reduce;
  made[1].what = "count";
  made[1].theirs.elements_a_rank = 17;
  made[2].what = "element kind of the same size";
  made[2].theirs.kind = element_kind::int32;
  made[3].what = "element kind, as many bytes";
  made[3].theirs.kind = element_kind::float16;
  made[3].theirs.elements_a_rank = 32;
  made[4].what = "plan version";
  made[4].theirs.plan_version = 2;
  made[5].what = "reduction";
  made[5].ours.operation = made[5].theirs.operation = collective::all_reduce;
  made[5].theirs.reduce.operation = reduction_operation::max;
  return made;
}

}  // namespace gradweave::testing::detail
