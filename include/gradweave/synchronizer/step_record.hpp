/// @file
/// The step record: the fixed-size control message that is each step's last collective. It shows every rank that all of
/// them ended the same step, and what they saw in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>

namespace gradweave::detail {

struct step_record {
  std::uint64_t step = 0;
  std::uint64_t non_finite = 0;
  std::uint64_t used_digest = 0;  ///< of the slots that became ready
  std::uint64_t samples = 0;
  std::uint32_t plan_version = 0;
  std::uint8_t has_data = 1;
  std::uint8_t unused[27] = {};
};
static_assert(sizeof(step_record) == 64, "the record has one size in every version");

/// What is wrong with the ranks' records of one step, if anything.
inline std::optional<failure> record_fault(std::span<const step_record> records) {
  for (std::size_t r = 1; r < records.size(); ++r) {
    const auto differ = [&](const char* what, std::uint64_t first, std::uint64_t other) {
      failure cause{
          errc::collective_mismatch, static_cast<int>(r), static_cast<std::int64_t>(records[0].step), -1, {}, ""};
      cause.detail = std::string("ranks ended a step with different ") + what + ": " + std::to_string(first) +
                     " on rank 0, " + std::to_string(other) + " on rank " + std::to_string(r);
      return cause;
    };
    if (records[r].step != records[0].step) {
      return differ("numbers", records[0].step, records[r].step);
    }
    if (records[r].plan_version != records[0].plan_version) {
      return differ("plan versions", records[0].plan_version, records[r].plan_version);
    }
    if (records[r].used_digest != records[0].used_digest) {
      return differ("sets of used gradients (digest)", records[0].used_digest, records[r].used_digest);
    }
  }
  return std::nullopt;
}

/// The collective that exchanges the records of all ranks, with the memory for it.
class record_exchange {
 public:
  record_exchange(int rank, int size)
      : rank_(static_cast<std::size_t>(rank)), records_(static_cast<std::size_t>(size)) {
    for (std::size_t r = 0; r <= records_.size(); ++r) {
      pieces_.push_back(r * sizeof(step_record));
    }
    memory_ = {reinterpret_cast<std::byte*>(records_.data()), records_.size() * sizeof(step_record), 0};
  }
  record_exchange(const record_exchange&) = delete;
  record_exchange& operator=(const record_exchange&) = delete;

  collective_request request(const step_record& own) {
    records_[rank_] = own;
    return {.operation = collective::all_gather, .data = {&memory_, 1}, .pieces = pieces_};
  }

  /// Once the request is complete: how many encoded values were not finite, on all ranks. Throws sync_error where the
  /// ranks did not end the same step.
  std::uint64_t non_finite() const {
    if (auto fault = record_fault(records_)) {
      throw sync_error(std::move(*fault));
    }
    std::uint64_t sum = 0;
    for (const step_record& record : records_) {
      sum += record.non_finite;
    }
    return sum;
  }

 private:
  std::size_t rank_;
  std::vector<step_record> records_;
  std::vector<std::size_t> pieces_;
  extent memory_;
};

}  // namespace gradweave::detail
