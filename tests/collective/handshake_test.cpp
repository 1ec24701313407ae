#include <gradweave/collective/handshake.hpp>

#include <vector>

#include <doctest/doctest.h>

#include <gradweave/transport/in_process.hpp>

using namespace gradweave;

namespace {

/// One rank's handshake of a collective in which two ranks exchange `elements` elements.
struct party {
  in_process_transport transport;
  handshake shake{2};

  void begin(collective operation, std::uint64_t sequence, std::size_t elements, reduction reduce = {}) {
    const auto peer = static_cast<std::size_t>(1 - transport.rank());
    shake.begin({.operation = operation, .kind = element_kind::float32, .reduce = reduce}, sequence);
    shake.expect(peer, elements);
    shake.owe(peer, elements);
  }
  void exchange(bool complete = false) { shake.exchange(transport, complete); }
};

std::vector<party> pair_of_parties() {
  std::vector<party> parties;
  for (in_process_transport& end : in_process_transport::connect(2)) {
    parties.push_back({std::move(end)});
  }
  return parties;
}

}  // namespace

TEST_CASE("handshake: a peer is open once its opening has come, and no longer once it is used up") {
  auto ranks = pair_of_parties();
  ranks[0].begin(collective::all_reduce, 1, 5);
  ranks[1].begin(collective::all_reduce, 1, 5);
  CHECK_FALSE(ranks[0].shake.is_told());
  ranks[0].exchange();
  CHECK(ranks[0].shake.is_told());
  CHECK_FALSE(ranks[0].shake.is_open(1));
  ranks[1].exchange();
  CHECK(ranks[1].shake.is_open(0));
  ranks[1].shake.settle(0);
  CHECK_FALSE(ranks[1].shake.is_open(0));
}

TEST_CASE("handshake: another operation, or another count, is a mismatch that names both calls") {
  auto ranks = pair_of_parties();
  ranks[0].begin(collective::all_reduce, 1, 5);
  ranks[1].begin(collective::all_gather, 1, 5);
  ranks[0].exchange();
  CHECK_THROWS_WITH_AS(
      ranks[1].exchange(),
      doctest::Contains("rank 1 entered all_gather of 5 float32 elements (collective 1, plan 0), rank 0 "
                        "all_reduce of 5 float32 elements"),
      sync_error);
  auto others = pair_of_parties();
  others[0].begin(collective::all_reduce, 1, 5);
  others[1].begin(collective::all_reduce, 1, 6);
  others[0].exchange();
  CHECK_THROWS_AS(others[1].exchange(), sync_error);
}

TEST_CASE("handshake: calls that only divide otherwise are told apart in words too") {
  auto ranks = pair_of_parties();
  ranks[0].begin(collective::all_reduce, 1, 5, {.divisor = 2});
  ranks[1].begin(collective::all_reduce, 1, 5, {.divisor = 3});
  ranks[0].exchange();
  CHECK_THROWS_WITH_AS(ranks[1].exchange(), doctest::Contains("they differ in the reduction or its divisor"),
                       sync_error);
}

TEST_CASE("handshake: an early opening of the next collective waits, if nothing is owed in this one") {
  auto ranks = pair_of_parties();
  ranks[0].begin(collective::all_reduce, 2, 5);
  ranks[0].exchange();
  ranks[1].begin(collective::barrier, 1, 0);
  CHECK_NOTHROW(ranks[1].exchange());
  CHECK_FALSE(ranks[1].shake.is_open(0));
  ranks[1].begin(collective::all_reduce, 2, 5);
  ranks[1].exchange();
  CHECK(ranks[1].shake.is_open(0));
}

TEST_CASE("handshake: a peer that went on without what it is owed is a mismatch") {
  auto ranks = pair_of_parties();
  ranks[0].begin(collective::all_reduce, 2, 5);
  ranks[0].exchange();
  ranks[1].begin(collective::all_reduce, 1, 5);
  CHECK_THROWS_AS(ranks[1].exchange(), sync_error);
}

TEST_CASE("handshake: an opening for a collective that was complete without it is found out in the next") {
  auto ranks = pair_of_parties();
  ranks[0].begin(collective::all_reduce, 1, 5);
  ranks[0].exchange();
  ranks[1].begin(collective::barrier, 1, 0);
  CHECK_NOTHROW(ranks[1].exchange(true));
  ranks[1].begin(collective::barrier, 2, 0);
  CHECK_THROWS_AS(ranks[1].exchange(), sync_error);
}
