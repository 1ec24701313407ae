// What an all-reduce can be measured against, without any library.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <gradweave/config.hpp>
#include <gradweave/descriptor.hpp>
#include <gradweave/transport/segment.hpp>
#include <gradweave/transport/spinning.hpp>

#include "benchmarks/all_reduce/timing.hpp"

namespace gradweave::bench {

/// What ranks of one host can do at best: each adds its piece of all buffers and writes the sum into all of them, between
/// two barriers of flags. Or each keeps its sum and, after one barrier more, copies those of the others: that takes longer.
/// Memory that the launching process made is mapped by all.
class direct_limit {
 public:
  static constexpr const char* variable = "GRADWEAVE_BENCH_MEMORY";

  static std::size_t bytes_for(int ranks, std::size_t bytes) {
    return static_cast<std::size_t>(ranks) * (flag_bytes + (bytes + 4095) / 4096 * 4096);
  }

  direct_limit(int rank, int size, std::size_t bytes, bool pulls)
      : rank_(static_cast<std::size_t>(rank)),
        pulls_(pulls),
        memory_(segment::adopt(descriptor(::dup(std::atoi(std::getenv(variable)))))) {
    for (int r = 0; r < size; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * flag_bytes;
      flags_.push_back(reinterpret_cast<std::atomic<std::uint64_t>*>(memory_.data() + at));
      const std::size_t buffer =
          static_cast<std::size_t>(size) * flag_bytes + static_cast<std::size_t>(r) * ((bytes + 4095) / 4096 * 4096);
      buffers_.push_back(reinterpret_cast<float*>(memory_.data() + buffer));
    }
  }

  void run(std::size_t elements) {
    const std::size_t share = (elements / buffers_.size() + 15) / 16 * 16;
    const auto begin = [&](std::size_t rank) { return std::min(elements, rank * share); };
    const auto end = [&](std::size_t rank) { return rank + 1 == buffers_.size() ? elements : begin(rank + 1); };
    barrier();
    add(begin(rank_), end(rank_));
    if (pulls_) {
      barrier();
      for (std::size_t r = 0; r < buffers_.size(); ++r) {
        if (r != rank_) {
          std::memcpy(buffers_[rank_] + begin(r), buffers_[r] + begin(r), (end(r) - begin(r)) * sizeof(float));
        }
      }
    }
    barrier();
  }

  /// From one rank to another and back, by a flag: half of it, in nanoseconds.
  double flag_latency() {
    constexpr std::size_t rounds = 2000;
    return time_of(rounds, [&] { barrier(); }) * 1000;
  }

 private:
  static constexpr std::size_t flag_bytes = 128;

  void barrier() {
    flags_[rank_]->store(++round_, std::memory_order_release);
    for (const auto* flag : flags_) {
      while (!spin_.until([&] { return flag->load(std::memory_order_acquire) >= round_; })) {
        std::this_thread::yield();
      }
    }
  }

  /// Sums into one of the buffers, a stretch at a time that stays in the first-level cache, and copies it to the others.
  /// Going through all buffers line by line took twice as long.
  GRADWEAVE_VECTOR_TARGET void add(std::size_t begin, std::size_t end) {
    using lanes = float __attribute__((vector_size(32)));
    constexpr std::size_t lane_count = sizeof(lanes) / sizeof(float);
    constexpr std::size_t stretch = 2048;
    const std::size_t summed = pulls_ ? rank_ : 0;
    for (; begin < end; begin += stretch) {
      const std::size_t count = std::min(stretch, end - begin);
      float* const sums = buffers_[summed] + begin;
      for (std::size_t r = 0; r < buffers_.size(); ++r) {
        const float* const more = buffers_[r] + begin;
        std::size_t i = r == summed ? count : 0;
        for (; i + lane_count <= count; i += lane_count) {
          lanes a, b;
          std::memcpy(&a, sums + i, sizeof a);
          std::memcpy(&b, more + i, sizeof b);
          a += b;
          std::memcpy(sums + i, &a, sizeof a);
        }
        for (; i < count; ++i) {
          sums[i] += more[i];
        }
      }
      for (std::size_t r = 0; r < buffers_.size() && !pulls_; ++r) {
        if (r != summed) {
          std::memcpy(buffers_[r] + begin, sums, count * sizeof(float));
        }
      }
    }
  }

