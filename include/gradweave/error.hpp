/// @file
/// Failures of the environment: a peer that is gone, ranks that disagree, a deadline that passed. One `failure` value
/// tells the story; all ranks throw the same one inside a `sync_error`.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace gradweave {

enum class errc {
  manifest_mismatch = 1,  ///< ranks registered different gradients, policies, options or library versions
  collective_mismatch,    ///< ranks entered different collectives, or the same one with different sizes
  gradient_missing,       ///< a step ended while a gradient had not become ready
  aborted,                ///< a rank's backward pass threw, or its step was destroyed unfinished
  peer_lost,              ///< a rank's connection closed, or its thread ended, in the middle of the job
  timed_out,              ///< a rank did not arrive before the deadline
  plan_invalid,           ///< a bucketing policy returned a plan that does not hold each gradient exactly once
  parameters_diverged,    ///< ranks hold different parameters
  internal,               ///< something unexpected, e.g. memory ran out on the lane
};

namespace detail {
class sync_error_category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "gradweave"; }
  std::string message(int value) const override {
    switch (static_cast<errc>(value)) {
      case errc::manifest_mismatch: return "manifest mismatch";
      case errc::collective_mismatch: return "collective mismatch";
      case errc::gradient_missing: return "gradient missing";
      case errc::aborted: return "step aborted";
      case errc::peer_lost: return "peer lost";
      case errc::timed_out: return "timed out";
      case errc::plan_invalid: return "plan invalid";
      case errc::parameters_diverged: return "parameters diverged";
      case errc::internal: return "internal failure";
    }
    return "unknown failure";
  }
};
}  // namespace detail

inline const std::error_category& sync_category() {
  static const detail::sync_error_category category;
  return category;
}

inline std::error_code make_error_code(errc code) { return {static_cast<int>(code), sync_category()}; }

/// Why a job failed, as one value that travels between ranks. Fields that do not apply keep their defaults.
struct failure {
  errc code = errc::internal;
  int rank = -1;                   ///< the rank that caused it, -1 where no single rank did
  std::int64_t step = -1;          ///< the step in which it happened, counted from 0
  std::int64_t bucket = -1;        ///< the bucket in launch order
  std::vector<std::string> slots;  ///< names of the gradients concerned
  std::string detail;              ///< a sentence: what was wrong and what to do

  /// How many collectives the rank that reported had completed. Others still complete those, so that no rank throws in a
  /// step that ended well; they fail in the next.
  std::uint64_t collectives_completed = 0;
};

/// "rank 1, step 7, bucket 0 (slots 'a', 'b'): sentence". At most four slots are named, then counted.
inline std::string to_string(const failure& cause) {
  std::string text;
  const auto part = [&](const char* word, std::int64_t value) {
    if (value >= 0) {
      text += (text.empty() ? "" : ", ") + std::string(word) + " " + std::to_string(value);
    }
  };
  part("rank", cause.rank);
  part("step", cause.step);
  part("bucket", cause.bucket);
  if (!cause.slots.empty()) {
    constexpr std::size_t named_max = 4;
    text += text.empty() ? "(slots" : " (slots";
    for (std::size_t i = 0; i < cause.slots.size() && i < named_max; ++i) {
      text += (i == 0 ? " '" : ", '") + cause.slots[i] + "'";
    }
    if (cause.slots.size() > named_max) {
      text += " and " + std::to_string(cause.slots.size() - named_max) + " more";
    }
    text += ")";
  }
  return text.empty() ? cause.detail : text + ": " + cause.detail;
}

/// Thrown on every rank when the environment fails. `code()` is an `errc`; `what()` tells the whole story.
class sync_error : public std::system_error {
 public:
  explicit sync_error(failure cause)
      : std::system_error(make_error_code(cause.code), to_string(cause)), cause_(std::move(cause)) {}

  const failure& cause() const noexcept { return cause_; }
  int rank() const noexcept { return cause_.rank; }
  std::int64_t step() const noexcept { return cause_.step; }
  std::int64_t bucket() const noexcept { return cause_.bucket; }
  const std::vector<std::string>& slots() const noexcept { return cause_.slots; }

 private:
  failure cause_;
};

}  // namespace gradweave

template <>
struct std::is_error_code_enum<gradweave::errc> : std::true_type {};
