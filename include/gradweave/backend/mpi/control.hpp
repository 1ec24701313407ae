/// @file
/// What ranks tell each other beside their collectives: that the job has failed, and that they leave. MPI can't end a
/// collective that not all ranks enter, so whoever waits for one listens here meanwhile.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include <mpi.h>

#include <gradweave/backend/mpi/calls.hpp>
#include <gradweave/error.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/failure_message.hpp>
#include <gradweave/transport/settlement.hpp>

namespace gradweave::backend::mpi {

/// One rank's ear and mouth on a communicator that nothing else uses. All calls with the turn. It allocates only once
/// something failed or ends.
class control {
 public:
  control(MPI_Comm communicator, int rank, int size)
      : communicator_(communicator),
        rank_(rank),
        settlement_(rank, size),
        left_after_(static_cast<std::size_t>(size)),
        incoming_(failure_message_bytes_max) {}

  /// Takes in what has come, and says what is to be said. Throws sync_error where MPI fails.
  void listen(deadline now) {
    for (MPI_Status message{}; receive(message);) {
      take_in(message, now);
    }
    while (settlement_.begun()) {
      const std::optional<failure> said = settlement_.next_message(now);
      if (!said) {
        break;
      }
      tell_all(failure_tag, encode_failure(*said));
    }
    std::erase_if(outgoing_, [](message_out& each) { return each.is_gone(); });
  }

  /// This rank's own cause; listen() tells it.
  void begin(failure cause, deadline now) { settlement_.begin(std::move(cause), now); }

  /// Whether any rank is known to have failed; then its cause, as far as it is settled.
  bool has_failed() const { return settlement_.begun(); }
  const failure& cause() const { return settlement_.complete() ? settlement_.chosen() : settlement_.first(); }
  bool is_settled() const { return settlement_.complete(); }

  /// The first rank that left without having completed collective `sequence`.
  std::optional<int> left_before(std::uint64_t sequence) const {
    if (have_left_ == 0) [[likely]] {
      return std::nullopt;
    }
    for (std::size_t peer = 0; peer < left_after_.size(); ++peer) {
      if (left_after_[peer] && *left_after_[peer] < sequence) {
        return static_cast<int>(peer);
      }
    }
    return std::nullopt;
  }

  /// This rank has completed so many collectives and enters no more.
  void leave(std::uint64_t completed) {
    std::vector<std::byte> message(sizeof completed);
    std::memcpy(message.data(), &completed, sizeof completed);
    tell_all(leave_tag, std::move(message));
  }

  /// All others have left and nothing is on its way: the communicator can be freed, and its number be given to another
  /// without a late message for this one coming there.
  bool is_silent() {
    std::erase_if(outgoing_, [](message_out& each) { return each.is_gone(); });
    return have_left_ + 1 == left_after_.size() && outgoing_.empty();
  }

 private:
  static constexpr int failure_tag = 1;
  static constexpr int leave_tag = 2;

  /// To all others at once, from one memory.
  struct message_out {
    std::vector<std::byte> bytes;
    std::vector<MPI_Request> requests;

    bool is_gone() {
      int all = 0;
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, MPI_STATUSES_IGNORE), "MPI_Testall");
      return all != 0;
    }
  };

  bool receive(MPI_Status& message) {
    int there = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &there, &message), "MPI_Iprobe");
    if (there != 0) {
      check(MPI_Recv(incoming_.data(), static_cast<int>(incoming_.size()), MPI_BYTE, message.MPI_SOURCE,
                     message.MPI_TAG, communicator_, &message),
            "MPI_Recv");
    }
    return there != 0;
  }

  void take_in(const MPI_Status& message, deadline now) {
    int bytes = 0;
    check(MPI_Get_count(&message, MPI_BYTE, &bytes), "MPI_Get_count");
    const int peer = message.MPI_SOURCE;
    if (message.MPI_TAG == failure_tag) {
      if (auto told = decode_failure(std::span<const std::byte>(incoming_).first(static_cast<std::size_t>(bytes)))) {
        settlement_.hear(peer, std::move(*told), now);
      }
      return;
    }
    std::uint64_t completed = 0;
    std::memcpy(&completed, incoming_.data(), sizeof completed);
    left_after_[static_cast<std::size_t>(peer)] = completed;
    ++have_left_;
    settlement_.lose(peer);
  }

  void tell_all(int tag, std::vector<std::byte> message) {
    message_out& out = outgoing_.emplace_back();
    out.bytes = std::move(message);
    for (int peer = 0; peer < static_cast<int>(left_after_.size()); ++peer) {
      if (peer != rank_) {
        MPI_Request& request = out.requests.emplace_back(MPI_REQUEST_NULL);
        check(MPI_Isend(out.bytes.data(), static_cast<int>(out.bytes.size()), MPI_BYTE, peer, tag, communicator_,
                        &request),
              "MPI_Isend");
      }
    }
  }

  MPI_Comm communicator_;
  int rank_;
  settlement settlement_;
  std::vector<std::optional<std::uint64_t>> left_after_;  // by rank: what it had completed
  std::size_t have_left_ = 0;
  std::vector<std::byte> incoming_;
  std::list<message_out> outgoing_;  // their memory must not move
};

}  // namespace gradweave::backend::mpi