  std::size_t rank_;
  bool pulls_;
  segment memory_;
  std::vector<std::atomic<std::uint64_t>*> flags_;
  std::vector<float*> buffers_;
  std::uint64_t round_ = 0;
  spinner spin_;
};

/// What sockets can do at best: each rank sends its neighbour on the right what it does in a ring all-reduce, 2 (N-1) times
/// an N-th of the buffer, while as much comes from the left; nothing is added. All at once took longer than in rounds.
class socket_limit {
 public:
  static constexpr const char* variable = "GRADWEAVE_BENCH_SOCKETS";

  /// Connects the ranks over the loopback interface; the launching process keeps the result while they run.
  static std::vector<descriptor> connect(int ranks) {
    using boost::asio::ip::tcp;
    boost::asio::io_context context;
    tcp::acceptor acceptor(context, {boost::asio::ip::address_v4::loopback(), 0});
    std::vector<descriptor> ends;  // of rank r: 2 r to the right, 2 r + 1 from the left
    std::string numbers;
    ends.resize(2 * static_cast<std::size_t>(ranks));
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
      tcp::socket right(context);
      right.connect(acceptor.local_endpoint());
      tcp::socket left = acceptor.accept();
      right.set_option(tcp::no_delay(true));
      left.set_option(tcp::no_delay(true));
      ends[2 * rank] = descriptor(::dup(right.native_handle()));  // a duplicate stays open in the ranks
      ends[(2 * rank + 3) % ends.size()] = descriptor(::dup(left.native_handle()));
    }
    for (const descriptor& each : ends) {
      numbers += std::to_string(each.number()) + " ";
    }
    ::setenv(variable, numbers.c_str(), 1);
    return ends;
  }

  socket_limit(int rank, int size, std::size_t bytes)
      : size_(static_cast<std::size_t>(size)), data_(segment::create(bytes)) {
    const char* next = std::getenv(variable);
    char* end = nullptr;
    for (int i = 0; i < 2 * size; ++i, next = end) {
      const int number = static_cast<int>(std::strtol(next, &end, 10));
      if (i / 2 == rank) {
        (i % 2 == 0 ? right_ : left_) = number;
      }
    }
    if (size == 2) {
      (rank == 0 ? left_ : right_) = rank == 0 ? right_ : left_;  // both ways on one connection
    }
  }

  void run(std::size_t bytes) {
    const std::size_t piece = bytes / size_;
    for (std::size_t round = 0; round < 2 * (size_ - 1); ++round) {
      exchange(data_.data() + round % size_ * piece, data_.data() + (round + 1) % size_ * piece, piece);
    }
  }

 private:
  static constexpr std::size_t piece_bytes = std::size_t{64} << 10;  // larger ones took longer

  void exchange(const std::byte* out, std::byte* in, std::size_t bytes) {
    std::size_t sent = 0;
    std::size_t received = 0;
    for (;;) {
      for (std::size_t more = 1; more != 0 && sent != bytes; sent += more) {
        more = moved(::send(right_, out + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL));
      }
      for (std::size_t more = 1; more != 0 && received != bytes; received += more) {
        more = moved(::recv(left_, in + received, std::min(bytes - received, piece_bytes), MSG_DONTWAIT));
      }
      if (sent == bytes && received == bytes) {
        return;
      }
      // Not by trying again: a socket says that there is room once it is worth while.
      std::array<pollfd, 2> awaited = {pollfd{left_, static_cast<short>(received == bytes ? 0 : POLLIN), 0},
                                       pollfd{right_, static_cast<short>(sent == bytes ? 0 : POLLOUT), 0}};
      const auto look = [&](int milliseconds) { return ::poll(awaited.data(), awaited.size(), milliseconds) != 0; };
      if (!spin_.until([&] { return look(0); })) {
        look(-1);
      }
    }
  }

  static std::size_t moved(ssize_t outcome) {
    if (outcome == 0 || (outcome < 0 && errno != EAGAIN)) {
      throw std::runtime_error("the raw sockets of --limit are closed: another rank has ended");
    }
    return outcome < 0 ? 0 : static_cast<std::size_t>(outcome);
  }

  std::size_t size_;
  segment data_;
  int right_ = -1;
  int left_ = -1;
  spinner spin_;
};

}  // namespace gradweave::bench
