/// @file
/// A process's place in a job, where the job meets, and who is let in.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gradweave {

struct rendezvous_options {
  int rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";  ///< of rank 0: a host name or an IPv4 or IPv6 address
  std::uint16_t port = 29500;         ///< of rank 0
  int ports = 1;                      ///< how many from that one on rank 0 may try until one is free
  std::string file = {};              ///< in place of address and port: one on a file system that all ranks share
  std::string job = "default";        ///< told apart from other jobs that meet at the same place
  std::string secret = {};            ///< every connection proves that it knows this; empty: everybody is let in
  std::string interfaces = {};        ///< network interfaces to talk over, with commas between; empty: as routed
  std::chrono::milliseconds timeout = std::chrono::minutes(2);  ///< until all ranks have to be there

  friend bool operator==(const rendezvous_options&, const rendezvous_options&) = default;
};

}  // namespace gradweave
