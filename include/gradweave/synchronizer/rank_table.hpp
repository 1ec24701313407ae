/// @file
/// One value of each rank, on every rank: what travels is small and of fixed size.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/extent.hpp>

namespace gradweave::detail {

/// The collective that exchanges them, with the memory for it.
template <class Value>
  requires std::is_trivially_copyable_v<Value>
class rank_table {
 public:
  rank_table(int rank, int size) : rank_(static_cast<std::size_t>(rank)), values_(static_cast<std::size_t>(size)) {
    for (std::size_t r = 0; r <= values_.size(); ++r) {
      pieces_.push_back(r * sizeof(Value));
    }
    memory_ = {reinterpret_cast<std::byte*>(values_.data()), values_.size() * sizeof(Value), 0};
  }
  rank_table(const rank_table&) = delete;
  rank_table& operator=(const rank_table&) = delete;

  collective_request request(const Value& own) {
    values_[rank_] = own;
    return {.operation = collective::all_gather, .data = {&memory_, 1}, .pieces = pieces_};
  }

  /// Once the request is complete: by rank.
  std::span<const Value> values() const { return values_; }

 private:
  std::size_t rank_;
  std::vector<Value> values_;
  std::vector<std::size_t> pieces_;
  extent memory_;
};

}  // namespace gradweave::detail
