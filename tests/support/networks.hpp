/// @file
/// Jobs inside this process over each of the library's networks, behind one type, so that a test is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/backend/tcp.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/tcp.hpp"
#include "tests/support/trial.hpp"

namespace gradweave::tests {

enum class network { loopback, tcp, shared_memory };

inline constexpr network networks[] = {network::loopback, network::tcp, network::shared_memory};

inline const char* name_of(network which) {
  constexpr const char* names[] = {"loopback", "tcp", "shared memory"};
  return names[static_cast<int>(which)];
}

struct law_case {
  network over;
  policy_choice choice;
};

/// Every choice of policies on every network; where tests are brief, on one network each, by turns.
inline std::vector<law_case> networks_and_policies() {
  std::vector<law_case> all;
  const std::vector<policy_choice> choices = policy_choices();
  for (std::size_t n = 0; n < std::size(networks); ++n) {
    for (std::size_t c = 0; c < choices.size(); ++c) {
      if (!is_brief() || (n + c) % std::size(networks) == 0) {
        all.push_back({networks[n], choices[c]});
      }
    }
  }
  return all;
}

/// One of the library's host backends.
class any_backend {
 public:
  static constexpr memory_space space = memory_space::host;
  static constexpr execution_model execution = execution_model::host;
  static constexpr collective_set capabilities = scheduled_collectives;

  template <class Backend>
  explicit any_backend(Backend backend) : held_(std::move(backend)) {}

  int rank() const {
    return std::visit([](auto& b) { return b.rank(); }, held_);
  }
  int size() const {
    return std::visit([](auto& b) { return b.size(); }, held_);
  }
  /// The backend's own memory, whatever its type.
  class arena {
   public:
    template <class Memory>
    explicit arena(Memory memory) : data_(memory.data()), held_(std::make_shared<Memory>(std::move(memory))) {}
    std::byte* data() const { return data_; }

   private:
    std::byte* data_;
    std::shared_ptr<void> held_;
  };
  arena allocate_arena(std::size_t bytes) {
    return std::visit([&](auto& b) { return arena(b.allocate_arena(bytes)); }, held_);
  }
  void start(const collective_request& request) {
    std::visit([&](auto& b) { b.start(request); }, held_);
  }
  bool poll() {
    return std::visit([](auto& b) { return b.poll(); }, held_);
  }
  void wait() {
    std::visit([](auto& b) { b.wait(); }, held_);
  }
  failure abort(failure cause) {
    return std::visit([&](auto& b) { return b.abort(std::move(cause)); }, held_);
  }
  std::uint64_t payload_bytes_sent() const {
    return std::visit([](auto& b) { return b.payload_bytes_sent(); }, held_);
  }
  void describe(description& sink) const {
    std::visit([&](auto& b) { b.describe(sink); }, held_);
  }

 private:
  std::variant<backend::loopback, backend::tcp::backend_type> held_;
};

/// As backend::run_loopback, over any network.
template <class Body>
void run_ranks(network over, int size, Body&& body, backend::scheduled_options wait = {}) {
  const auto wrapped = [&](auto backend) { body(any_backend(std::move(backend))); };
  if (over == network::loopback) {
    backend::run_loopback(size, wrapped, wait);
  } else {
    run_tcp(size, wrapped, wait, over == network::shared_memory);
  }
}

}  // namespace gradweave::tests
