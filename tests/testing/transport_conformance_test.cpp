#include <gradweave/testing/transport_conformance.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/error.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/watchdog.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/in_process.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;
using namespace std::chrono_literals;

namespace {

enum class fault {
  none,
  flips_a_bit,
  counts_control,
  forgets_to_count,
  last_cause_wins,
  loses_slots,
  never_sleeps,
  oversleeps,
  closes_early,
  never_closes,
  swaps_ranks,
  drops_control,
  overstates,
};

/// in_process_transport with something wrong.
class faulty_transport {
 public:
  using closed_flags = std::array<std::atomic<bool>, 4>;

  faulty_transport(gw::in_process_transport right, fault what, std::shared_ptr<closed_flags> closed)
      : right_(std::move(right)), what_(what), closed_(std::move(closed)) {}
  faulty_transport(faulty_transport&&) = default;
  faulty_transport& operator=(faulty_transport&&) = default;
  ~faulty_transport() {
    if (closed_ != nullptr) {
      (*closed_)[static_cast<std::size_t>(right_.rank())] = true;
    }
  }

  int rank() const { return what_ == fault::swaps_ranks ? right_.size() - 1 - right_.rank() : right_.rank(); }
  int size() const { return right_.size(); }
  std::size_t try_send(int peer, std::span<const std::byte> bytes) {
    if (what_ == fault::flips_a_bit && !bytes.empty() && ++calls_ % 7 == 0) {
      const std::byte other = bytes.front() ^ std::byte{1};
      return right_.try_send(peer, {&other, 1});
    }
    const std::size_t taken = right_.try_send(peer, bytes);
    return what_ == fault::overstates ? taken + 1 : taken;
  }
  std::size_t try_receive(int peer, std::span<std::byte> room) { return right_.try_receive(peer, room); }
  bool try_send_control(int peer, const gw::control_message& message) {
    controls_ += 64;
    return what_ == fault::drops_control && controls_ > 128 ? true : right_.try_send_control(peer, message);
  }
  bool try_receive_control(int peer, gw::control_message& message) { return right_.try_receive_control(peer, message); }
  bool peer_closed(int peer) {
    switch (what_) {
      case fault::closes_early: return (*closed_)[static_cast<std::size_t>(peer)].load();
      case fault::never_closes: return false;
      default: return right_.peer_closed(peer);
    }
  }
  gw::failure abort(gw::failure cause) {
    if (what_ == fault::loses_slots) {
      cause.slots.clear();
    }
    gw::failure first = right_.abort(cause);
    if (what_ == fault::last_cause_wins) {
      own_ = cause;
      return cause;
    }
    return first;
  }
  const gw::failure* aborted() const { return own_ ? &*own_ : right_.aborted(); }
  std::uint64_t events() const { return right_.events(); }
  gw::deadline now() const { return right_.now(); }
  void wait(std::uint64_t seen, gw::deadline until) {
    switch (what_) {
      case fault::never_sleeps: break;
      case fault::oversleeps: std::this_thread::sleep_until(until); break;
      default: right_.wait(seen, until);
    }
  }
  std::uint64_t payload_bytes_sent() const {
    switch (what_) {
      case fault::counts_control: return right_.payload_bytes_sent() + controls_;
      case fault::forgets_to_count: return 0;
      default: return right_.payload_bytes_sent();
    }
  }

 private:
  gw::in_process_transport right_;
  fault what_;
  std::shared_ptr<closed_flags> closed_;
  std::optional<gw::failure> own_;
  std::uint64_t controls_ = 0;
  int calls_ = 0;
};

std::vector<faulty_transport> connect_faulty(int size, fault what) {
  auto closed = std::make_shared<faulty_transport::closed_flags>();
  std::vector<faulty_transport> ends;
  for (gw::in_process_transport& end : gw::in_process_transport::connect(size)) {
    ends.emplace_back(std::move(end), what, closed);
  }
  return ends;
}

gt::conformance_report check_faulty(fault what) {
  return gt::check_transport([what](int size) { return connect_faulty(size, what); },
                             {.sizes = {2, 3}, .message_bytes = 300'000, .patience = 500ms});
}

void check_catches(fault what, std::string_view sentence) {
  const auto report = check_faulty(what);
  CHECK_MESSAGE(gt::mentions(report, sentence), gt::to_string(report));
}

}  // namespace

TEST_CASE("check_transport: in_process_transport passes") {
  const gt::watchdog guard("check_transport: in_process_transport passes");
  const auto report = gt::check_transport(&gw::in_process_transport::connect);
  CHECK_MESSAGE(report.passed(), gt::to_string(report));
}

TEST_CASE("check_transport: catches each fault") {
  const gt::watchdog guard("check_transport: catches each fault");
  const auto right = check_faulty(fault::none);
  CHECK_MESSAGE(right.passed(), gt::to_string(right));
  check_catches(fault::flips_a_bit, "bytes must arrive in order");
  check_catches(fault::counts_control, "control messages must not count as payload");
  check_catches(fault::forgets_to_count, "payload_bytes_sent() must be what try_send took");
  check_catches(fault::last_cause_wins, "abort() must return the cause that came first");
  check_catches(fault::loses_slots, "a cause must arrive whole");
  check_catches(fault::never_sleeps, "wait() returned although nothing had happened");
  check_catches(fault::oversleeps, "wait() slept through");
  check_catches(fault::closes_early, "seen as closed while bytes");
  check_catches(fault::never_closes, "the close of a peer did not come");
  check_catches(fault::swaps_ranks, "end r must have rank r");
  check_catches(fault::drops_control, "a control message that was sent did not come");
  check_catches(fault::overstates, "try_send took more than was offered");
}
