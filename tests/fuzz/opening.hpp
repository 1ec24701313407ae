/// @file
/// opening::decode and the handshake: whatever a peer sends can be told in words, and only what was entered here opens
/// a collective.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <gradweave/collective/handshake.hpp>
#include <gradweave/collective/opening.hpp>
#include <gradweave/error.hpp>
#include <gradweave/testing/archetypes.hpp>
#include <gradweave/transport/concept.hpp>

#include "tests/fuzz/check.hpp"

namespace gradweave::fuzz {

/// Rank 1 of two: rank 0 sends the control messages that the input holds, and takes everything.
class control_peer : public testing::transport_archetype {
 public:
  explicit control_peer(bytes_view input) : left_(input) {}

  int rank() const { return 1; }
  int size() const { return 2; }
  bool try_send_control(int, const control_message&) { return true; }
  bool try_receive_control(int, control_message& message) {
    if (left_.size() < message.size()) {
      return false;
    }
    std::copy_n(left_.begin(), message.size(), message.begin());
    left_ = left_.subspan(message.size());
    return true;
  }

 private:
  bytes_view left_;
};

/// Enters two collectives, one after another, in which it owes the peer so many elements. False where the peer entered
/// others.
inline bool enter_collectives(control_peer peer, std::size_t elements_owed) {
  std::array<std::byte, 40> values{};
  const extent whole{values.data(), values.size(), 0};
  const collective_request request{.operation = collective::all_reduce,
                                   .kind = element_kind::float32,
                                   .reduce = {reduction_operation::sum, 2},
                                   .data = {&whole, 1}};
  handshake entered(2);
  for (const std::uint64_t sequence : {1U, 2U}) {
    entered.begin(request, sequence);
    entered.expect(0, 5);
    entered.owe(0, elements_owed);
    for (int i = 0; i < 3; ++i) {
      try {
        entered.exchange(peer, false);
      } catch (const sync_error& told) {
        check(told.cause().code == errc::collective_mismatch && told.rank() == 0, "a mismatch names its rank");
        return false;
      }
    }
    if (!entered.is_open(0)) {
      return true;  // the peer has not come yet
    }
    entered.settle(0);
  }
  return true;
}

inline void opening(bytes_view input) {
  const bool accepted = enter_collectives(control_peer(input), 5);
  enter_collectives(control_peer(input), 0);  // then one for a later collective may wait
  control_message message;
  for (control_peer again(input); again.try_receive_control(0, message);) {
    const auto decoded = gradweave::opening::decode(message);
    check(gradweave::opening::decode(decoded.encode()) == decoded, "an opening survives the way");
    check(std::equal(message.begin(), message.begin() + sizeof decoded, decoded.encode().begin()),
          "an opening is what came");
    check(to_string(decoded).size() < 200, "an opening can be told in words");
  }
  if (control_peer first(input); accepted && first.try_receive_control(0, message)) {
    const auto came = gradweave::opening::decode(message);
    check(came.sequence == 1 && came.elements == 10 && came.expected == 5 && came.divisor == 2 && came.root == 0 &&
              came.plan_version == 0 && came.operation == collective::all_reduce &&
              came.kind == element_kind::float32 && came.reduce == reduction_operation::sum,
          "what is taken is what was entered here");
  }
}

}  // namespace gradweave::fuzz
