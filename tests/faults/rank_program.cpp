// One rank of a job over TCP, as a process of its own that can be told to fail, and that tells how it ended. The tests of this
// folder start several. Arguments are NAME=VALUE, as in `settings` below. What it prints, a line each, with the nanoseconds of
// CLOCK_MONOTONIC:
//   connection LOCAL PEER     a socket of this rank
//   begun NS                  the first step is over
//   fault NS                  it fails now
//   step N EVENTS             step N is over, and so many messages have come and gone since the beginning
//   end NS                    all steps are over, with the right averages
//   error TAB NS TAB CODE TAB RANK TAB STEP TAB BUCKET TAB SLOTS TAB SENTENCE    a sync_error
//   other TAB NS TAB SENTENCE                                                    another exception
//   wrong ...                 an average was wrong
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/backend/tcp.hpp>
#include <gradweave/gradweave.hpp>

namespace {

namespace gw = gradweave;

struct settings {
  std::uint64_t steps = 3;
  std::vector<std::size_t> sizes = {7, 1000, 64, 300};  // elements of the gradients: a bucket each
  long timeout_ms = 20'000;
  long meet_timeout_ms = 20'000;
  bool blocking = false;                // collectives on the caller at the end of the step, instead of in a thread
  bool compressed = false;              // to bfloat16: other collectives
  bool share_memory = false;            // instead of payload over TCP
  std::string fault;                    // kill, stop, exit, throw; leave: after the last step
  std::uint64_t at_event = UINT64_MAX;  // after so many messages
  std::uint64_t at_step = UINT64_MAX;   // or in this step's backward pass
  long step_ms = 0;                     // a step takes so long to compute
  long slow_ms = 0;                     // in the last step, each receiving takes so long
  bool tell_steps = false;
};

std::int64_t now() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void print(std::string line) {
  line += '\n';
  (void)!::write(STDOUT_FILENO, line.data(), line.size());
}

void pause_for(long milliseconds) {
  if (milliseconds > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
}

void strike(const std::string& fault) {
  print("fault " + std::to_string(now()));
  if (fault == "kill") {
    ::raise(SIGKILL);
  } else if (fault == "stop") {
    ::raise(SIGSTOP);  // and goes on when it is woken
  } else if (fault == "exit") {
    ::_exit(9);
  } else if (fault == "throw") {
    throw std::runtime_error("the data is bad");
  }
}

/// Counts the messages that come and go, and fails after one of them.
struct message_counter {
  settings told;
  std::atomic<std::uint64_t> events{0};
  std::atomic<bool> last_step{false};

  void count() {
    if (events.fetch_add(1) + 1 == told.at_event) {
      strike(told.fault);
    }
  }
};

/// The transport of backend::tcp, with a counter in it.
class counted_transport {
 public:
  using transport = gw::shared_memory_transport<gw::asio_transport>;

  counted_transport(transport inner, message_counter& counter) : inner_(std::move(inner)), counter_(&counter) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  std::size_t try_send(int peer, std::span<const std::byte> bytes) { return counted(inner_.try_send(peer, bytes)); }
  std::size_t try_receive(int peer, std::span<std::byte> room) {
    slow_down();
    return counted(inner_.try_receive(peer, room));
  }
  std::size_t try_send_pieces(int peer, std::span<const std::span<const std::byte>> pieces) {
    return counted(inner_.try_send_pieces(peer, pieces));
  }
  std::size_t try_receive_pieces(int peer, std::span<const std::span<std::byte>> pieces) {
    slow_down();
    return counted(inner_.try_receive_pieces(peer, pieces));
  }
  bool try_send_control(int peer, const gw::control_message& message) {
    return counted(inner_.try_send_control(peer, message));
  }
  bool try_receive_control(int peer, gw::control_message& message) {
    return counted(inner_.try_receive_control(peer, message));
  }
  bool peer_closed(int peer) { return inner_.peer_closed(peer); }

  template <class Gather>
  void share(Gather&& gather) {
    inner_.share(std::forward<Gather>(gather));
  }
  int memory_group(int rank) const { return inner_.memory_group(rank); }
  auto allocate(std::size_t bytes) { return inner_.allocate(bytes); }
  bool can_lend(std::span<const gw::extent> memory) const { return inner_.can_lend(memory); }
  void lend(int peer, std::span<const gw::extent> memory) {
    inner_.lend(peer, memory);
    counter_->count();
  }
  std::span<const gw::extent> borrowed(int rank) { return inner_.borrowed(rank); }
  void give_back(int rank) {
    inner_.give_back(rank);
    counter_->count();
  }
  bool given_back(int peer) { return inner_.given_back(peer); }

  gw::failure abort(gw::failure cause) { return inner_.abort(std::move(cause)); }
  const gw::failure* aborted() { return inner_.aborted(); }
  std::uint64_t events() { return inner_.events(); }
  void wait(std::uint64_t seen, gw::deadline until) { inner_.wait(seen, until); }
  gw::deadline now() const { return inner_.now(); }
  std::uint64_t payload_bytes_sent() const { return inner_.payload_bytes_sent(); }

 private:
  void slow_down() const {
    if (counter_->last_step) {
      pause_for(counter_->told.slow_ms);
    }
  }

  template <class Result>
  Result counted(Result moved) {
    if (moved) {
      counter_->count();
    }
    return moved;
  }

  transport inner_;
  message_counter* counter_;
};

static_assert(gw::byte_transport<counted_transport> && gw::transport_takes_pieces<counted_transport> &&
              gw::transport_shares_memory<counted_transport>);

settings parse(std::span<char* const> arguments) {
  settings told;
  for (const std::string_view argument : arguments) {
    const std::size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    const std::string value(argument.substr(equals + 1));
    if (name == "steps") {
      told.steps = std::stoull(value);
    } else if (name == "sizes") {
      told.sizes.clear();
      std::istringstream numbers(value);
      for (std::string number; std::getline(numbers, number, ',');) {
        told.sizes.push_back(std::stoull(number));
      }
    } else if (name == "timeout_ms") {
      told.timeout_ms = std::stol(value);
    } else if (name == "meet_timeout_ms") {
      told.meet_timeout_ms = std::stol(value);
    } else if (name == "blocking") {
      told.blocking = value == "1";
    } else if (name == "compressed") {
      told.compressed = value == "1";
    } else if (name == "share_memory") {
      told.share_memory = value == "1";
    } else if (name == "fault") {
      told.fault = value;
    } else if (name == "at_event") {
      told.at_event = std::stoull(value);
    } else if (name == "at_step") {
      told.at_step = std::stoull(value);
    } else if (name == "step_ms") {
      told.step_ms = std::stol(value);
    } else if (name == "slow_ms") {
      told.slow_ms = std::stol(value);
    } else if (name == "tell_steps") {
      told.tell_steps = value == "1";
    } else {
      throw std::invalid_argument("rank_program: unknown argument " + std::string(argument));
    }
  }
  return told;
}

std::string to_text(const sockaddr_storage& place) {
  std::string text(INET6_ADDRSTRLEN, '\0');
  if (place.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(place);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), INET6_ADDRSTRLEN);
    return text.c_str() + (":" + std::to_string(ntohs(v4.sin_port)));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(place);
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), INET6_ADDRSTRLEN);
  text = text.c_str();
  text = text.starts_with("::ffff:") ? text.substr(7) : text;  // an IPv4 connection of a socket that takes both
  return text + ":" + std::to_string(ntohs(v6.sin6_port));
}

