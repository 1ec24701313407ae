/// @file
/// How the processes of a job find each other: rank 0 receives them at an address that all know, compares what they
/// came for, and hands out a table of everybody's addresses.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <gradweave/assert.hpp>
#include <gradweave/error.hpp>
#include <gradweave/transport/call.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/introduction.hpp>
#include <gradweave/transport/meeting_file.hpp>
#include <gradweave/transport/reception.hpp>
#include <gradweave/transport/rendezvous_options.hpp>
#include <gradweave/version.hpp>

namespace gradweave::detail {

inline std::string to_text(const rendezvous_options& options) {
  return options.file.empty() ? options.address + " port " + std::to_string(options.port)
                              : "the place that file '" + options.file + "' names";
}

[[noreturn]] inline void fail_rendezvous(const rendezvous_options& options, errc code, int culprit,
                                         const std::string& what) {
  throw sync_error({code,
                    culprit,
                    -1,
                    -1,
                    {},
                    "rendezvous of job '" + options.job + "' at " + to_text(options) + ", rank " +
                        std::to_string(options.rank) + ": " + what});
}

/// Listens at the first port of those that may be tried and is free.
inline boost::asio::ip::tcp::acceptor listen_at_first_free(boost::asio::io_context& context,
                                                           const rendezvous_options& options) {
  for (int next = 0;; ++next) {
    try {
      return listen_at(context, static_cast<std::uint16_t>(options.port + next));
    } catch (const boost::system::system_error& fault) {
      if (fault.code() != boost::asio::error::address_in_use || next + 1 >= options.ports) {
        throw;
      }
    }
  }
}

/// Where a rank lets the others call it.
struct mesh_place {
  std::optional<boost::asio::ip::address> address;  ///< where the user chose an interface
  std::uint16_t port = 0;
};

/// What a rank brings home.
struct visit {
  welcome answer;
  boost::asio::ip::address host_address;  ///< at which it reached rank 0
  /// The connections by which the ranks met, by rank: rank 0 has one to each other rank, these have one to rank 0.
  std::vector<std::optional<tcp_socket>> connections;
};

/// Rank 0's part: receives everybody, compares, and answers.
class rendezvous_host {
 public:
  rendezvous_host(boost::asio::io_context& context, const rendezvous_options& options, const mesh_place& own)
      : context_(context), options_(options), guests_(static_cast<std::size_t>(options.size)) {
    answer_.table.resize(guests_.size());
    answer_.table[0] = {own.address ? own.address->to_string() : "", own.port};
    std::random_device random;
    answer_.ticket = (static_cast<std::uint64_t>(random()) << 32) | random();
  }

  visit run(deadline until) {
    std::optional<boost::asio::ip::tcp::acceptor> acceptor;
    std::optional<meeting_file> file;
    try {
      acceptor.emplace(options_.file.empty() ? listen_at_first_free(context_, options_) : listen_at(context_, 0));
      if (!options_.file.empty()) {
        file.emplace(options_.file, this_place(options_.job, options_.interfaces, acceptor->local_endpoint().port()));
      }
    } catch (const boost::system::system_error& fault) {
      fail_rendezvous(options_, errc::internal, 0, "can't receive the others there: " + fault.code().message());
    } catch (const std::system_error& fault) {
      fail_rendezvous(options_, errc::internal, 0, std::string("can't receive the others there: ") + fault.what());
    }
    reception desk(context_, std::move(*acceptor), options_.secret,
                   [this](tcp_socket guest, std::span<const std::byte> body) { receive(std::move(guest), body); });
    if (!run_until(context_, until, [this] { return complete() || !answer_.fault.empty(); })) {
      say_who_is_missing(desk.refused());
    } else if (answer_.fault.empty()) {
      fill_table();
    }
    boost::system::error_code ignored;
    for (auto& guest : guests_) {
      if (guest) {
        if (answer_.fault.empty()) {
          guest->cancel(ignored);  // from here on the mesh barrier watches it
        }
        send_message(*guest, message_kind::answer, answer_.encode());
      }
    }
    if (!answer_.fault.empty()) {
      // Who comes a little late hears it too.
      run_until(context_, std::chrono::steady_clock::now() + std::chrono::seconds(2), [this] { return complete(); });
      fail_rendezvous(options_, answer_.code, answer_.culprit, answer_.fault);
    }
    return {answer_, {}, std::move(guests_)};
  }

 private:
  bool complete() const {
    return std::all_of(guests_.begin() + 1, guests_.end(), [](const auto& guest) { return guest.has_value(); });
  }

