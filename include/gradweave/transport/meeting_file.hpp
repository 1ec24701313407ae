/// @file
/// A file on a shared file system in which rank 0 says where it can be reached, for jobs that know no address beforehand.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

#include <gradweave/transport/interfaces.hpp>

namespace gradweave::detail {

/// What the file says. Loopback addresses are of use to processes on that host alone.
struct meeting_place {
  std::string job;
  std::string host;
  std::vector<boost::asio::ip::tcp::endpoint> endpoints;

  friend bool operator==(const meeting_place&, const meeting_place&) = default;
};

/// The same for processes that share their network with this one, and for no others.
inline std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network{};
  const bool known = ::stat("/proc/self/ns/net", &network) == 0;
  return boot + "/" + (known ? std::to_string(network.st_ino) : "0");
}

/// Where this process is reached at `port`: by its wanted interfaces, or by all, those that other hosts can use first.
inline meeting_place this_place(const std::string& job, const std::string& interfaces, std::uint16_t port) {
  meeting_place place{job, host_identity(), {}};
  for (const bool loopback : {false, true}) {
    for (const auto& [name, address] : interface_addresses()) {
      if (address.is_loopback() == loopback && (interfaces.empty() || is_wanted_interface(interfaces, name))) {
        place.endpoints.emplace_back(address, port);
      }
    }
  }
  return place;
}

inline std::string to_text(const meeting_place& place) {
  std::string text = "gradweave-meeting 1\njob " + place.job + "\nhost " + place.host + "\n";
  for (const auto& endpoint : place.endpoints) {
    text += "at " + endpoint.address().to_string() + " " + std::to_string(endpoint.port()) + "\n";
  }
  return text + "end\n";
}

/// Nothing where it is not what to_text made, or only the beginning of it.
inline std::optional<meeting_place> parse_meeting_place(const std::string& text) {
  std::istringstream lines(text);
  meeting_place place;
  std::string line;
  if (!std::getline(lines, line) || line != "gradweave-meeting 1") {
    return std::nullopt;
  }
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string what, address;
    words >> what;
    if (what == "end") {
      return place;
    }
    if (what == "job") {
      place.job = line.substr(std::min<std::size_t>(4, line.size()));
    } else if (what == "host") {
      place.host = line.substr(std::min<std::size_t>(5, line.size()));
    } else if (what == "at") {
      unsigned port = 0;
      words >> address >> port;
      boost::system::error_code malformed;
      const auto parsed = boost::asio::ip::make_address(address, malformed);
      if (malformed || port == 0 || port > 65535) {
        return std::nullopt;
      }
      place.endpoints.emplace_back(parsed, static_cast<std::uint16_t>(port));
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

inline std::optional<meeting_place> read_meeting_place(const std::string& file) {
  constexpr std::size_t bytes_max = std::size_t{64} << 10;
  std::string text(bytes_max, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse_meeting_place(text);
}

/// A file that is there while this lives. It appears whole, in place of what a former job may have left.
class meeting_file {
 public:
  /// Throws std::system_error.
  meeting_file(std::string file, const meeting_place& place) : file_(std::move(file)), text_(to_text(place)) {
    const std::string draft = file_ + "." + std::to_string(::getpid()) + ".draft";
    std::ofstream out(draft, std::ios::binary);
    out << text_;
    out.close();
    std::error_code fault;
    if (!out) {
      fault = std::error_code(errno, std::generic_category());
    } else {
      std::filesystem::rename(draft, file_, fault);
    }
    if (fault) {
      std::error_code ignored;
      std::filesystem::remove(draft, ignored);
      throw std::system_error(fault, "can't write the meeting file '" + file_ + "'");
    }
  }
  meeting_file(const meeting_file&) = delete;
  meeting_file& operator=(const meeting_file&) = delete;
  ~meeting_file() {
    const auto now = read_meeting_place(file_);
    if (now && to_text(*now) == text_) {  // and not that of a job which came after
      std::error_code ignored;
      std::filesystem::remove(file_, ignored);
    }
  }

 private:
  std::string file_;
  std::string text_;
};

}  // namespace gradweave::detail