void print_connections() {
  for (int number = 0; number < 256; ++number) {
    sockaddr_storage own{};
    sockaddr_storage peer{};
    socklen_t own_length = sizeof own;
    socklen_t peer_length = sizeof peer;
    if (::getsockname(number, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
        ::getpeername(number, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 &&
        (own.ss_family == AF_INET || own.ss_family == AF_INET6)) {
      print("connection " + to_text(own) + " " + to_text(peer));
    }
  }
}

/// Small whole numbers, whose averages are exact in every format.
float gradient_of(int rank, std::uint64_t step, std::size_t slot) {
  return static_cast<float>(12 * (static_cast<std::uint64_t>(rank) + step % 4) + slot % 4 * 12);
}
float average_of(int size, std::uint64_t step, std::size_t slot) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) {
    sum += gradient_of(rank, step, slot);
  }
  return sum / static_cast<float>(size);
}

int train(const settings& told, message_counter& counter) {
  auto place = gw::rendezvous_from(gw::environment_variable);
  place.timeout = std::chrono::milliseconds(told.meet_timeout_ms);
  counted_transport::transport transport(gw::connect_mesh(place), told.share_memory);
  gw::backend::scheduled<counted_transport> backend(
      "tcp", counted_transport(std::move(transport), counter),
      gw::backend::scheduled_options{.timeout = std::chrono::milliseconds(told.timeout_ms)});
  print_connections();
  if (told.at_event == 0) {
    strike(told.fault);
  }

  std::vector<std::vector<float>> tensors;
  for (const std::size_t elements : told.sizes) {
    tensors.emplace_back(elements);
  }
  gw::manifest gradients;
  std::vector<gw::slot> slots;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    slots.push_back(gradients.add("layer" + std::to_string(i), tensors[i]));
  }
  using overlaps = gw::one_of<gw::overlap::blocking, gw::overlap::progress_thread>;
  using compressions = gw::one_of<gw::compression::none, gw::compression::bf16>;
  auto sync =
      gw::synchronize(std::move(gradients), std::move(backend), gw::bucketing::per_tensor{},
                      told.blocking ? overlaps(gw::overlap::blocking{}) : overlaps(gw::overlap::progress_thread{}),
                      told.compressed ? compressions(gw::compression::bf16{}) : compressions(gw::compression::none{}));

  for (std::uint64_t step = 0; step < told.steps; ++step) {
    counter.last_step = step + 1 == told.steps;
    sync.step([&](auto& current) {
      pause_for(told.step_ms);
      for (std::size_t i = tensors.size(); i-- > 0;) {
        tensors[i].assign(tensors[i].size(), gradient_of(sync.rank(), step, i));
        current.ready(slots[i]);
        if (step == told.at_step && i == tensors.size() / 2) {
          strike(told.fault);
        }
      }
    });
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      for (const float average : tensors[i]) {
        if (average != average_of(sync.size(), step, i)) {
          print("wrong average " + std::to_string(average) + " in step " + std::to_string(step) + ", slot " +
                std::to_string(i));
          return 3;
        }
      }
    }
    if (step == 0) {
      print("begun " + std::to_string(now()));
    }
    if (told.tell_steps) {
      print("step " + std::to_string(step) + " " + std::to_string(counter.events));
    }
  }
  print("end " + std::to_string(now()));
  if (told.fault == "leave") {
    ::_exit(0);  // nothing is destroyed
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    message_counter counter;
    counter.told = parse({arguments + 1, static_cast<std::size_t>(count) - 1});
    return train(counter.told, counter);
  } catch (const gw::sync_error& error) {
    std::string slots;
    for (const std::string& each : error.slots()) {
      slots += (slots.empty() ? "" : ",") + each;
    }
    print("error\t" + std::to_string(now()) + "\t" + error.code().message() + "\t" + std::to_string(error.rank()) +
          "\t" + std::to_string(error.step()) + "\t" + std::to_string(error.bucket()) + "\t" + slots + "\t" +
          error.what());
    return 1;
  } catch (const std::exception& error) {
    print("other\t" + std::to_string(now()) + "\t" + error.what());
    return 2;
  }
}