  void receive(tcp_socket guest, std::span<const std::byte> body) {
    const auto came = hello::decode(body);
    if (!came) {
      return;
    }
    const std::string who = "rank " + std::to_string(came->rank) + " (" + route_of(guest) + ")";
    if (came->job != options_.job) {
      welcome refusal;
      refusal.other_job = true;
      refusal.refuse(errc::manifest_mismatch, static_cast<std::int32_t>(came->rank),
                     "another job, '" + options_.job + "', meets at this address; " + who + " came for '" + came->job +
                         "': give each job a port or a job id of its own");
      send_message(guest, message_kind::answer, refusal.encode());
      return;
    }
    std::string fault;
    if (came->version != version_string) {
      fault = who + " has version " + came->version + " of gradweave, rank 0 " + std::string(version_string);
    } else if (came->size != static_cast<std::uint32_t>(options_.size)) {
      fault = who + " believes that the job has " + std::to_string(came->size) + " ranks, rank 0 " +
              std::to_string(options_.size);
    } else if (came->rank == 0 || came->rank >= came->size) {
      fault = "a second process came as " + who + " of " + std::to_string(came->size);
    } else if (guests_[came->rank]) {
      fault = "two processes came as " + who + " and " + route_of(*guests_[came->rank]);
    }
    if (!fault.empty() && answer_.fault.empty()) {
      answer_.refuse(errc::manifest_mismatch, static_cast<std::int32_t>(came->rank), fault);
    }
    if (!answer_.fault.empty()) {
      send_message(guest, message_kind::answer, answer_.encode());
      if (fault.empty()) {
        guests_[came->rank] = std::move(guest);
      }
      return;
    }
    answer_.table[came->rank] = {came->address, came->port};
    send_message(guest, message_kind::noted, {});
    guests_[came->rank] = std::move(guest);
    watch(came->rank, who);
  }

  /// A guest has nothing to say until it is answered: what can be read is its end.
  void watch(std::uint32_t rank, const std::string& who) {
    guests_[rank]->async_wait(tcp_socket::wait_read, [this, rank, who, still_here = std::weak_ptr(alive_)](
                                                         boost::system::error_code stopped) {
      if (!stopped && !still_here.expired() && answer_.fault.empty()) {
        answer_.refuse(errc::peer_lost, static_cast<std::int32_t>(rank), who + " came, and is gone again");
      }
    });
  }

  void say_who_is_missing(std::size_t refused) {
    std::string missing;
    std::int32_t first = -1;
    for (std::size_t rank = 1; rank < guests_.size(); ++rank) {
      if (!guests_[rank]) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
        first = first < 0 ? static_cast<std::int32_t>(rank) : first;
      }
    }
    answer_.refuse(errc::timed_out, first,
                   "these ranks did not come within " + std::to_string(options_.timeout.count()) + " ms: " + missing +
                       to_text_of_refused(refused));
  }

  /// Where each rank can be reached: by the interface that it chose, else by the address that it came from. No address is
  /// handed out for ranks on this host that did not choose: the others know one, by which they came here.
  void fill_table() {
    bool has_outsiders = false;
    for (std::size_t rank = 1; rank < guests_.size(); ++rank) {
      boost::system::error_code fault;
      const auto from = plain(guests_[rank]->remote_endpoint(fault).address());
      if (fault) {
        answer_.refuse(errc::peer_lost, static_cast<std::int32_t>(rank),
                       "rank " + std::to_string(rank) + " came and is gone again");
        return;
      }
      has_outsiders |= !from.is_loopback();
      std::string& address = answer_.table[rank].first;
      if (address.empty() && !from.is_loopback()) {
        address = from.to_string();
      }
    }
    for (std::size_t rank = 0; rank < guests_.size(); ++rank) {
      const std::string& address = answer_.table[rank].first;
      if (has_outsiders && !address.empty() && boost::asio::ip::make_address(address).is_loopback()) {
        answer_.refuse(errc::manifest_mismatch, static_cast<std::int32_t>(rank),
                       "rank " + std::to_string(rank) + " was told to talk from " + address +
                           ", which no other host can reach (GRADWEAVE_SOCKET_IFNAME)");
        return;
      }
    }
  }

  boost::asio::io_context& context_;
  const rendezvous_options& options_;
  std::vector<std::optional<tcp_socket>> guests_;
  welcome answer_;
  std::shared_ptr<int> alive_ = std::make_shared<int>();  // what was asked to watch guests may outlive this
};

