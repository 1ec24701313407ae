/// @file
/// Which memory a pointer points into.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradweave {

/// Where elements live. The values travel on the wire and never change.
enum class memory_space : std::uint8_t {
  host = 1,
  cuda = 2,
};

constexpr std::string_view memory_space_name(memory_space space) noexcept {
  switch (space) {
    case memory_space::host: return "host";
    case memory_space::cuda: return "cuda";
  }
  return "invalid";
}

}  // namespace gradweave
