/// @file
/// Ranks as threads that collect what each of them gives: what `share` of a transport asks for.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include <gradweave/transport/shared_memory.hpp>

#include "tests/support/tcp.hpp"

namespace gradweave::tests {

class gathering {
 public:
  explicit gathering(int size) : given_(static_cast<std::size_t>(size)) {}

  void gather(int rank, std::span<const std::byte> own, std::span<std::byte> all) {
    given_[static_cast<std::size_t>(rank)].assign(own.begin(), own.end());
    meet();
    auto out = all.begin();
    for (const auto& each : given_) {
      out = std::copy(each.begin(), each.end(), out);
    }
    meet();
  }

 private:
  void meet() {
    std::unique_lock lock(mutex_);
    const std::size_t round = round_;
    if (++here_ == given_.size()) {
      here_ = 0;
      ++round_;
      all_here_.notify_all();
    }
    all_here_.wait(lock, [&] { return round_ != round; });
  }

  std::vector<std::vector<std::byte>> given_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::size_t here_ = 0;
  std::size_t round_ = 0;
};

/// Ends over TCP that share memory, but for those of `apart`.
inline std::vector<shared_memory_transport<asio_transport>> connect_shared(int size, std::vector<int> apart = {}) {
  std::vector<shared_memory_transport<asio_transport>> ends;
  for (asio_transport& end : connect_tcp(size)) {
    const bool shares = std::find(apart.begin(), apart.end(), end.rank()) == apart.end();
    ends.emplace_back(std::move(end), shares);
  }
  gathering together(size);
  on_threads(size, [&](int rank) {
    ends[static_cast<std::size_t>(rank)].share(
        [&](std::span<const std::byte> own, std::span<std::byte> all) { together.gather(rank, own, all); });
  });
  return ends;
}

}  // namespace gradweave::tests
