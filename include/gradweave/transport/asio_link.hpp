/// @file
/// `asio_link`: the two connections by which the TCP transport reaches one peer, and where they lead.
#pragma once

#include <string>

#include <boost/asio/ip/address.hpp>

#include <gradweave/transport/stream.hpp>

namespace gradweave {

/// Who called whom, and where both are. What connected once connects again in the same direction.
struct link_ends {
  stream_side side = stream_side::caller;  ///< this rank's
  boost::asio::ip::address own;
  boost::asio::ip::address peer;
};

/// The two connections to one peer.
template <byte_stream Stream>
struct asio_link {
  Stream payload;
  Stream control;
  std::string route;  ///< from where to where they lead, for people
  std::string here;   ///< the own address and the network interface that has it
  link_ends ends;
};

}  // namespace gradweave
