/// @file
/// A backend whose collectives are recorded, where that is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <gradweave/backend/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/diagnostics/options.hpp>
#include <gradweave/diagnostics/recorder.hpp>
#include <gradweave/error.hpp>

namespace gradweave {

/// Behaves as `Backend`. Without a recorder it costs a branch a collective and a branch a poll.
template <host_backend Backend>
class recording_backend {
 public:
  static constexpr memory_space space = Backend::space;
  static constexpr execution_model execution = Backend::execution;
  static constexpr collective_set capabilities = Backend::capabilities;

  explicit recording_backend(Backend backend, const diagnostics_options& options = {})
      : backend_(std::move(backend)), recorder_(recorder::make(options, backend_.rank(), backend_.size())) {}

  int rank() const { return backend_.rank(); }
  int size() const { return backend_.size(); }
  auto allocate_arena(std::size_t bytes) { return backend_.allocate_arena(bytes); }
  std::uint64_t payload_bytes_sent() const { return backend_.payload_bytes_sent(); }

  void start(const collective_request& request) {
    if (recorder_) [[unlikely]] {
      recorder_->enter(request, next_number());
    }
    backend_.start(request);
  }

  bool poll() {
    const bool complete = backend_.poll();
    if (complete && recorder_) [[unlikely]] {
      recorder_->leave();
    }
    return complete;
  }

  void wait() { backend_.wait(); }

  failure abort(failure cause) {
    failure told = backend_.abort(std::move(cause));
    if (recorder_) {
      recorder_->failed(to_string(told));
    }
    return told;
  }

  void describe(description& sink) const { backend_.describe(sink); }
  void describe_here(description& sink) const {
    if constexpr (requires { backend_.describe_here(sink); }) {
      backend_.describe_here(sink);
    }
  }
  void describe_peers(description& sink) const {
    if constexpr (requires { backend_.describe_peers(sink); }) {
      backend_.describe_peers(sink);
    }
  }

  /// Null where nothing is recorded.
  recorder* records() const { return recorder_.get(); }

 private:
  /// The number that the backend's own messages give the next collective, where it tells.
  std::uint64_t next_number() {
    if constexpr (requires { backend_.collectives_started(); }) {
      return backend_.collectives_started() + 1;
    } else {
      return ++started_;
    }
  }

  Backend backend_;
  std::uint64_t started_ = 0;
  std::unique_ptr<recorder> recorder_;
};

}  // namespace gradweave
