/// @file
/// Which of this host's addresses a rank talks from, where the user names network interfaces.
#pragma once

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/ip/address.hpp>

#include <gradweave/assert.hpp>

namespace gradweave::detail {

/// An address of an interface that is up.
struct interface_address {
  std::string name;
  boost::asio::ip::address address;
};

/// Addresses that are valid on one link only (IPv6 fe80::) are left out: another host can't use them as they are.
inline std::vector<interface_address> interface_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<interface_address> found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    if (each->ifa_addr->sa_family == AF_INET) {
      const auto* const v4 = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
      found.push_back({each->ifa_name, boost::asio::ip::address_v4(ntohl(v4->sin_addr.s_addr))});
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      boost::asio::ip::address_v6::bytes_type bytes;
      const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
      std::copy(std::begin(v6->sin6_addr.s6_addr), std::end(v6->sin6_addr.s6_addr), bytes.begin());
      if (const boost::asio::ip::address_v6 address(bytes); !address.is_link_local()) {
        found.push_back({each->ifa_name, address});
      }
    }
  }
  return found;
}

/// "10.0.0.5 (eth0)".
inline std::string name_with_interface(const boost::asio::ip::address& address,
                                       const std::vector<interface_address>& present) {
  const auto found =
      std::find_if(present.begin(), present.end(), [&](const auto& each) { return each.address == address; });
  return address.to_string() + (found == present.end() ? "" : " (" + found->name + ")");
}

/// Whether `name` is one of `wanted`: names with commas between; `eth*` are those that begin with eth; a `^` in front of
/// all means all but these.
inline bool is_wanted_interface(std::string_view wanted, std::string_view name) {
  const bool excluding = wanted.starts_with('^');
  wanted.remove_prefix(excluding ? 1 : 0);
  bool listed = false;
  for (std::size_t begin = 0; begin <= wanted.size();) {
    const std::size_t end = std::min(wanted.find(',', begin), wanted.size());
    const std::string_view each = wanted.substr(begin, end - begin);
    listed |= each.ends_with('*') ? name.starts_with(each.substr(0, each.size() - 1)) : !each.empty() && each == name;
    begin = end + 1;
  }
  return listed != excluding;
}

/// The address to talk from: the first that `wanted` allows, of the family of `like` where there is one. What is merely
/// not excluded is no loopback interface. Nothing where nothing is wanted. Throws contract_violation that lists what this
/// host has.
inline std::optional<boost::asio::ip::address> choose_address(const std::string& wanted,
                                                              const boost::asio::ip::address& like,
                                                              const std::vector<interface_address>& present) {
  if (wanted.empty()) {
    return std::nullopt;
  }
  std::optional<boost::asio::ip::address> chosen;
  std::string all;
  for (const auto& [name, address] : present) {
    all += (all.empty() ? "" : ", ") + name + " (" + address.to_string() + ")";
    if (!is_wanted_interface(wanted, name) || (wanted.starts_with('^') && address.is_loopback())) {
      continue;
    }
    if (!chosen || (chosen->is_v4() != like.is_v4() && address.is_v4() == like.is_v4())) {
      chosen = address;
    }
  }
  if (!chosen) {
    violate("no network interface of this host that is up and has an address is '" + wanted +
            "' (GRADWEAVE_SOCKET_IFNAME); there are: " + (all.empty() ? "none" : all));
  }
  return chosen;
}

}  // namespace gradweave::detail
