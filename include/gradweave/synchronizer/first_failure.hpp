/// @file
/// What ended the job on this rank: the cause that came first on any rank, kept and told.
#pragma once

#include <exception>
#include <optional>
#include <utility>

#include <gradweave/backend/concept.hpp>
#include <gradweave/error.hpp>

namespace gradweave::detail {

/// Not thread-safe but for `tell`. The backend outlives it.
template <backend_policy Backend>
class first_failure {
 public:
  explicit first_failure(Backend& backend) : backend_(backend) {}

  bool has_come() const { return cause_.has_value(); }
  void throw_if_come() const {
    if (cause_) {
      throw sync_error(*cause_);
    }
  }

  /// Tells all ranks. Returns the cause that came first on any of them. From any thread.
  failure tell(failure cause) { return backend_.abort(std::move(cause)); }

  /// Keeps what tell() returned, unless a failure was kept before.
  void keep(failure told) { cause_ = cause_ ? cause_ : std::move(told); }

  /// What `action` throws is told and kept, and goes no further. `in_context(failure)` adds what the caller knows.
  template <class Action, class InContext>
  void contain(Action&& action, InContext&& in_context) {
    try {
      action();
    } catch (const sync_error& error) {
      keep(tell(in_context(error.cause())));
    } catch (const std::exception& error) {
      keep(tell(in_context({errc::internal, backend_.rank(), -1, -1, {}, error.what()})));
    }
  }

  /// What `action` throws is told, kept, and thrown: a failure as the one that came first.
  template <class Action, class InContext>
  void share(Action&& action, InContext&& in_context) {
    try {
      action();
    } catch (const sync_error& error) {
      keep(tell(in_context(error.cause())));
      throw sync_error(*cause_);
    } catch (const std::exception& error) {
      keep(tell(in_context({errc::aborted, backend_.rank(), -1, -1, {}, error.what()})));
      throw;
    }
  }

 private:
  Backend& backend_;
  std::optional<failure> cause_;
};

}  // namespace gradweave::detail
