/// @file
/// The library's version. Ranks that share a job must share it: it is part of what `seal` compares.
#pragma once

#include <string_view>

namespace gradweave {

inline constexpr int version_major = 0;
inline constexpr int version_minor = 1;
inline constexpr int version_patch = 0;
inline constexpr std::string_view version_string = "0.1.0";

}  // namespace gradweave
