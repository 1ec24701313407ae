/// @file
/// What a rank says when it comes to the rendezvous, what rank 0 answers, and what ranks say when they call each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/ip/address.hpp>

#include <gradweave/error.hpp>
#include <gradweave/wire.hpp>

namespace gradweave::detail {

/// An address, or none.
inline bool is_address_or_empty(const std::string& text) {
  boost::system::error_code malformed;
  boost::asio::ip::make_address(text, malformed);
  return text.empty() || !malformed;
}

/// What a rank says when it comes.
struct hello {
  std::string version;
  std::string job;
  std::uint32_t size = 0;
  std::uint32_t rank = 0;
  std::string address;     ///< at which it wants to be called; empty: the one that it came from
  std::uint16_t port = 0;  ///< at which it can be called

  static constexpr std::size_t job_bytes_max = 256;

  std::vector<std::byte> encode() const {
    byte_writer out;
    out.text(version, 64);
    out.text(job, job_bytes_max);
    out.number(size);
    out.number(rank);
    out.text(address, 64);
    out.number(port);
    return {out.bytes().begin(), out.bytes().end()};
  }

  static std::optional<hello> decode(std::span<const std::byte> bytes) {
    byte_reader in(bytes);
    hello read;
    read.version = in.text(64);
    read.job = in.text(job_bytes_max);
    read.size = in.number<std::uint32_t>();
    read.rank = in.number<std::uint32_t>();
    read.address = in.text(64);
    read.port = in.number<std::uint16_t>();
    return in.complete() && is_address_or_empty(read.address) ? std::optional(read) : std::nullopt;
  }
};

/// What rank 0 answers: why the job can't be, or the table.
struct welcome {
  std::string fault;
  errc code = errc::manifest_mismatch;  ///< of the fault
  std::int32_t culprit = -1;
  std::uint64_t ticket = 0;  ///< shown when ranks call each other: this job's, this time
  std::vector<std::pair<std::string, std::uint16_t>> table;  ///< a rank without an address is where rank 0 is
  bool other_job = false;                                    ///< the caller's job does not meet here

  static constexpr std::size_t bytes_max = std::size_t{1} << 20;

  void refuse(errc why, std::int32_t whose, std::string what) {
    fault = std::move(what);
    code = why;
    culprit = whose;
  }

  std::vector<std::byte> encode() const {
    byte_writer out;
    out.text(fault, 2048);
    out.number(static_cast<std::uint32_t>(code));
    out.number(static_cast<std::uint32_t>(culprit));
    out.number(ticket);
    out.number(static_cast<std::uint32_t>(table.size()));
    for (const auto& [address, port] : table) {
      out.text(address, 64);
      out.number(port);
    }
    out.number(static_cast<std::uint8_t>(other_job));
    return {out.bytes().begin(), out.bytes().end()};
  }

  static std::optional<welcome> decode(std::span<const std::byte> bytes) {
    byte_reader in(bytes);
    welcome read;
    read.fault = in.text(2048);
    read.code = static_cast<errc>(in.number<std::uint32_t>());
    read.culprit = static_cast<std::int32_t>(in.number<std::uint32_t>());
    read.ticket = in.number<std::uint64_t>();
    bool usable = read.code >= errc::manifest_mismatch && read.code <= errc::internal;
    for (auto left = in.number<std::uint32_t>(); left != 0 && !in.failed(); --left) {
      std::string address = in.text(64);
      usable = usable && is_address_or_empty(address);
      read.table.emplace_back(std::move(address), in.number<std::uint16_t>());
    }
    const auto other_job = in.number<std::uint8_t>();
    usable = usable && other_job <= 1;
    read.other_job = other_job == 1;
    return in.complete() && usable ? std::optional(read) : std::nullopt;
  }
};

enum class channel : std::uint8_t { payload = 0, control = 1 };

/// What a rank says when it calls another.
struct mesh_call {
  std::uint64_t ticket = 0;
  std::uint32_t rank = 0;
  channel which = channel::payload;

  std::vector<std::byte> encode() const {
    byte_writer out;
    out.number(ticket);
    out.number(rank);
    out.number(static_cast<std::uint8_t>(which));
    return {out.bytes().begin(), out.bytes().end()};
  }

  static std::optional<mesh_call> decode(std::span<const std::byte> bytes) {
    byte_reader in(bytes);
    mesh_call read;
    read.ticket = in.number<std::uint64_t>();
    read.rank = in.number<std::uint32_t>();
    read.which = static_cast<channel>(in.number<std::uint8_t>());
    return in.complete() && read.which <= channel::control ? std::optional(read) : std::nullopt;
  }
};

}  // namespace gradweave::detail
