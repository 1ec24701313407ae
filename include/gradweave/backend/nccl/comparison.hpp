/// @file
/// Collectives of a stream compared over all ranks before any of them is launched: NCCL itself hangs where ranks differ, or
/// gives wrong sums. It costs a round trip between hosts a collective, so it is for finding faults.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/collective/opening.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave::detail {

/// How much a communicator has launched. The id is the same on all its ranks; 0 is none.
struct launch_count {
  std::uint64_t communicator = 0;
  std::uint64_t launches = 0;
};

/// Of some other communicators of the rank: what came before a launch.
using launches_before = std::array<launch_count, 8>;

/// A value of each rank, by rank, on all ranks. Throws sync_error once all have been told.
template <class Value, host_backend Control>
  requires std::is_trivially_copyable_v<Value>
std::vector<Value> gather_values(Control& control, const Value& own) {
  std::vector<Value> values(static_cast<std::size_t>(control.size()));
  values[static_cast<std::size_t>(control.rank())] = own;
  std::vector<std::size_t> pieces;
  for (std::size_t r = 0; r <= values.size(); ++r) {
    pieces.push_back(r * sizeof(Value));
  }
  const extent whole{reinterpret_cast<std::byte*>(values.data()), pieces.back(), 0};
  run_collective(control, {.operation = collective::all_gather, .data = {&whole, 1}, .pieces = pieces});
  return values;
}

/// What ranks say of one collective: a row of numbers each. Not thread-safe.
template <host_backend Control>
class collective_comparison {
 public:
  /// `control` is of the same ranks, and for nothing else.
  explicit collective_comparison(Control control)
      : control_(std::move(control)), row_words_(fixed_words + 2 * ranks()), rows_(row_words_ * ranks()) {
    for (std::size_t r = 0; r <= ranks(); ++r) {
      pieces_.push_back(r * row_words_);
    }
    whole_ = {reinterpret_cast<std::byte*>(rows_.data()), rows_.size() * sizeof(std::uint64_t), 0};
  }
  /// Moving a vector leaves its numbers where they are.
  collective_comparison(collective_comparison&&) = default;
  collective_comparison& operator=(collective_comparison&&) = default;

  /// Throws sync_error(collective_mismatch), on all ranks alike, where one enters anything that does not go with the others'.
  void compare(const collective_request& request, const launches_before& before) {
    write_own(request, before);
    run_collective(
        control_,
        {.operation = collective::all_gather, .kind = element_kind::uint64, .data = {&whole_, 1}, .pieces = pieces_});
    for (std::size_t r = 1; r < ranks(); ++r) {
      if (const char* const differs = difference(r); differs != nullptr) {
        throw sync_error(mismatch(0, r, differs));
      }
    }
    if (request.operation == collective::all_to_all) {
      compare_counts();
    }
  }

 private:
  static constexpr std::size_t opening_words = sizeof(control_message) / sizeof(std::uint64_t);
  static_assert(sizeof(control_message) % sizeof(std::uint64_t) == 0);
  static constexpr std::size_t extents_at = opening_words;
  static constexpr std::size_t pieces_at = extents_at + 1;
  static constexpr std::size_t order_at = pieces_at + 1;
  static constexpr std::size_t fixed_words = order_at + 2 * std::tuple_size_v<launches_before>;

  std::size_t ranks() const { return static_cast<std::size_t>(control_.size()); }
  std::span<std::uint64_t> row(std::size_t rank) { return std::span(rows_).subspan(rank * row_words_, row_words_); }
  /// What `from` sends to `to`, and what `to` expects of `from`, in elements.
  std::uint64_t sent(std::size_t from, std::size_t to) { return row(from)[fixed_words + to]; }
  std::uint64_t expected(std::size_t from, std::size_t to) { return row(to)[fixed_words + ranks() + from]; }

  opening said_by(std::size_t rank) {
    control_message message;
    std::memcpy(message.data(), row(rank).data(), sizeof message);
    return opening::decode(message);
  }

  static void mix(std::uint64_t& digest, std::uint64_t value) {
    digest = (digest ^ value) * 0x9e3779b97f4a7c15U;
    digest ^= digest >> 32;
  }

  void write_own(const collective_request& request, const launches_before& before) {
    const std::span<std::uint64_t> own = row(static_cast<std::size_t>(control_.rank()));
    std::fill(own.begin(), own.end(), 0);
    const control_message said = opening::of(request, compared_++, {}).encode();
    std::memcpy(own.data(), said.data(), sizeof said);
    if (request.operation == collective::all_to_all) {
      for (std::size_t r = 0; r < ranks(); ++r) {
        own[fixed_words + r] = request.source_pieces[r + 1] - request.source_pieces[r];
        own[fixed_words + ranks() + r] = request.pieces[r + 1] - request.pieces[r];
      }
    } else {
      for (const extent& piece : request.data) {
        mix(own[extents_at], piece.bytes);
      }
      for (const std::size_t position : request.pieces) {
        mix(own[pieces_at], position);
      }
    }
    for (std::size_t i = 0; i < before.size(); ++i) {
      own[order_at + 2 * i] = before[i].communicator;
      own[order_at + 2 * i + 1] = before[i].launches;
    }
  }

  /// What of rank r's row does not go with rank 0's.
  const char* difference(std::size_t r) {
    if (said_by(r) != said_by(0)) {
      return "what is to be done";
    }
    if (row(r)[extents_at] != row(0)[extents_at]) {
      return "how the buffer is cut into extents";
    }
    if (row(r)[pieces_at] != row(0)[pieces_at]) {
      return "the ranks' pieces";
    }
    for (std::size_t i = order_at; i < fixed_words; i += 2) {
      for (std::size_t j = order_at; row(0)[i] != 0 && j < fixed_words; j += 2) {
        if (row(r)[j] == row(0)[i] && row(r)[j + 1] != row(0)[i + 1]) {
          return "how many collectives of another group came before it";
        }
      }
    }
    return nullptr;
  }

  void compare_counts() {
    for (std::size_t from = 0; from < ranks(); ++from) {
      for (std::size_t to = 0; to < ranks(); ++to) {
        if (sent(from, to) != expected(from, to)) {
          failure cause = mismatch(from, to, "how much the one sends to the other");
          cause.detail +=
              ": " + std::to_string(sent(from, to)) + " and " + std::to_string(expected(from, to)) + " elements";
          throw sync_error(std::move(cause));
        }
      }
    }
  }

  failure mismatch(std::size_t one, std::size_t other, const char* differs) {
    failure cause{errc::collective_mismatch, static_cast<int>(other), -1, -1, {}, ""};
    cause.detail = "rank " + std::to_string(one) + " entered " + to_string(said_by(one)) + " and rank " +
                   std::to_string(other) + " " + to_string(said_by(other)) + "; they differ in " + differs;
    return cause;
  }

  Control control_;
  std::size_t row_words_;
  std::vector<std::uint64_t> rows_;
  std::vector<std::size_t> pieces_;
  extent whole_;
  std::uint64_t compared_ = 0;
};

}  // namespace gradweave::detail
