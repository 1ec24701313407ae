#include <gradweave/transport/settlement.hpp>

#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace std::chrono_literals;

namespace {

failure cause_of(errc code, int rank, std::string detail = "") {
  failure cause{code, rank, -1, -1, {}, std::move(detail)};
  cause.collectives_completed = 5;
  return cause;
}

/// Ranks that settle, over links that can be cut. Messages arrive at once, in rounds of 1 ms.
class meeting {
 public:
  explicit meeting(int size) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.emplace_back(rank, size);
    }
  }

  settlement& rank(int which) { return ranks_[static_cast<std::size_t>(which)]; }
  deadline now() const { return now_; }
  void stop(int which) { stopped_.insert(which); }
  void cut(int a, int b) {
    cut_.insert({a, b});
    cut_.insert({b, a});
    rank(a).lose(b);
    rank(b).lose(a);
  }

  /// Until all that are not stopped have settled; how long that takes.
  std::chrono::milliseconds settle() {
    const int size = static_cast<int>(ranks_.size());
    for (int ms = 0; ms < 2000; ++ms) {
      std::vector<std::pair<int, failure>> said;
      for (int r = 0; r < size; ++r) {
        while (auto message = stopped_.contains(r) ? std::nullopt : rank(r).next_message(now_)) {
          said.emplace_back(r, *message);
        }
      }
      for (const auto& [from, message] : said) {
        for (int to = 0; to < size; ++to) {
          if (to != from && !cut_.contains({from, to})) {
            rank(to).hear(from, message, now_);
          }
        }
      }
      bool all = true;
      for (int r = 0; r < size; ++r) {
        all = all && (stopped_.contains(r) || rank(r).complete());
      }
      if (all) {
        return std::chrono::milliseconds(ms);
      }
      now_ += 1ms;
    }
    return std::chrono::milliseconds::max();
  }

  void check_story(errc code, int culprit) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (!stopped_.contains(static_cast<int>(r))) {
        CAPTURE(r);
        REQUIRE(ranks_[r].complete());
        CHECK(ranks_[r].chosen().code == code);
        CHECK(ranks_[r].chosen().rank == culprit);
      }
    }
  }

 private:
  std::deque<settlement> ranks_;
  std::set<int> stopped_;
  std::set<std::pair<int, int>> cut_;
  deadline now_{};
};

}  // namespace

TEST_CASE("settlement: one cause is told to all, in no time") {
  meeting four(4);
  four.rank(2).begin(cause_of(errc::aborted, 2), four.now());
  CHECK(four.settle() < 5ms);
  four.check_story(errc::aborted, 2);
}

TEST_CASE("settlement: of causes found at once all choose the same") {
  meeting four(4);
  four.rank(0).begin(cause_of(errc::timed_out, 3), four.now());
  four.rank(3).begin(cause_of(errc::aborted, 3), four.now());
  four.rank(1).begin(cause_of(errc::peer_lost, 2), four.now());
  CHECK(four.settle() < 5ms);
  four.check_story(errc::aborted, 3);
}

TEST_CASE("settlement: a rank alone settles on its cause") {
  meeting one(1);
  one.rank(0).begin(cause_of(errc::aborted, 0), one.now());
  CHECK(one.settle() < 2ms);
  one.check_story(errc::aborted, 0);
}

TEST_CASE("settlement: two ranks that can't hear each other tell one story through a third") {
  for (const auto& [a, b] : {std::pair(0, 1), std::pair(1, 2), std::pair(2, 0)}) {
    meeting three(3);
    three.cut(a, b);
    three.rank(a).begin(cause_of(errc::peer_lost, b), three.now());
    three.rank(b).begin(cause_of(errc::peer_lost, a), three.now());
    CHECK(three.settle() < 5ms);
    three.check_story(errc::peer_lost, std::min(a, b));
  }
}

TEST_CASE("settlement: who ran out of time may have waited for the wrong rank; who is silent is named") {
  meeting four(4);
  four.stop(3);
  four.rank(0).begin(cause_of(errc::timed_out, 1, "rank 1 did not enter"), four.now());
  const auto took = four.settle();
  CHECK(took >= settlement::round_time);
  CHECK(took < 2 * settlement::round_time);  // who was silent in the first round is not waited for in the second
  four.check_story(errc::timed_out, 3);
  CHECK(four.rank(1).chosen().detail == "rank 3 does not answer; rank 1 did not enter");
}

TEST_CASE("settlement: a silent rank that is named stays named, and where all answer so does who was late") {
  meeting silent(4);
  silent.stop(2);
  silent.stop(3);
  silent.rank(0).begin(cause_of(errc::timed_out, 3), silent.now());
  silent.settle();
  silent.check_story(errc::timed_out, 3);

  meeting late(3);
  late.rank(0).begin(cause_of(errc::timed_out, 1), late.now());
  late.settle();
  late.check_story(errc::timed_out, 1);
}

TEST_CASE("settlement: what was heard first is not replaced by an own cause") {
  meeting two(2);
  two.rank(0).hear(1, cause_of(errc::peer_lost, 1), two.now());
  two.rank(0).begin(cause_of(errc::aborted, 0), two.now());
  CHECK(two.rank(0).first().code == errc::peer_lost);
}