/// Where rank 0 may be, at this moment. Why nowhere, in `fault`.
inline std::vector<tcp_endpoint> find_host(boost::asio::io_context& context, const rendezvous_options& options,
                                           std::string& fault) {
  std::vector<tcp_endpoint> found;
  if (options.file.empty()) {
    boost::system::error_code unresolved;
    boost::asio::ip::tcp::resolver resolver(context);
    for (const auto& each : resolver.resolve(options.address, std::to_string(options.port), unresolved)) {
      for (int next = 0; next < options.ports; ++next) {
        found.emplace_back(each.endpoint().address(), static_cast<std::uint16_t>(options.port + next));
      }
    }
    fault = unresolved ? "the name '" + options.address + "' is not known: " + unresolved.message() : fault;
    return found;
  }
  const auto place = read_meeting_place(options.file);
  if (!place) {
    fault = "rank 0 has not written that file";
  } else if (place->job != options.job) {
    fault = "the file belongs to another job, '" + place->job + "'";
  } else {
    const bool same_host = place->host == host_identity();
    std::copy_if(place->endpoints.begin(), place->endpoints.end(), std::back_inserter(found),
                 [&](const tcp_endpoint& each) { return same_host || !each.address().is_loopback(); });
    fault = found.empty() ? "rank 0 has no address that another host could reach" : fault;
  }
  return found;
}

/// The other ranks' part.
inline visit visit_rendezvous(boost::asio::io_context& context, const rendezvous_options& options,
                              const mesh_place& own, deadline until) {
  std::string last_fault = "not tried";
  std::string answered_fault;  // somebody was there: that says more than that nobody is there any more
  const auto ask = [&](const tcp_endpoint& place) -> std::optional<visit> {
    // One of several addresses that does not answer must not take all the time.
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    const bool fits = own.address && own.address->is_v4() == place.address().is_v4();
    auto socket =
        connect_until(context, place, fits ? own.address : std::nullopt, std::min(until, patience), last_fault);
    if (!socket) {
      return std::nullopt;
    }
    const std::string route = route_of(*socket) + ": ";
    if (const auto fault = prove_secret(context, *socket, options.secret, std::min(until, patience))) {
      // A connection that breaks off, as when rank 0 gives up, says less than what was answered before.
      if (answered_fault.empty() || *fault == secrets_differ) {
        answered_fault = route + *fault;
      }
      return std::nullopt;
    }
    send_message(*socket, message_kind::introduction,
                 hello{std::string(version_string), options.job, static_cast<std::uint32_t>(options.size),
                       static_cast<std::uint32_t>(options.rank), own.address ? own.address->to_string() : "", own.port}
                     .encode());
    auto said = receive_message(context, *socket, {message_kind::noted, message_kind::answer}, welcome::bytes_max,
                                std::min(until, patience));
    if (!said.fault && said.kind == message_kind::noted) {
      said = receive_message(context, *socket, {message_kind::answer}, welcome::bytes_max,
                             until + std::chrono::seconds(3));
      if (said.fault && std::chrono::steady_clock::now() < until) {
        fail_rendezvous(options, errc::peer_lost, 0,
                        route + "rank 0 is gone before all ranks had come: " + *said.fault);
      }
    }
    const auto answer = said.fault ? std::nullopt : welcome::decode(said.body);
    if (!answer) {
      answered_fault = route + said.fault.value_or("what was answered is no welcome");
      return std::nullopt;
    }
    if (answer->other_job && options.ports > 1) {
      answered_fault = route + answer->fault;
      return std::nullopt;  // this job may meet at the next port
    }
    if (!answer->fault.empty()) {
      fail_rendezvous(options, answer->code, answer->culprit, answer->fault);
    }
    if (answer->table.size() != static_cast<std::size_t>(options.size)) {
      fail_rendezvous(options, errc::internal, 0, "rank 0's table has the wrong length");
    }
    visit done{*answer, place.address(), {}};
    done.connections.push_back(std::move(socket));
    return done;
  };
  while (std::chrono::steady_clock::now() < until) {
    for (const tcp_endpoint& place : find_host(context, options, last_fault)) {
      if (auto done = ask(place)) {
        return std::move(*done);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  fail_rendezvous(options, errc::timed_out, 0,
                  "rank 0 was not reached within " + std::to_string(options.timeout.count()) +
                      " ms; last: " + (answered_fault.empty() ? last_fault : answered_fault));
}

}  // namespace gradweave::detail
